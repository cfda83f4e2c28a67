"""Steps of released LLaDA-8B programs as they run: wall time, device time by operator, memory.

    python3 experiments/gpu/released.py OUT [--fast-dllm DIR] [--dllm-cache DIR] [--sparse-dllm DIR]
        [--only WORD] [--tiny]

Each DIR is a checkout of NVlabs/Fast-dLLM (measured: 24cc59e7, June 2025), maomaocun/dLLM-cache
(17235bff) or OpenMOSS/Sparse-dLLM (3fd8986b). Their own generate functions run over their own model
class with LLaDA-8B's shape and random bf16 weights; nothing of theirs stands here. What is put
between them and the model is a proxy that synchronises and reads the clock whenever the model is
called: a step is the time from one call to the next, so it includes sampling. Fast-dLLM's loop
makes a canvas of one row: `torch.full` is made to give it one row a request, and the model is shown
one row of replace_position (the rows of a batch are equal), so that the same loop runs any batch.

OUT-steps.csv: a row a kind of step: wall ms (median, least, most), device ms of one profiled step
in products, attention and the rest, launches (kernels, copies and fills), peak memory of the step.
OUT-ops.csv: of the profiled steps, each operator by its input shapes: calls and device ms.
OUT-batches.csv: whether a batch runs, and its peak memory.
--tiny: a tiny model on the CPU, to see that the loops run.
"""

import argparse
import contextlib
import csv
import gc
import importlib.util
import os
import statistics
import sys
import time
import types

import torch

SHAPE = dict(d_model=4096, n_heads=32, n_kv_heads=32, n_layers=32, mlp_hidden_size=12288,
             vocab_size=126464, embedding_size=126464)
TINY = dict(d_model=64, n_heads=4, n_kv_heads=4, n_layers=4, mlp_hidden_size=128, vocab_size=512,
            embedding_size=512)
# The rest of LLaDA-8B-Instruct's config.json.
COMMON = dict(rope=True, rope_full_precision=True, rope_theta=500000.0, layer_norm_type="rms",
              activation_type="silu", block_type="llama", weight_tying=False, include_bias=False,
              include_qkv_bias=False, bias_for_layer_norm=False, attention_layer_norm=False,
              flash_attention=False, max_sequence_length=4096, residual_dropout=0.0,
              attention_dropout=0.0, embedding_dropout=0.0, multi_query_attention=None,
              layer_norm_with_affine=True, rms_norm_eps=1e-5, input_emb_norm=False)
PRODUCTS = ("gemm", "nvjet", "cutlass_80_tensorop", "xmma", "gemv", "splitKreduce", "cublas")
ATTENTION = ("flash", "fmha", "cudnn", "sdpa")


def stand_in_for_transformers():
    """What the released files import of transformers: base classes and an output record."""

    class Config:
        def __init__(self, **kwargs):
            self.use_return_dict = True
            self.__dict__.update(kwargs)

    class Model(torch.nn.Module):
        def __init__(self, config, *_, **__):
            super().__init__()
            self.config = config

        @property
        def device(self):
            return next(self.parameters()).device

    class Output:
        def __init__(self, **kwargs):
            self.__dict__.update(kwargs)

    class Auto:
        @classmethod
        def register(cls, *_, **__):
            pass

    names = {
        "transformers": dict(PretrainedConfig=Config, PreTrainedModel=Model, AutoConfig=Auto,
                             AutoModel=Auto, AutoTokenizer=Auto, AutoModelForCausalLM=Auto),
        "transformers.modeling_outputs": dict(CausalLMOutputWithPast=Output),
        "transformers.models": {},
        "transformers.models.auto": dict(AutoModel=Auto),
        "transformers.cache_utils": dict(Cache=object),
    }
    for name, contents in names.items():
        module = types.ModuleType(name)
        module.__dict__.update(contents)
        module.__path__ = []
        sys.modules[name] = module


