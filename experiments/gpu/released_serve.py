"""The released dLLM-Serve loop on one GPU: host, device and their overlap; a serving run.

    python3 experiments/gpu/released_serve.py OUT --dllm-serve DIR [--requests FILE]
        [--seconds S] [--parts LIST] [--below X] [--above X] [--tiny]

DIR is a checkout of chosen-ox/dLLM-Serve (measured: aefbf0a2). Its own engine, scheduler, model and
sampler run with LLaDA-8B's shape and random bf16 weights, sparse settings as its server's. What
stands in: flash-attn's varlen call is PyTorch's own copy of FlashAttention-2 (part `attention`
measures what hangs on it); transformers is a configuration record, as nothing is loaded and no text
is made; the process group of one rank is left out. Requests are put into the state that a case
needs and put back behind every step, so that a case is the same step many times.

FILE has the columns arrival_us, input_tokens and output_tokens of 300 requests (`unmask trace
convert burst --requests 300 --out FILE`). Its prompts are kept; gaps are scaled to the rates, and
outputs and layers are cut so that a run takes about a minute (OUT-serve.csv says to what).

Parts, in order: check (versions, the attention against float64), narrow (the same loop where the
device has next to nothing to do: what the host takes), sanity (whole answers), steps, attention,
operators, serve. `narrow` runs in a process of its own. By --parts alone: pairs (steps of the model
and of the narrow one in turn, for a host whose speed drifts). All files are written as they grow:

OUT-steps.csv       a row a case: wall ms before any profiler
OUT-profiles.csv    of one profiled step (CUPTI alone) of each its wall, the union of all kernels
                    and copies (device_ms), how long the host waited in CUDA
                    (wait_ms: synchronising and copies of over 15 us), and how long the device ran
                    while the host did not (shadow_ms); small: kernels under 10 us
OUT-pairs.csv       a row a step of the model (wall_ms) and of the narrow one right before it;
                    turn_ns: a turn of a plain Python loop right after
OUT-kernels.csv     of the same steps, kernels by name
OUT-ops.csv         operators by input shapes
OUT-attention.csv   steps with and without the attention kernel; the call alone
OUT-serve.csv       a row a serving run: what was scaled, rates, capacity
OUT-RUN-requests.csv, OUT-RUN-ticks.csv: its requests and its steps; first_token_us is the end of
                    the first block, first_commit_us that of the first step
--tiny: a tiny model on the CPU, to see that all parts run.
"""

import argparse
import contextlib
import csv
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types

if "--tiny" in sys.argv:
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ["DLLMSERVE_DISABLE_ATEXIT"] = "1"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import released  # noqa: E402

FULL = dict(d_model=4096, n_heads=32, n_kv_heads=32, n_layers=32, mlp_hidden_size=12288,
            vocab_size=126464, embedding_size=126464, mask_token_id=126336)
# As many kernels, none with work: a power of two of channels, heads that the attention takes.
NARROW = dict(d_model=256, n_heads=4, n_kv_heads=4, n_layers=32, mlp_hidden_size=512,
              vocab_size=2048, embedding_size=2048, mask_token_id=2047)
TINY = dict(d_model=64, n_heads=4, n_kv_heads=4, n_layers=4, mlp_hidden_size=128, vocab_size=512,
            embedding_size=512, mask_token_id=511)
PROMPT, OUTPUT, BLOCK = 256, 256, 32
SMALL_NS = 10000  # a small kernel: such as a host can hide behind
LONG_NS = 15000  # a call that copies and takes longer has waited for the device
PARTS = ["check", "narrow", "sanity", "steps", "attention", "operators", "serve"]  # and pairs
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize",
         "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize")


class Clock:
    """What is left of the seconds given."""

    def __init__(self, seconds):
        self.begun, self.seconds = time.monotonic(), seconds

    def used(self):
        return time.monotonic() - self.begun

    def left(self):
        return self.seconds - self.used()


class Table:
    """A CSV file that holds every row as soon as it is written."""

    def __init__(self, path, columns):
        self.columns = columns.split()
        self.file = open(path, "w", newline="")
        self.writer = csv.writer(self.file)
        self.writer.writerow(self.columns)

    def row(self, **cells):
        assert set(cells) <= set(self.columns), set(cells) - set(self.columns)
        cells = {k: f"{v:.4f}" if isinstance(v, float) else v for k, v in cells.items()}
        self.writer.writerow([cells.get(c, "") for c in self.columns])
        self.file.flush()


def sync():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


# What stands in for flash-attn.

def attend_by_request(q, k, v, cu_q, cu_k, scale):
    """One call of PyTorch's attention for each request; reads the lengths from the device."""
    ends_q, ends_k = cu_q.tolist(), cu_k.tolist()
    out = torch.empty_like(q)
    for i in range(len(ends_q) - 1):
        a, b, c, d = ends_q[i], ends_q[i + 1], ends_k[i], ends_k[i + 1]
        one = F.scaled_dot_product_attention(q[a:b].transpose(0, 1)[None],
                                             k[c:d].transpose(0, 1)[None],
                                             v[c:d].transpose(0, 1)[None], scale=scale)
        out[a:b] = one[0].transpose(0, 1)
    return out


class Attention:
    """flash_attn_varlen_func; `way` is one of flash, by-request and none."""

    way = "flash"

    @classmethod
    def varlen(cls, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
               softmax_scale=None, causal=False, **_):
        assert not causal
        if cls.way == "flash":
            return torch.ops.aten._flash_attention_forward(
                q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0, False,
                False, scale=softmax_scale)[0]
        if cls.way == "by-request":
            return attend_by_request(q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale)
        return q  # none: nothing attends


def ragged(q_lens, k_lens, heads, dim, device, dtype):
    def rows(n):
        return torch.randn(n, heads, dim, device=device, dtype=dtype)

    def ends(lens):
        return torch.tensor([0, *lens], device=device).cumsum(0).to(torch.int32)

    return dict(q=rows(sum(q_lens)), k=rows(sum(k_lens)), v=rows(sum(k_lens)),
                cu_seqlens_q=ends(q_lens), cu_seqlens_k=ends(k_lens), max_seqlen_q=max(q_lens),
                max_seqlen_k=max(k_lens), softmax_scale=dim**-0.5)


def check_attention(tiny):
    """Takes the first way that agrees with float64; returns its name and error."""
    device, dtype = ("cpu", torch.float32) if tiny else ("cuda", torch.bfloat16)
    for way in ("by-request",) if tiny else ("flash", "by-request"):
        Attention.way = way
        try:
            worst = 0.0
            for heads, dim in ((32, 128), (4, 64)):
                a = ragged([32, 7, 301, 1], [272, 40, 301, 500], heads, dim, device, dtype)
                out = Attention.varlen(**a).double()
                ref = attend_by_request(*(a[x].double() for x in "qkv"), a["cu_seqlens_q"],
                                        a["cu_seqlens_k"], a["softmax_scale"])
                worst = max(worst, ((out - ref).norm() / ref.norm()).item())
            print(f"attention by {way}: relative error {worst:.2e}", flush=True)
            if worst < 1e-2:
                return way, worst
        except Exception:
            traceback.print_exc()
    raise RuntimeError("no attention agrees with float64")


# The released engine.

def stand_in(shape):
    """What the release imports and the machine lacks or that would load a checkpoint."""
    released.stand_in_for_transformers()

    class Config:
        @classmethod
        def from_pretrained(cls, *_, **__):
            return types.SimpleNamespace(**shape, model_type="llada", rms_norm_eps=1e-5,
                                         rope_theta=500000.0, max_sequence_length=4096)

    class Tokenizer:
        eos_token_id = 0

        @classmethod
        def from_pretrained(cls, *_, **__):
            return cls()

    sys.modules["transformers"].AutoConfig = Config
    sys.modules["transformers"].AutoTokenizer = Tokenizer
    flash = types.ModuleType("flash_attn")
    flash.flash_attn_varlen_func = lambda *a, **k: Attention.varlen(*a, **k)
    flash.flash_attn_with_kvcache = None
    sys.modules["flash_attn"] = flash


class OnCpu:
    """torch of the release's runner for --tiny: no pinned memory, no GPU to ask."""

    cuda = types.SimpleNamespace(
        set_device=lambda *_: None, empty_cache=lambda: None, synchronize=lambda: None,
        reset_peak_memory_stats=lambda: None, mem_get_info=lambda: (2**28, 2**28),
        memory_stats=lambda: {"allocated_bytes.all.peak": 0, "allocated_bytes.all.current": 0})

    def __getattr__(self, name):
        value = getattr(torch, name)
        if name not in ("tensor", "zeros", "arange", "full"):
            return value

        def made(*args, pin_memory=False, device=None, **kwargs):
            return value(*args, **kwargs)

        return made


def on_cpu(runner, attention):
    def store(key, value, k_cache, v_cache, slots):
        k_cache.view(-1, *key.shape[1:])[slots.long()] = key
        v_cache.view(-1, *value.shape[1:])[slots.long()] = value

    def load(key, value, k_cache, v_cache, slots):
        key.copy_(k_cache.view(-1, *key.shape[1:])[slots.long()])
        value.copy_(v_cache.view(-1, *value.shape[1:])[slots.long()])

    runner.torch = OnCpu()
    torch.Tensor.cuda = lambda self, **_: self
    attention.store_kvcache, attention.load_kvcache = store, load


def random_weights(model, _):
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(0, 0.02)
            else:
                p.fill_(1)