def package(name, folder):
    """A package whose files come from `folder` and whose __init__ is not run."""
    module = types.ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Enough(Exception):
    pass


class Bench:
    def __init__(self, out, tiny):
        self.tiny = tiny
        self.device = "cpu" if tiny else "cuda"
        self.shape = TINY if tiny else SHAPE
        self.files = []
        self.steps = self.open(out + "-steps.csv", "program layers batch prompt output step n "
                               "wall_ms least_ms most_ms device_ms products_ms attention_ms "
                               "other_ms launches peak_gib reserved_gib")
        self.ops = self.open(out + "-ops.csv",
                             "program layers batch prompt output step operator shapes calls "
                             "device_ms")
        self.batches = self.open(out + "-batches.csv", "program batch prompt output runs peak_gib "
                                 "reserved_gib")

    def open(self, path, header):
        file = open(path, "w", newline="")
        self.files.append(file)
        writer = csv.writer(file)
        writer.writerow(header.split())
        return writer

    def sync(self):
        if not self.tiny:
            torch.cuda.synchronize()

    def clear(self):
        gc.collect()
        if not self.tiny:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak(self):
        if self.tiny:
            return 0.0, 0.0
        return (torch.cuda.max_memory_allocated() / 2**30, torch.cuda.max_memory_reserved() / 2**30)

    def model(self, modeling, configuration):
        config = configuration.LLaDAConfig(**self.shape, **COMMON, init_device=self.device)
        inner = modeling.create_model_config_from_pretrained_config(config)
        inner.init_device = self.device
        torch.set_default_dtype(torch.bfloat16)
        with torch.no_grad():
            model = modeling.LLaDAModelLM(config, model=modeling.LLaDAModel(inner, False)).eval()
            for name, p in model.named_parameters():
                if p.dim() > 1:
                    p.normal_(0, 0.02)
                else:
                    p.fill_(1)
        torch.set_default_dtype(torch.float32)
        assert all(p.dtype == torch.bfloat16 for p in model.parameters())
        self.all_blocks = list(model.model.transformer.blocks)
        return model

    def truncate(self, model, layers):
        model.model.transformer["blocks"] = torch.nn.ModuleList(self.all_blocks[:layers])
        model.model.config.n_layers = layers
        model.config.n_layers = layers
        model.n_layers = layers


class Proxy:
    """Stands where the loop expects its model; a step ends where the next call begins."""

    def __init__(self, bench, model, kind, profile, calls=None):
        self.bench, self.model, self.kind = bench, model, kind
        self.wanted = dict(profile)  # step kind: the how-manieth is profiled
        self.calls = calls
        self.config = model.config
        self.device = torch.device(bench.device)
        self.walls, self.memory, self.profiles, self.seen = {}, {}, {}, {}
        self.begun, self.current, self.profiler, self.n = None, None, None, 0

    def end(self):
        if self.begun is None:
            return
        self.bench.sync()
        ms = (time.perf_counter() - self.begun) * 1e3
        allocated, reserved = self.bench.peak()
        old = self.memory.get(self.current, (0, 0))
        self.memory[self.current] = (max(old[0], allocated), max(old[1], reserved))
        if self.profiler is not None:
            self.profiler.__exit__(None, None, None)
            self.profiles[self.current] = self.profiler
            self.profiler = None
        else:
            self.walls.setdefault(self.current, []).append(ms)
        self.begun = None

    def __call__(self, *args, **kwargs):
        self.end()
        self.n += 1
        if self.calls is not None and self.n > self.calls:
            raise Enough
        self.current = self.kind(self.n - 1, args, kwargs)
        nth = self.seen[self.current] = self.seen.get(self.current, 0) + 1
        if not self.bench.tiny:
            torch.cuda.reset_peak_memory_stats()
        if self.wanted.get(self.current) == nth:
            activities = [torch.profiler.ProfilerActivity.CPU]
            if not self.bench.tiny:
                activities.append(torch.profiler.ProfilerActivity.CUDA)
            self.profiler = torch.profiler.profile(activities=activities, record_shapes=True)
            self.profiler.__enter__()
        self.bench.sync()
        self.begun = time.perf_counter()
        if "replace_position" in kwargs and kwargs["replace_position"] is not None:
            kwargs["replace_position"] = kwargs["replace_position"][:1]
        return self.model(*args, **kwargs)