class Engine:
    """The released engine and its layers; runs cases and requests."""

    def __init__(self, folder, shape, tiny, share=None):
        stand_in(shape)
        sys.path.insert(0, folder)
        torch.distributed.init_process_group = lambda *_, **__: None
        from dllmserve.engine import model_runner
        from dllmserve.layers import attention
        from dllmserve.llm import LLM
        from dllmserve.sampling_params import SamplingParams
        from dllmserve.sparse.state import SparseConfig
        self.SamplingParams, self.SparseConfig = SamplingParams, SparseConfig
        model_runner.load_model = random_weights
        limits = dict(enforce_eager=True, **({"gpu_memory_utilization": share} if share else {}))
        if tiny:
            on_cpu(model_runner, attention)
            limits.update(max_num_batched_tokens=2048, max_model_len=1024)
            limits.pop("gpu_memory_utilization", None)
        self.llm = LLM(tempfile.mkdtemp(), **limits)
        self.shape, self.tiny = shape, tiny
        self.runner, self.scheduler = self.llm.model_runner, self.llm.scheduler
        self.runner.kv_cache.normal_()  # rows that a reuse reads though nothing stored them
        self.transformer = self.runner.model.model.transformer
        self.blocks = list(self.transformer.blocks)
        self.random = random.Random(1)

    def layers(self, n):
        self.transformer.blocks = torch.nn.ModuleList(self.blocks[:n])

    def add(self, prompt, output, head_select=False):
        """As the release's server submits a request, but for the prompt's ids."""
        ids = [self.random.randrange(self.shape["mask_token_id"] - 8) for _ in range(prompt)]
        params = self.SamplingParams(temperature=0.0, gen_length=output, steps=output)
        sparse = self.SparseConfig(enabled=True, retention_ratio=0.5, delay_step=1,
                                   default_block_len=BLOCK, head_select=head_select)
        return self.llm.add_request(ids, params, sparse_configs=sparse)

    def put(self, counts, head_select=False):
        """counts[s] requests in state s (0 full, 1 selects, 2 reuses), nothing else."""
        self.clear()
        for state, n in enumerate(counts):
            for _ in range(n):
                self.add(PROMPT, OUTPUT, head_select)
                seq = self.scheduler.waiting[-1]
                done = (0, 1, 5)[state]
                seq.current_step = seq.sparse_state.step_in_block = done
                seq.sparse_state.cache_state = state
                seq.token_ids[PROMPT:PROMPT + done] = [1] * done
        self.saved = None

    def clear(self):
        self.scheduler.waiting.clear()
        for seq in self.scheduler.running:
            self.scheduler.block_manager.deallocate(seq)
        self.scheduler.running.clear()

    def step(self):
        """One step of the case; its ms from the call to its return, requests put back."""
        if self.saved is None:
            seqs = list(self.scheduler.waiting)
            self.saved = [(s, list(s.token_ids), s.current_step, s.sparse_state.step_in_block,
                           s.sparse_state.cache_state) for s in seqs]
        sync()
        begun = time.perf_counter()
        self.llm.step()
        sync()
        ms = (time.perf_counter() - begun) * 1e3
        assert len(self.scheduler.running) == len(self.saved), "not all requests were in the step"
        for seq, tokens, current, in_block, state in self.saved:
            seq.token_ids, seq.current_step = list(tokens), current
            seq.sparse_state.step_in_block, seq.sparse_state.cache_state = in_block, state
        return ms


# A step's timeline.

def union(spans):
    """Sorted spans without overlaps, and their sum."""
    out = []
    for a, b in sorted(spans):
        if out and a <= out[-1][1]:
            out[-1][1] = max(out[-1][1], b)
        else:
            out.append([a, b])
    return out, sum(b - a for a, b in out)