def kernel_times(profiler):
    """Kernels, copies and fills of a profile by name: how many, and their ms."""
    times = {}
    for event in profiler.events():
        if event.device_type != torch.autograd.DeviceType.CUDA or event.is_user_annotation:
            continue
        if "Torch-Compiled" in event.name or "CompiledFxGraph" in event.name:
            continue
        n, ms = times.get(event.name, (0, 0.0))
        times[event.name] = n + 1, ms + event.time_range.elapsed_us() / 1e3
    return times


def parts(times):
    """Products, attention and the rest in ms."""
    ms = [0.0, 0.0, 0.0]
    for name, (_, duration) in times.items():
        lower = name.lower()
        if any(w in lower for w in ATTENTION):
            ms[1] += duration
        elif any(w.lower() in lower for w in PRODUCTS):
            ms[0] += duration
        else:
            ms[2] += duration
    return ms


def record_profile(bench, what, profiler):
    times = kernel_times(profiler)
    for event in profiler.key_averages(group_by_input_shape=True):
        ms = event.self_device_time_total / 1e3
        if ms > 0 and event.device_type == torch.autograd.DeviceType.CPU:
            bench.ops.writerow([*what, event.key, event.input_shapes, event.count, f"{ms:.4f}"])
    for name, (n, ms) in times.items():
        bench.ops.writerow([*what, "kernel", name[:120], n, f"{ms:.4f}"])
    ms = parts(times)
    return [f"{m:.3f}" for m in (sum(ms), *ms)], sum(n for n, _ in times.values())


def record(bench, proxy, what):
    for kind in proxy.seen:
        walls, numbers, launches = proxy.walls.get(kind, []), ["", "", "", ""], ""
        walls = walls[1:] if len(walls) > 1 else walls
        if kind in proxy.profiles and not bench.tiny:
            numbers, launches = record_profile(bench, [*what, kind], proxy.profiles[kind])
        spread = [f"{f(walls):.3f}" for f in (statistics.median, min, max)] if walls else [""] * 3
        bench.steps.writerow([*what, kind, len(walls), *spread, *numbers, launches,
                              *(f"{m:.3f}" for m in proxy.memory[kind])])
    for file in bench.files:
        file.flush()
    print(*what, {k: round(statistics.median(w[1:] or w), 2) for k, w in proxy.walls.items()},
          flush=True)


class RowsOfABatch:
    """torch, but for the number of rows that `full` makes."""

    def __init__(self, batch):
        self.batch = batch

    def __getattr__(self, name):
        return getattr(torch, name)

    def full(self, size, *args, **kwargs):
        return torch.full((self.batch, *size[1:]), *args, **kwargs)


def run(bench, what, proxy, loop):
    """Whether it ran; out of memory is an answer."""
    bench.clear()
    try:
        with contextlib.suppress(Enough), torch.no_grad():
            loop(proxy)
        proxy.end()
        record(bench, proxy, what)
        return True
    except torch.cuda.OutOfMemoryError as error:
        print(*what, "out of memory:", str(error).split(".")[0], flush=True)
        return False


def prompts(bench, batch, length):
    one = torch.randint(0, bench.shape["vocab_size"] - 4, (1, length), device=bench.device)
    return one.expand(batch, -1).contiguous()


def mask_id(bench):
    return 126336 if not bench.tiny else bench.shape["vocab_size"] - 1


def fast_dllm(bench, folder, only):
    root = os.path.join(folder, "llada")
    package("model", os.path.join(root, "model"))
    configuration = load("model.configuration_llada",
                         os.path.join(root, "model", "configuration_llada.py"))
    modeling = load("model.modeling_llada", os.path.join(root, "model", "modeling_llada.py"))
    generate = load("fast_dllm_generate", os.path.join(root, "generate.py"))
    model = bench.model(modeling, configuration)
    layers = bench.shape["n_layers"]

    def dual_kind(_, args, kwargs):
        return "reuse" if kwargs.get("replace_position") is not None else "refresh"

    def prefix_kind(_, args, kwargs):
        return f"reuse width {args[0].shape[1]}" if kwargs.get("past_key_values") else "refresh"

    loops = {"fast-dllm": (generate.generate_with_dual_cache, dual_kind, 8),
             "fast-dllm-prefix": (generate.generate_with_prefix_cache, prefix_kind, 4),
             "vanilla": (generate.generate, lambda *_: "full", 1)}

    def go(name, batch, prompt=256, output=256, n_layers=layers, calls=None, profile=True,
           say=True):
        function, kind, a_block = loops[name]
        bench.truncate(model, n_layers)
        generate.torch = RowsOfABatch(batch)
        blocks = output // 32
        wanted = {"refresh": 2, "reuse": 5, "full": 4, "reuse width 256": 2, "reuse width 128": 2,
                  "reuse width 32": 2} if profile else {}
        proxy = Proxy(bench, model, kind, wanted, calls)

        def loop(p):
            function(p, prompts(bench, batch, prompt), steps=a_block * blocks, gen_length=output,
                     block_length=32, temperature=0.0, mask_id=mask_id(bench))

        return run(bench, [name, n_layers, batch, prompt, output], proxy, loop)

    if bench.tiny:
        for name in loops:
            go(name, 2)
        return
    if only == "early":
        go("fast-dllm", 1, calls=12, profile=False)  # compiles, loads kernels
        for n in (layers, layers // 2, layers // 4):
            for name, calls in (("fast-dllm", None), ("fast-dllm-prefix", None), ("vanilla", 8)):
                go(name, 1, n_layers=n, calls=calls)
        for batch in (4, 8, 16, 32, 64):
            go("fast-dllm", batch, calls=33)
        for batch in (4, 16):
            go("fast-dllm-prefix", batch)
        go("vanilla", 4, calls=8)
        for batch in (72, 80, 84, 88, 92, 96, 104):
            what = ["fast-dllm", layers, batch, 256, 256]
            fits = go("fast-dllm", batch, calls=11, profile=False)
            bench.batches.writerow([what[0], batch, 256, 256, fits,
                                    *(f"{p:.3f}" for p in bench.peak())])
            if not fits:
                break
    if only == "held-out":
        go("fast-dllm", 1, calls=12, profile=False)
        for batch in (16, 32):
            go("fast-dllm", batch, prompt=512, calls=33)
        go("fast-dllm-prefix", 8)
        go("vanilla", 8, calls=8)


def dllm_cache(bench, folder):
    package("dllm_cache", os.path.join(folder, "dllm_cache"))
    package("dllm_cache.cache", os.path.join(folder, "dllm_cache", "cache"))
    cache = load("dllm_cache.cache.Cache", os.path.join(folder, "dllm_cache", "cache", "Cache.py"))
    sys.modules["dllm_cache.cache"].dLLMCache = cache.dLLMCache
    hooks = load("dllm_cache_hooks",
                 os.path.join(folder, "dllm_cache", "hooks", "cache_hook_LLaDA.py"))
    loop_file = load("dllm_cache_generate",
                     os.path.join(folder, "utils", "generate_function.py"))
    package("mmada_models", os.path.join(folder, "mmada_models"))
    configuration = load("mmada_models.configuration_llada",
                         os.path.join(folder, "mmada_models", "configuration_llada.py"))
    modeling = load("mmada_models.modeling_llada",
                    os.path.join(folder, "mmada_models", "modeling_llada.py"))
    model = bench.model(modeling, configuration)
    layers = bench.shape["n_layers"]
    hooks.register_cache_LLaDA(model, "model.transformer.blocks")
    for block in bench.all_blocks:  # this copy of the model passes one argument more than LLaDA's
        block.forward = (lambda hooked: lambda *a, block_mask=None, **k: hooked(*a, **k))(
            block.forward)

    def kind(n, args, kwargs):
        return {(True, True): "both refreshed", (False, True): "prompt refreshed",
                (True, False): "output refreshed", (False, False): "reuse"}[
                    (n % 7 == 0, n % 100 == 0)]

    def go(batch, n_layers=layers, calls=104, prompt=256, output=256):
        bench.truncate(model, n_layers)
        profile = {"both refreshed": 1, "prompt refreshed": 1, "output refreshed": 3, "reuse": 20}
        ids = prompts(bench, batch, prompt)
        ones = torch.ones(batch, prompt + output, device=bench.device)
        # Steps that come once are warmed up, then timed, then profiled.
        for wanted, n in (({}, 3), ({}, calls), (profile, calls)):
            cache.dLLMCache.new_instance(prompt_interval_steps=100, gen_interval_steps=7,
                                         transfer_ratio=0.25)
            proxy = Proxy(bench, model, kind, wanted, n)
            what = ["dllm-cache" if n > 3 else "dllm-cache warming", n_layers, batch, prompt, output]
            run(bench, what, proxy,
                lambda p: loop_file.generate(ids, ones, p, steps=output, gen_length=output,
                                             block_length=32, mask_id=mask_id(bench)))

    if bench.tiny:
        return go(2)
    for n in (layers, layers // 2, layers // 4):
        go(1, n_layers=n)
    for batch in (4, 16):
        go(batch)


def sparse_dllm(bench, folder):
    root = os.path.join(folder, "opencompass", "models", "sparse_dllm")
    package("sparse_dllm", root)
    configuration = load("sparse_dllm.configuration_llada",
                         os.path.join(root, "configuration_llada.py"))
    modeling = load("sparse_dllm.modeling_llada", os.path.join(root, "modeling_llada.py"))
    loop_file = load("sparse_dllm.llada_generate", os.path.join(root, "llada_generate.py"))
    model = bench.model(modeling, configuration)
    layers = bench.shape["n_layers"]
    for config in (model.config, model.model.config):
        config.block_len, config.kernel_size, config.keep_ratio = 32, 3, 0.5

    def kind(_, args, kwargs):
        return ("full", "full and select", "reuse")[args[2]]

    def go(n_layers=layers, prompt=256, output=256):
        bench.truncate(model, n_layers)
        proxy = Proxy(bench, model, kind, {"full": 3, "full and select": 3, "reuse": 10})
        run(bench, ["sparse-dllm", n_layers, 1, prompt, output], proxy,
            lambda p: loop_file.generate(p, prompts(bench, 1, prompt), steps=output // 4,
                                         gen_length=output, block_length=32,
                                         mask_id=mask_id(bench)))

    go()
    if not bench.tiny:
        for n in (layers // 2, layers // 4):
            go(n)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--fast-dllm")
    parser.add_argument("--dllm-cache")
    parser.add_argument("--sparse-dllm")
    parser.add_argument("--only", default="early", choices=["early", "held-out"],
                        help="of Fast-dLLM: the shapes of every table, or those kept apart")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    stand_in_for_transformers()
    bench = Bench(args.out, args.tiny)
    if not args.tiny:
        print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    if args.fast_dllm:
        fast_dllm(bench, args.fast_dllm, args.only)
        bench.clear()
    if args.sparse_dllm:
        sparse_dllm(bench, args.sparse_dllm)
        bench.clear()
    if args.dllm_cache:
        dllm_cache(bench, args.dllm_cache)


if __name__ == "__main__":
    main()