def both(left, right):
    """How long two unions hold at once."""
    total, i, j = 0, 0, 0
    while i < len(left) and j < len(right):
        total += max(0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return total


def profiled(engine, shapes=False):
    kinds = [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    if shapes or not kinds:
        kinds.append(torch.profiler.ProfilerActivity.CPU)
    with torch.profiler.profile(activities=kinds, record_shapes=shapes) as profiler:
        ms = engine.step()
    return ms, profiler


def timeline(profiler):
    """Spans of the device and of the host's waits, in ns: raw events, which are quick to read."""
    device, small, syncs, copies, names = [], [], [], [], {}
    cuda = torch.autograd.DeviceType.CUDA
    for event in profiler.profiler.kineto_results.events():
        name, begin = event.name(), event.start_ns()
        span = (begin, begin + event.duration_ns())
        if event.device_type() == cuda:
            if event.is_user_annotation() or "Torch-Compiled" in name or "CompiledFx" in name:
                continue
            if name.endswith(" Sync") or name.startswith("Stream Wait"):
                continue
            device.append(span)
            if span[1] - span[0] < SMALL_NS:
                small.append(span)
            n, ms = names.get(name, (0, 0.0))
            names[name] = n + 1, ms + (span[1] - span[0]) / 1e6
        elif name in WAITS:
            syncs.append(span)
        elif name.startswith("cudaMemcpy"):
            copies.append(span)
    busy, busy_ns = union(device)
    few, small_ns = union(small)
    waits, wait_ns = union(syncs + [c for c in copies if c[1] - c[0] > LONG_NS])
    products, attention, other = released.parts(names)
    return names, dict(
        device_ms=busy_ns / 1e6, device_sum_ms=sum(b - a for a, b in device) / 1e6,
        products_ms=products, attention_ms=attention, other_ms=other, launches=len(device),
        sync_ms=union(syncs)[1] / 1e6, copy_call_ms=union(copies)[1] / 1e6, syncs=len(syncs),
        copy_calls=len(copies), wait_ms=wait_ns / 1e6,
        shadow_ms=(busy_ns - both(busy, waits)) / 1e6,
        small_ms=small_ns / 1e6, small_shadow_ms=(small_ns - both(few, waits)) / 1e6,
        small_launches=len(small))


def walls(engine, least_s=0.5, at_least=2, at_most=12):
    out = []
    while len(out) < at_least or (sum(out) < least_s * 1e3 and len(out) < at_most):
        out.append(engine.step())
    return out


class Run:
    """What the parts share."""

    def __init__(self, args):
        self.args, self.tiny, self.clock = args, args.tiny, Clock(args.seconds)
        self.engine, self.tables, self.summary = None, {}, {}
        self.share = None  # of the GPU's memory; None: the release's own

    def table(self, name, columns):
        if name not in self.tables:
            self.tables[name] = Table(f"{self.args.out}-{name}.csv", columns)
        return self.tables[name]

    def get_engine(self, narrow=False):
        if self.engine is None:
            shape = TINY if self.tiny else NARROW if narrow else FULL
            begun = time.monotonic()
            try:
                self.engine = Engine(self.args.dllm_serve, shape, self.tiny, self.share)
            except Exception:
                traceback.print_exc()
                print("AGAIN, what does not compile runs eagerly", flush=True)
                torch._dynamo.config.suppress_errors = True
                self.engine = Engine(self.args.dllm_serve, shape, self.tiny, self.share)
            print(f"engine: {time.monotonic() - begun:.1f} s, "
                  f"{self.engine.llm.config.num_kvcache_blocks} blocks", flush=True)
        return self.engine

    def say(self, text):
        print(f"[{self.clock.used():5.0f} s] {text}", flush=True)


CASE = "model layers full select reuse head_select "
PROFILE = ("profiled_ms device_ms device_sum_ms products_ms attention_ms other_ms launches "
           "sync_ms syncs copy_call_ms copy_calls wait_ms shadow_ms small_ms small_shadow_ms "
           "small_launches")


def cases(tiny, n_layers):
    """Requests in each state, heads' own selection: a step has at most 16,384 tokens."""
    if tiny:
        return [((0, 0, 1), False), ((0, 1, 0), True), ((1, 1, 2), False)]
    few = [((0, 0, n), False) for n in (1, 16, 64, 128)]
    few += [((1, 0, 0), False), ((0, 1, 0), False), ((16, 0, 0), False), ((0, 16, 0), False)]
    if n_layers != 16:
        few += [((32, 0, 0), False), ((0, 32, 0), False), ((0, 16, 0), True),
                ((30, 0, 32), False), ((0, 30, 32), False)]
    return few


def steps(run, model="llada-8b", until=None):
    """Part a. Walls of all cases before the first profile, which may slow later launches; 8 layers
    first, where every shape is met for the first time, then 32, then 16."""
    until = until or ((0.58, 0.97) if run.args.parts.endswith("steps") else (0.45, 0.57))
    engine = run.get_engine(model == "narrow")
    numbers = (2, 4) if run.tiny else (8, 32, 16)
    profiles = numbers[:1] if model == "narrow" else numbers
    for look, layers, share in ((wall, numbers, until[0]), (profile, profiles, until[1])):
        for n_layers in layers:
            engine.layers(n_layers)
            for counts, heads in cases(run.tiny, n_layers):
                if run.clock.used() > share * run.clock.seconds:
                    run.say(f"{model}: time is up at {look.__name__}, {n_layers}, {counts}")
                    break
                what = dict(model=model, layers=n_layers, full=counts[0], select=counts[1],
                            reuse=counts[2], head_select=int(heads))
                try:
                    engine.put(counts, heads)
                    engine.step()  # admits the requests
                    cells = look(run, engine, what)
                    run.summary.setdefault(tuple(what.values()), {}).update(cells)
                    run.say(f"{model} {n_layers} layers {counts}{' heads' * heads}: " + " ".join(
                        f"{k} {v:.2f}" for k, v in cells.items() if k in (
                            "wall_ms", "profiled_ms", "device_ms", "wait_ms", "shadow_ms",
                            "small_ms", "attention_ms")))
                except Exception:
                    traceback.print_exc()
    engine.clear()
    print("a launch after the profiler: %.2f us, with a default device %.2f us"
          % tuple(issue_us()), flush=True)


def wall(run, engine, what):
    if what["layers"] in (2, 8):
        engine.step()  # the first two steps of a shape compile
    times = walls(engine)
    cells = dict(wall_ms=statistics.median(times), least_ms=min(times), most_ms=max(times))
    run.table("steps", CASE + "prompt output n wall_ms least_ms most_ms").row(
        **what, prompt=PROMPT, output=OUTPUT, n=len(times), **cells)
    return cells


def profile(run, engine, what):
    if "profiles" not in run.tables:
        profiled(engine)  # the first starts CUPTI
    ms, profiler = profiled(engine)
    names, spans = timeline(profiler)
    cells = dict(profiled_ms=ms, **spans)
    run.table("profiles", CASE + PROFILE).row(**what, **cells)
    kernels = run.table("kernels", CASE + "kernel calls ms")
    for name, (n, total) in sorted(names.items(), key=lambda x: -x[1][1])[:24]:
        kernels.row(**what, kernel=name[:160], calls=n, ms=total)
    return cells


def narrow(run):
    """Part a's host: the same loop in a process of its own, whose kernels have no work."""
    share = 0.28
    command = [sys.executable, os.path.abspath(__file__), run.args.out + "-narrow", "--dllm-serve",
               run.args.dllm_serve, "--seconds", str(int(share * run.args.seconds)), "--parts",
               "narrow-steps"] + ["--tiny"] * run.tiny
    subprocess.run(command, timeout=share * run.args.seconds + 20, check=False)


def pairs(run):
    """Steps of the model and of the narrow one in turn, so that a host whose speed drifts is the
    same for both: a row a step. The narrow model is in a process of its own and waits meanwhile."""
    command = [sys.executable, os.path.abspath(__file__), run.args.out + "-pair", "--dllm-serve",
               run.args.dllm_serve, "--seconds", str(int(run.args.seconds)), "--parts",
               "pair-child"] + ["--tiny"] * run.tiny
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        answer(child)  # it is there, with what memory it takes, before the model takes the rest
        engine = run.get_engine()
        table = run.table("pairs", CASE + "round wall_ms narrow_ms turn_ns")
        numbers = (2,) if run.tiny else (32, 8, 16)
        share = run.args.pairs_share * run.args.seconds
        begun, turn = run.clock.used(), 0
        warm = set()
        while run.clock.used() - begun < share:
            for n_layers in numbers:
                if n_layers != numbers[0] and turn % 3:
                    continue  # every third round alone: fewer layers say how much is a step's
                engine.layers(n_layers)
                for counts, heads in cases(run.tiny, n_layers):
                    if run.clock.used() - begun > share:
                        break
                    pair(engine, child, table, (n_layers, counts, heads), turn, warm)
            turn += 1
        run.say(f"pairs: {turn} rounds")
        engine.clear()
    finally:
        child.stdin.close()
        child.kill()


def pair(engine, child, table, case, turn, warm):
    n_layers, counts, heads = case
    child.stdin.write(f"{n_layers} {counts[0]} {counts[1]} {counts[2]} {int(heads)}\n")
    child.stdin.flush()
    narrow_ms = float(answer(child))
    engine.put(counts, heads)
    engine.step()  # admits the requests
    if case not in warm:
        engine.step()
        warm.add(case)
        return
    times = [engine.step()]
    while sum(times) < 60 and len(times) < 4:
        times.append(engine.step())
    table.row(model="llada-8b", layers=n_layers, full=counts[0], select=counts[1],
              reuse=counts[2], head_select=int(heads), round=turn,
              wall_ms=statistics.median(times), narrow_ms=narrow_ms, turn_ns=python_ns(100000))


def answer(child):
    """The next line that is an answer; what the child prints besides is passed over."""
    for line in child.stdout:
        if line.startswith("answer "):
            return line.split()[1]
    raise RuntimeError("the narrow model's process ended")


def pair_child(run):
    run.share = 0.06
    engine = run.get_engine(narrow=True)
    print("answer 0", flush=True)
    for line in sys.stdin:
        n_layers, full, select, reuse, heads = map(int, line.split())
        engine.layers(n_layers)
        engine.put((full, select, reuse), bool(heads))
        engine.step()
        times = [engine.step()]
        while sum(times) < 60 and len(times) < 4:
            times.append(engine.step())
        print(f"answer {statistics.median(times):.4f}", flush=True)


def sanity(run):
    """Whole answers of unequal requests with two layers: one token a step, all unmasked."""
    engine = run.get_engine()
    engine.clear()
    engine.layers(2)
    for prompt, output in ((40, 64), (301, 32), (7, 96)):
        engine.add(prompt, output)
    seqs = list(engine.scheduler.waiting)
    prompts = [list(s.prompt_token_ids) for s in seqs]
    mask, n_steps, left = engine.shape["mask_token_id"], 0, []
    while not engine.llm.is_finished():
        engine.llm.step()
        n_steps += 1
        left.append(seqs[2].token_ids.count(mask))
    assert n_steps == 96 and left == list(range(95, -1, -1)), (n_steps, left[:8])
    assert all(s.token_ids.count(mask) == 0 for s in seqs)
    assert prompts == [list(s.prompt_token_ids) for s in seqs]
    run.say("sanity: three requests of unequal lengths, one token a step, all unmasked")


def attention(run):
    """Part c: steps with the attention, without it and by request; the call alone."""
    engine = run.get_engine()
    table = run.table("attention", "what layers full select reuse way n wall_ms least_ms most_ms "
                                   "issue_us device_us")
    chosen = Attention.way
    ways = [chosen, "none"] + (["by-request"] if chosen == "flash" else [])
    for n_layers in (2,) if run.tiny else (8, 32):
        engine.layers(n_layers)
        for counts in [(0, 0, 2)] if run.tiny else [(0, 0, 1), (0, 0, 64), (0, 16, 0), (16, 0, 0)]:
            engine.put(counts)
            for way in ways:
                if run.clock.used() > 0.62 * run.clock.seconds and n_layers != 8:
                    break
                Attention.way = way
                engine.step()
                times = walls(engine, 0.3)
                table.row(what="step", layers=n_layers, full=counts[0], select=counts[1],
                          reuse=counts[2], way=way, n=len(times), wall_ms=statistics.median(times),
                          least_ms=min(times), most_ms=max(times))
                run.say(f"attention {way}: {n_layers} layers {counts}: "
                        f"{statistics.median(times):.2f} ms")
    Attention.way = chosen
    engine.clear()
    if not run.tiny:
        for n in (1, 16, 64, 128):
            call_alone(run, table, n, chosen)


def call_alone(run, table, n, way):
    a = ragged([BLOCK] * n, [BLOCK + (PROMPT + OUTPUT - BLOCK) // 2] * n, 32, 128, "cuda",
               torch.bfloat16)
    for _ in range(3):
        Attention.varlen(**a)
    sync()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun = time.perf_counter()
    start.record()
    for _ in range(50):
        Attention.varlen(**a)
    end.record()
    issued = time.perf_counter() - begun
    sync()
    table.row(what="call", reuse=n, way=way, n=50, issue_us=issued / 50 * 1e6,
              device_us=start.elapsed_time(end) / 50 * 1e3)
    run.say(f"the call alone, {n} requests: {issued / 50 * 1e6:.1f} us to issue, "
            f"{start.elapsed_time(end) / 50 * 1e3:.1f} us on the device")


def operators(run):
    """Each operator of a step by its input shapes."""
    engine = run.get_engine()
    file = open(run.args.out + "-ops.csv", "w", newline="", buffering=1)
    bench = types.SimpleNamespace(ops=csv.writer(file))
    bench.ops.writerow("program layers batch prompt output step operator shapes calls "
                       "device_ms".split())
    engine.layers(2 if run.tiny else 8)
    names = ("state 0", "state 1", "reuse")
    for counts in [(0, 0, 1), (0, 0, 16), (0, 4, 0), (4, 0, 0)]:
        if run.clock.used() > 0.66 * run.clock.seconds:
            break
        engine.put(counts)
        engine.step()
        _, profiler = profiled(engine, shapes=True)
        step = next(n for n, c in zip(names, counts) if c)
        released.record_profile(bench, ["dllm-serve", len(engine.transformer.blocks), sum(counts),
                                        PROMPT, OUTPUT, step], profiler)
        run.say(f"operators of {counts}")
    engine.clear()


# Part b.

def read_requests(path, tiny):
    if path is None:
        rng = random.Random(7)
        return [(rng.expovariate(1.0), rng.randrange(20, 60)) for _ in range(12)]
    with open(path) as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    times = [float(r["arrival_us"]) for r in rows]
    gap = (times[-1] - times[0]) / (len(times) - 1)
    gaps = [0.0] + [(b - a) / gap for a, b in zip(times, times[1:])]
    out = list(zip(gaps, (int(r["input_tokens"]) for r in rows)))
    return out[:12] if tiny else out


def block_s(engine, n_layers):
    """What a request's block costs in a full house: by steps of 64 that reuse, 16 that do not."""
    engine.layers(n_layers)
    per_request = []
    for counts in ((0, 0, 64), (16, 0, 0), (0, 16, 0)) if not engine.tiny else (
            (0, 0, 2), (1, 0, 0), (0, 1, 0)):
        engine.put(counts)
        engine.step()
        per_request.append(min(engine.step() for _ in range(2)) / sum(counts) / 1e3)
    engine.clear()
    return (BLOCK - 2) * per_request[0] + per_request[1] + per_request[2]


def choose(run, engine, n):
    """The most of layers and output whose n requests take 45 s, or what time there is, at most."""
    target = run.args.serve_seconds or min(45.0, (run.clock.left() - 15) / 3.0)
    blocks_s, best = {}, None
    for n_layers, output in [(2, 64)] if run.tiny else [(8, 128), (8, 96), (8, 64), (8, 32),
                                                        (4, 64), (4, 32)]:
        if n_layers not in blocks_s:
            blocks_s[n_layers] = block_s(engine, n_layers)
        cost = output // BLOCK * blocks_s[n_layers]
        best = (n_layers, output, cost)
        if cost * n <= target:
            break
    return *best, target


def serve(run):
    engine = run.get_engine()
    requests = read_requests(run.args.requests, run.tiny)
    n_layers, output, cost, target = choose(run, engine, len(requests))
    if run.args.serve_layers:
        n_layers, output = run.args.serve_layers, run.args.serve_output
        cost = output // BLOCK * block_s(engine, n_layers)
    kept = max(8, min(len(requests), int(target / cost)))
    requests = requests[:kept]
    run.say(f"serve: {n_layers} layers, outputs of {output}, {kept} requests of {cost * 1e3:.0f} "
            f"ms each: {1 / cost:.2f} requests/s at most")
    table = run.table("serve", "run layers output_tokens requests served rate capacity_guess "
                               "seconds cut blocks max_num_seqs max_num_batched_tokens steps")
    engine.layers(n_layers)
    warm_up(engine, output)
    for name, load in (("below", run.args.below), ("above", run.args.above)):
        ahead = 0.42 if name == "below" else 0
        limit = run.clock.left() * (1 - ahead) - 4
        if limit < 10:
            run.say(f"serve {name}: no time is left")
            break
        try:
            serve_once(run, engine, table, name, requests, load / cost, limit,
                       dict(layers=n_layers, output_tokens=output, capacity_guess=1 / cost))
        except Exception:
            traceback.print_exc()


def warm_up(engine, output):
    for _ in range(3):
        engine.add(100, output)
    while not engine.llm.is_finished():
        engine.llm.step()


def serve_once(run, engine, table, name, requests, rate, limit_s, what):
    """The loop of the release's EngineWorker; arrivals enter where its lock would let them in."""
    llm, output = engine.llm, what["output_tokens"]
    columns = ("arrival_us input_tokens output_tokens scheduled_us first_token_us last_token_us "
               "first_commit_us")
    ticks = Table(f"{run.args.out}-{name}-ticks.csv", "start_us wall_us full select reuse tokens "
                                                      "waiting")
    arrivals, now_s = [], 0.0
    for gap, prompt in requests:
        now_s += gap / rate
        arrivals.append((now_s, prompt))
    records, live, seen, rows = {}, [], {}, []
    schedule = engine.scheduler.schedule

    def watched():
        seqs, flag = schedule()
        seen["seqs"] = seqs
        seen["counts"] = [sum(s.sparse_state.cache_state == k for s in seqs) for k in range(3)]
        seen["tokens"] = sum(BLOCK if s.sparse_state.cache_state == 2 else len(s) for s in seqs)
        return seqs, flag

    engine.scheduler.schedule = watched
    begun, entered, cut = time.perf_counter(), 0, False
    try:
        while True:
            now = time.perf_counter() - begun
            while entered < len(arrivals) and arrivals[entered][0] <= now:
                at, prompt = arrivals[entered]
                records[engine.add(prompt, output)] = dict(
                    arrival_us=at * 1e6, input_tokens=prompt, output_tokens=output)
                entered += 1
            if now > limit_s:
                cut = True
                break
            if llm.is_finished():
                if entered == len(arrivals):
                    break
                time.sleep(max(0.0, min(arrivals[entered][0] - now, 0.02)))
                continue
            outputs, _ = llm.step()
            end = time.perf_counter() - begun
            rows.append((now, end, seen["counts"], seen["tokens"], len(engine.scheduler.waiting)))
            for seq in seen["seqs"]:
                record = records[seq.seq_id]
                if "scheduled_us" not in record:
                    record["scheduled_us"], record["first_commit_us"] = now * 1e6, end * 1e6
                if seq.sparse_state.current_block_idx > 0 and "first_token_us" not in record:
                    record["first_token_us"] = end * 1e6
            for seq_id, _ in outputs:
                records[seq_id]["last_token_us"] = end * 1e6
            time.sleep(0)
    finally:
        engine.scheduler.schedule = schedule
        engine.clear()
        seconds = time.perf_counter() - begun
        out = Table(f"{run.args.out}-{name}-requests.csv", columns)
        for record in records.values():
            out.row(**{k: round(v, 1) if isinstance(v, float) else v for k, v in record.items()})
        for start, end, counts, tokens, waiting in rows:
            ticks.writer.writerow([round(start * 1e6, 1), round((end - start) * 1e6, 1), *counts,
                                   tokens, waiting])
        ticks.file.flush()
    served = [r for r in records.values() if "last_token_us" in r]
    config = llm.config
    table.row(run=name, requests=len(requests), served=len(served), rate=rate, seconds=seconds,
              cut=int(cut), blocks=config.num_kvcache_blocks, max_num_seqs=config.max_num_seqs,
              max_num_batched_tokens=config.max_num_batched_tokens, steps=len(rows), **what)
    latency = sorted((r["last_token_us"] - r["arrival_us"]) / 1e6 for r in served)
    if latency:
        run.say(f"serve {name}: {len(served)} of {len(requests)} requests at {rate:.2f}/s in "
                f"{seconds:.1f} s; latency mean {statistics.mean(latency):.2f} s, p50 "
                f"{latency[len(latency) // 2]:.2f}, p99 {latency[int(len(latency) * .99)]:.2f}; "
                f"{len(served) * output / seconds:.1f} tok/s{'; CUT' * cut}")


# Around the parts.

def issue_us():
    """Host time of a small kernel's launch, without and with the release's default device."""
    a = torch.ones(1024, device="cpu" if not torch.cuda.is_available() else "cuda")
    out = []
    for context in (contextlib.nullcontext(), torch.device("cpu")):
        with context, torch.inference_mode():
            for _ in range(100):
                torch.add(a, a)
            sync()
            begun = time.perf_counter()
            for _ in range(1000):
                torch.add(a, a)
            out.append((time.perf_counter() - begun) * 1e3)
            sync()
    return out


def python_ns(turns=1000000):
    """A turn of a plain Python loop, for comparing hosts."""
    begun, total = time.perf_counter(), 0
    for i in range(turns):
        total += i & 3
    return (time.perf_counter() - begun) * 1e9 / turns


def check(run):
    print("python", platform.python_version(), "torch", torch.__version__, "cuda",
          torch.version.cuda)
    for name in ("triton", "numpy", "xxhash", "safetensors", "tqdm"):
        try:
            print(name, getattr(__import__(name), "__version__", "there"))
        except ImportError as error:
            print(name, "MISSING:", error)
    with contextlib.suppress(Exception):
        print([line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
               if line.startswith("model name")][0], os.cpu_count(), "cores")
    if torch.cuda.is_available():
        print(torch.cuda.get_device_name(), torch.cuda.get_device_capability())
        subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem,"
                        "power.draw,memory.total", "--format=csv"], check=False)
    plain, moded = issue_us()
    print(f"a launch: {plain:.2f} us, with a default device {moded:.2f} us; "
          f"a turn of a Python loop {python_ns():.1f} ns", flush=True)


def summary(run):
    """A short table last: host of the narrow model, device, and overlap = host + device - wall."""
    narrow_walls = {}
    with contextlib.suppress(OSError):
        with open(run.args.out + "-narrow-steps.csv") as file:
            for r in csv.DictReader(file):
                key = tuple(int(r[c]) for c in ("layers", "full", "select", "reuse", "head_select"))
                narrow_walls[key] = float(r["wall_ms"])
    print("layers full select reuse heads |    wall  device    host overlap  shadow attn% launches")
    for (_, *key), s in run.summary.items():
        cells = [s.get(c, math.nan) for c in ("wall_ms", "device_ms", "shadow_ms", "attention_ms")]
        host = narrow_walls.get(tuple(key), math.nan)
        print("%6d %4d %6d %5d %5d | %7.2f %7.2f %7.2f %7.2f %7.2f %5.1f %8d" % (
            *key, cells[0], cells[1], host, host + cells[1] - cells[0], cells[2],
            100 * cells[3] / cells[0], s.get("launches", 0)), flush=True)


def stop_at(seconds):
    """The last resort: every table has what was written so far."""

    def stop():
        print(f"stopped after {seconds} s", flush=True)
        os._exit(3)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--dllm-serve", required=True)
    parser.add_argument("--requests")
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--serve-layers", type=int, default=0, help="instead of the choice")
    parser.add_argument("--serve-output", type=int, default=64)
    parser.add_argument("--serve-seconds", type=float, default=0,
                        help="of work a run, by the capacity's guess; instead of 45 or less")
    parser.add_argument("--pairs-share", type=float, default=0.5, help="of the seconds, for pairs")
    parser.add_argument("--below", type=float, default=0.6, help="rate over the capacity's guess")
    parser.add_argument("--above", type=float, default=3.5, help="the guess is up to half too low")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    args.dllm_serve = os.path.abspath(args.dllm_serve)
    os.makedirs(os.path.dirname(os.path.abspath(args.out)), exist_ok=True)
    torch.manual_seed(1)
    stop_at(args.seconds + 8)
    run = Run(args)
    for part in args.parts.split(","):
        try:
            attends = part not in ("check", "narrow", "pairs")
            if attends and Attention.way == "flash" and run.engine is None:
                check_attention(args.tiny)
            run.say(f"part {part}")
            if part == "narrow-steps":
                steps(run, "narrow", until=(0.8, 0.97))
            else:
                globals()[part.replace("-", "_")](run)
        except Exception:
            traceback.print_exc()
    if "steps" in args.parts.split(","):
        summary(run)
    run.say("done")


if __name__ == "__main__":
    main()
