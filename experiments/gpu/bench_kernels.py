"""Times the kernels against what PyTorch runs for the same work, in one process.

    python3 bench_kernels.py LIBRARY OUT.csv [PIECE...]

Every number is a ratio to a peer, to a plain device copy or to a bare GEMM measured in the same
run. Kernels run from CUDA graphs that walk through sets of random buffers larger together than
three times the L2 cache; ours and the peers' take turns for ROUNDS rounds; medians are printed.
"""
import csv
import ctypes as c
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import calls

ROUNDS = 7
COLD_BYTES = 3 * 64 * 2**20
torch.manual_seed(int.from_bytes(open("/dev/urandom", "rb").read(4), "little"))
P, I, L, D = c.c_void_p, c.c_int32, c.c_int64, c.c_double


lib = c.CDLL(sys.argv[1])
lib.head_scratch_bytes.restype = L
lib.block_attention_scratch_bytes.restype = L
head_handle = P()
SMS = torch.cuda.get_device_properties(0).multi_processor_count


def rand(*shape, scale=1.0):
    return (torch.randn(*shape, device="cuda", dtype=torch.float32) * scale).to(torch.bfloat16) \
        if torch.Size(shape).numel() < 2**28 else torch.randn(*shape, device="cuda",
                                                              dtype=torch.bfloat16).mul_(scale)


def ints(values, dtype=torch.int32):
    return torch.tensor(values, device="cuda", dtype=dtype)


def launch(name, make, *leading, **tensors):
    """A closure that launches a kernel; it keeps the tensors alive."""
    values = {k: (v.data_ptr() if isinstance(v, torch.Tensor) else v) for k, v in tensors.items()}
    call = make(**values)
    function = getattr(lib, name)

    def run(_keep=tensors):
        status = function(*leading, c.byref(call), P(torch.cuda.current_stream().cuda_stream))
        if status != 0:
            raise RuntimeError(f"{name}: CUDA error {status}")
    return run


def graph_of(runs, budget_us=4000):
    """A graph of a whole number of walks through the sets, and the launches it holds."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for run in runs[:2]:
            run()
        stream.synchronize()
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for run in runs:
            run()
        b.record()
        stream.synchronize()
        each = max(1.0, a.elapsed_time(b) * 1000 / len(runs))
    walks = max(1, min(int(budget_us / each / len(runs)), 400 // len(runs) + 1))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(walks):
            for run in runs:
                run()
    return graph, walks * len(runs)


def time_all(candidates, eager=()):
    """Median microseconds of each candidate, in interleaved rounds."""
    graphs = {}
    for name, runs in candidates.items():
        if name in eager:
            def loop(runs=runs):
                for run in runs:
                    run()
            loop()
            graphs[name] = (loop, len(runs))
        else:
            graph, n = graph_of(runs)
            graphs[name] = (graph.replay, n)
    samples = {name: [] for name in candidates}
    for r in range(ROUNDS + 1):
        for name, (play, n) in graphs.items():
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            play()
            b.record()
            torch.cuda.synchronize()
            if r > 0:
                samples[name].append(a.elapsed_time(b) * 1000 / n)
    return {name: statistics.median(s) for name, s in samples.items()}


rows = []
copy_gbs = gemm_tflops = 0.0


def report(piece, shape, us, n_bytes=0.0, flops=0.0, note=""):
    ours = us["ours"]
    peers = {k: v for k, v in us.items() if k != "ours"}
    gbs, tflops = n_bytes / ours / 1e3, flops / ours / 1e6
    rows.append([piece, shape, f"{ours:.2f}", f"{gbs:.0f}", f"{gbs / copy_gbs:.3f}",
                 f"{tflops:.1f}", f"{tflops / gemm_tflops:.3f}", note] +
                [f"{k}={v:.2f}us:{v / ours:.3f}x" for k, v in peers.items()])
    text = " ".join(f"{k} {v / ours:.2f}x" for k, v in peers.items())
    print(f"{piece:8s} {shape:26s} {ours:9.1f}us {100 * gbs / copy_gbs:5.1f}%copy "
          f"{tflops:6.1f}TF  {text} {note}", flush=True)


def sets_for(n_bytes):
    return max(1, min(64, int(COLD_BYTES / n_bytes) + 1))


def bench_ceilings():
    global copy_gbs, gemm_tflops
    x, y = rand(2**29), rand(2**29)
    # Not from a graph: there the copy is a memcpy node, which reaches two thirds of this rate.
    us = time_all({"copy": [lambda: y.copy_(x)] * 4}, eager=("copy",))["copy"]
    copy_gbs = 2 * x.numel() * 2 / us / 1e3
    a, b = rand(8192, 8192), rand(8192, 8192)
    us = time_all({"gemm": [lambda: torch.mm(a, b)]})["gemm"]
    gemm_tflops = 2 * 8192**3 / us / 1e6
    rows.append(["ceiling", "copy 1 GiB", "", f"{copy_gbs:.0f}"])
    rows.append(["ceiling", "gemm 8192^3", "", "", "", f"{gemm_tflops:.1f}"])
    print(f"copy {copy_gbs:.0f} GB/s, gemm 8192^3 {gemm_tflops:.0f} TFLOP/s", flush=True)


def bench_norm():
    for tokens in (32, 512, 2048, 16384):
        n = tokens * 4096
        for residual in (True, False):
            n_bytes = (4 if residual else 2) * n * 2
            ours, copies = [], []
            for _ in range(sets_for(n_bytes)):
                x, w, r, y = rand(tokens, 4096), rand(4096), rand(tokens, 4096), rand(tokens, 4096)
                ours.append(launch("kernel_norm", calls.Norm, x=x, weight=w,
                                   residual=r if residual else None, y=y, n_rows=tokens,
                                   n_channels=4096, epsilon=1e-5))
                to, src = (torch.empty(n_bytes // 4, device="cuda", dtype=torch.bfloat16)
                           for _ in "ab")
                src.normal_()
                copies.append(lambda to=to, src=src: to.copy_(src))
            report("norm", f"T{tokens}" + (" +residual" if residual else ""),
                   time_all({"ours": ours, "copy of the bytes": copies}), n_bytes)


def bench_rope():
    for tokens, heads, kv, extra in ((32, 32, 32, 0), (2048, 32, 32, 0), (16384, 32, 32, 0),
                                     (16384, 28, 4, 1), (16384, 32, 8, 2)):
        width = (heads + 2 * kv) * 128
        n_bytes = 2 * tokens * width * 2
        ours, copies = [], []
        table = torch.randn(tokens, 128, device="cuda")
        where = torch.arange(tokens, device="cuda", dtype=torch.int32)
        for _ in range(sets_for(n_bytes)):
            qkv = rand(tokens, width)
            q, k, v = rand(tokens, heads, 128), rand(tokens, kv, 128), rand(tokens, kv, 128)
            w, bias = rand(128), rand(width)
            ours.append(launch("kernel_rope", calls.Rope, qkv=qkv, bias=bias if extra == 1 else None,
                               q_norm=w if extra == 2 else None, k_norm=w if extra == 2 else None,
                               cos_sin=table, positions=where, q=q, k=k, v=v, q_stride=heads * 128,
                               kv_stride=kv * 128, n_tokens=tokens, n_heads=heads, n_kv_heads=kv,
                               head_size=128, epsilon=1e-6))
            to = torch.empty_like(qkv)
            copies.append(lambda to=to, src=qkv: to.copy_(src))
        report("rope", f"T{tokens} H{heads}/{kv}" + ("", " bias", " qknorm")[extra],
               time_all({"ours": ours, "copy of the bytes": copies}), n_bytes)


def bench_swiglu():
    for tokens in (32, 2048, 16384):
        n_bytes = 3 * tokens * 12288 * 2
        ours, copies = [], []
        for _ in range(sets_for(n_bytes)):
            x, y = rand(tokens, 2 * 12288), rand(tokens, 12288)
            ours.append(launch("kernel_swiglu", calls.Swiglu, gate_up=x, y=y, y_stride=12288,
                               n_tokens=tokens, n_hidden=12288))
            to, src = (rand(tokens, 12288 * 3 // 2) for _ in "ab")
            copies.append(lambda to=to, src=src: to.copy_(src))
        report("swiglu", f"T{tokens} F12288",
               time_all({"ours": ours, "copy of the bytes": copies}), n_bytes)


def bench_embed():
    table = rand(126464, 4096)
    for tokens in (32, 16384):
        n_bytes = 2 * tokens * 4096 * 2
        ours, copies = [], []
        for _ in range(sets_for(n_bytes)):
            ids = torch.randint(0, 126464, (tokens,), device="cuda", dtype=torch.int32)
            y, to, src = (rand(tokens, 4096) for _ in "abc")
            ours.append(launch("kernel_embed", calls.Embed, table=table, ids=ids, y=y, n_tokens=tokens,
                               n_channels=4096, n_vocab=126464))
            copies.append(lambda to=to, src=src: to.copy_(src))
        report("embed", f"T{tokens}", time_all({"ours": ours, "copy of the bytes": copies}),
               n_bytes)


def bench_add():
    for tokens in (32, 2048, 16384):
        n = tokens * 4096
        ours, peer = [], []
        for _ in range(sets_for(3 * n * 2)):
            a, b, y = rand(n), rand(n), rand(n)
            ours.append(launch("kernel_add", calls.Add, a=a, b=b, y=y, n=n))
            peer.append(lambda a=a, b=b, y=y: torch.add(a, b, out=y))
        report("add", f"T{tokens} C4096", time_all({"ours": ours, "torch.add": peer}), 3 * n * 2)


def bench_keep():
    for b, tokens, kv in ((1, 32, 32), (16, 512, 32), (16, 512, 4)):
        n = b * tokens
        n_bytes = 4 * n * kv * 128 * 2
        ours, copies = [], []
        for _ in range(sets_for(n_bytes)):
            k, v = rand(n, kv, 128), rand(n, kv, 128)
            ours.append(launch("kernel_keep", calls.Keep, k=k, v=v,
                               start=ints([i * tokens for i in range(b + 1)]),
                               owner=ints([i // tokens for i in range(n)]),
                               kv_rows=ints([i % tokens for i in range(n)]), kept=ints([tokens] * b),
                               cache_start=ints([2 * i * tokens * kv * 128 for i in range(b)],
                                                torch.int64),
                               cache=torch.empty(2 * n * kv * 128, device="cuda",
                                                 dtype=torch.bfloat16),
                               kv_stride=kv * 128, n_requests=b, n_tokens=n, n_kv_heads=kv,
                               head_size=128))
            to, src = (torch.empty(2 * n * kv * 128, device="cuda", dtype=torch.bfloat16)
                       for _ in "ab")
            src.normal_()
            copies.append(lambda to=to, src=src: to.copy_(src))
        report("keep", f"B{b} T{tokens} H{kv}",
               time_all({"ours": ours, "copy of the bytes": copies}), n_bytes)


def sdpa(backend, q, k, v, gqa=False):
    def run():
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, k, v, enable_gqa=gqa)
    return run


def bench_block():
    scratch_bytes = lib.block_attention_scratch_bytes(SMS)
    shapes = [(16, [512] * 16, 32, 32), (64, [512] * 64, 32, 32), (64, [2048] * 64, 32, 32),
              (128, [1024] * 128, 32, 32), (16, [8192] * 16, 32, 32), (1, [2048], 32, 32),
              (1, [8192], 32, 32), (64, [2048] * 64, 32, 8), (64, [2048] * 64, 28, 4),
              (64, [128 * (1 + i % 32) for i in range(64)], 32, 32)]
    for b, kept, heads, kv in shapes:
        queries = 32
        n_bytes = 2 * (sum(kept) + b * queries) * kv * 128 * 2 + 2 * b * queries * heads * 128 * 2
        flops = 4 * heads * 128 * sum(queries * (n + queries) for n in kept)
        n_sets = sets_for(n_bytes)
        ours, flash, cudnn = [], [], []
        starts = ints([i * queries for i in range(b + 1)])
        offsets = [0]
        for n in kept:
            offsets.append(offsets[-1] + 2 * n * kv * 128)
        scratch = torch.zeros(scratch_bytes, device="cuda", dtype=torch.uint8)
        even = len(set(kept)) == 1
        for _ in range(n_sets):
            q, k, v = rand(b * queries, heads, 128), rand(b * queries, kv, 128), rand(b * queries, kv, 128)
            cache, y = rand(offsets[-1]), torch.empty_like(q)
            ours.append(launch("kernel_block_attention", calls.BlockAttention, q=q, k=k, v=v, cache=cache, y=y, start=starts, kept=ints(kept),
                               cache_start=ints(offsets[:-1], torch.int64), scratch=scratch,
                               q_stride=heads * 128, kv_stride=kv * 128, y_stride=heads * 128,
                               n_requests=b, n_heads=heads, n_kv_heads=kv, head_size=128,
                               max_queries=queries))
            if even: # the peers get keys and values that are already in one piece
                pq = rand(b, heads, queries, 128)
                pk, pv = (rand(b, kv, kept[0] + queries, 128) for _ in "kv")
                flash.append(sdpa(SDPBackend.FLASH_ATTENTION, pq, pk, pv, heads != kv))
                cudnn.append(sdpa(SDPBackend.CUDNN_ATTENTION, pq, pk, pv, heads != kv))
        candidates = {"ours": ours}
        if even:
            candidates.update({"flash": flash, "cudnn": cudnn})
        shape = f"B{b} kv{kept[0] if even else '128..4096'} H{heads}/{kv}"
        report("block", shape, time_all(candidates), n_bytes, flops)
        del ours, flash, cudnn
        torch.cuda.empty_cache()


def eager_select(q, k, v, block, ratio):
    """Score, pool, choose and gather with the operations of the code released with dLLM-Serve."""
    n, kv = k.shape[0], k.shape[1]
    group = q.shape[1] // kv
    index = torch.arange(n, device="cuda")
    context = index[~torch.isin(index, torch.arange(*block, device="cuda"))]
    kc, vc = k[context], v[context]
    mean = q[block[0]:block[1]].mean(0).view(kv, group, 128)
    score = (torch.einsum("hgd,nhd->hgn", mean, kc) / 128**0.5).amax(1)
    score = F.max_pool1d(score[:, None], 3, 1, 1)[:, 0]
    keep = max(1, int(ratio * len(context)))
    top = score.topk(keep, -1).indices.sort(-1).values
    at = top[:, :, None].expand(-1, -1, 128)
    return (kc.transpose(0, 1).contiguous().gather(1, at),
            vc.transpose(0, 1).contiguous().gather(1, at))


def bench_select():
    for b, n, heads, kv in ((1, 1024, 32, 32), (8, 512, 32, 32), (8, 1024, 32, 32), (8, 4096, 32, 32),
                            (1, 8192, 32, 32), (8, 1024, 28, 4)):
        block, candidates = (n // 2, n // 2 + 32), n - 32
        keep = max(1, int(0.5 * candidates))
        n_bytes = b * (32 * heads + (candidates + 4 * keep) * kv) * 128 * 2
        ours, peer = [], []
        for _ in range(sets_for(n_bytes)):
            q, k, v = rand(b * n, heads, 128), rand(b * n, kv, 128), rand(b * n, kv, 128)
            cache = torch.empty(2 * b * kv * keep * 128, device="cuda", dtype=torch.bfloat16)
            ours.append(launch("kernel_select", calls.Select, q=q, k=k, v=v,
                               start=ints([i * n for i in range(b + 1)]),
                               block_start=ints([block[0]] * b), block_end=ints([block[1]] * b),
                               kept=ints([keep] * b),
                               cache_start=ints([2 * i * kv * keep * 128 for i in range(b)],
                                                torch.int64),
                               score_start=ints([i * candidates for i in range(b)], torch.int64),
                               cache=cache,
                               scores=torch.empty(b * kv * candidates, device="cuda"),
                               indices=torch.empty(b * kv * candidates, device="cuda", dtype=torch.int32),
                               q_stride=heads * 128, kv_stride=kv * 128, n_requests=b, n_heads=heads,
                               n_kv_heads=kv, head_size=128, max_candidates=candidates))

            def run(q=q, k=k, v=v):
                for r in range(b):
                    s = slice(r * n, (r + 1) * n)
                    eager_select(q[s], k[s], v[s], block, 0.5)
            peer.append(run)
        report("select", f"B{b} L{n} H{heads}/{kv} r.5",
               time_all({"ours": ours, "eager": peer}, eager=("eager",)), n_bytes)


def bench_features():
    """dLLM-Cache between refreshes: of the output's rows a quarter moves, and all go on. Bounds are the
    bytes that each has to move once; the peers are what the released code runs for the same."""
    hidden, heads, ratio = 4096, 32, 0.25
    for b, prompt, output in ((1, 512, 256), (8, 512, 256), (16, 512, 256), (4, 2048, 1024)):
        canvas, moved, width = prompt + output, int(ratio * output), heads * 128
        starts = lambda n: ints([i * n for i in range(b + 1)])
        row = 2 * width + 2 * hidden
        where = ints([i * canvas * row for i in range(b)], torch.int64)
        shared = dict(kept=ints([canvas] * b), cache_start=where)
        tables = dict(value_start=starts(output), compared_start=starts(output),
                      run_first=ints([prompt] * b), given=ints([0] * b), n_requests=b, max_compared=output)
        similar, cosine, picks, topk, keeps, scatters, adds, sums = ([] for _ in range(8))
        for _ in range(sets_for(b * canvas * row * 2)):
            cache, values = rand(b * canvas * row), rand(b * output, width)
            changes = torch.rand(b * output, 3, device="cuda") + 0.5
            similar.append(launch("kernel_similarity", calls.Similarity, values=values, cache=cache,
                                  sums=changes, n_kv_heads=heads, head_size=128, **tables, **shared))
            old = rand(b * output, width)

            def compare(values=values, old=old):
                near = F.cosine_similarity(values, old, dim=-1)
                old.copy_(values)
                return near
            cosine.append(compare)
            lists = [torch.empty(b * moved, device="cuda", dtype=torch.int32) for _ in range(3)]
            picks.append(launch("kernel_pick", calls.Pick, sums=changes, start=starts(moved),
                                stream_start=starts(canvas), positions=lists[0], value_rows=lists[1],
                                stream_rows=lists[2], max_queries=moved, **tables))
            near = rand(b, output)
            topk.append(lambda near=near: torch.topk(near, moved, largest=False))
            at = torch.stack([torch.randperm(output, device="cuda")[:moved].sort().values + prompt
                              for _ in range(b)])
            x, kept = rand(b * moved, hidden), rand(b, canvas, hidden)
            keeps.append(launch("kernel_keep_feature", calls.KeepFeature, x=x, cache=cache,
                                owner=ints([i // moved for i in range(b * moved)]),
                                rows=at.flatten().int(), before=2 * width, n_tokens=b * moved,
                                n_channels=hidden, **shared))
            wide = at[:, :, None].expand(-1, -1, hidden).contiguous()
            scatters.append(lambda kept=kept, wide=wide, x=x: kept.scatter_(1, wide, x.view(b, moved, hidden)))
            y = rand(b * canvas, hidden)
            adds.append(launch("kernel_add_feature", calls.AddFeature, cache=cache, y=y,
                               owner=ints([i // canvas for i in range(b * canvas)]),
                               rows=ints([i % canvas for i in range(b * canvas)]), before=2 * width,
                               n_tokens=b * canvas, n_channels=hidden, **shared))
            sums.append(lambda y=y, kept=kept: torch.add(y, kept.view(b * canvas, hidden), out=y))
        shape = f"B{b} P{prompt} O{output}"
        n = b * output * width * 2
        report("similar", shape, time_all({"ours": similar, "cosine and copy": cosine}), 3 * n)
        report("pick", shape, time_all({"ours": picks, "torch.topk": topk}), b * (output + moved) * 12)
        report("keepfeat", shape, time_all({"ours": keeps, "scatter_": scatters}), 2 * b * moved * hidden * 2)
        report("addfeat", shape, time_all({"ours": adds, "torch.add": sums}), 3 * b * canvas * hidden * 2)
        torch.cuda.empty_cache()


def bench_head():
    w = rand(126464, 4096, scale=0.02)
    scratch = torch.empty(lib.head_scratch_bytes(), device="cuda", dtype=torch.uint8)
    for n in (32, 64, 128, 256, 512, 1024, 2048, 8192):
        x = rand(n, 4096)
        out = torch.empty(n, 126464, device="cuda", dtype=torch.bfloat16)
        token = torch.empty(n, device="cuda", dtype=torch.int32)
        confidence = torch.empty(n, device="cuda")
        common = dict(x=x, w=w, token=token, confidence=confidence, scratch=scratch, n_rows=n,
                      n_channels=4096, n_vocab=126464)
        us = time_all({"tiles": [launch("kernel_head_tiles", calls.Head, head_handle, **common)],
                       "wgmma": [launch("kernel_head_wgmma", calls.Head, **common)],
                       "bare gemm": [lambda: torch.mm(x, w.t(), out=out)]})
        for path in ("tiles", "wgmma"):
            report("head", f"{path} N{n} V126464 C4096",
                   {"ours": us[path], "bare gemm": us["bare gemm"]}, 126464 * 8192,
                   2.0 * n * 126464 * 4096, f"ours/gemm {us[path] / us['bare gemm']:.3f}")
        del out


def bench_sample():
    for n in (32, 256, 2048):
        n_bytes = n * 126464 * 2
        ours, peer = [], []
        for _ in range(sets_for(n_bytes)):
            logits = rand(n, 126464, scale=3)
            ours.append(launch("kernel_sample", calls.Sample, logits=logits,
                               token=torch.empty(n, device="cuda", dtype=torch.int32),
                               confidence=torch.empty(n, device="cuda"), n_rows=n, n_vocab=126464))
            peer.append(lambda logits=logits: torch.softmax(logits, -1).max(-1))
        report("sample", f"N{n} V126464", time_all({"ours": ours, "softmax and max": peer}), n_bytes)


def bench_linear():
    """Products through the device's table, whose plans are timed when a shape is first met."""
    pointers = (P * (2 + len(calls.DEVICE))).in_dll(lib, "unmask_device_cuda")
    table = {name: c.CFUNCTYPE(I)(pointers[2 + i]) for i, name in enumerate(calls.DEVICE)}
    text, device, events = c.create_string_buffer(256), P(), [P(), P()]
    if table["open"](0, 0, c.byref(device), text) != 0:
        raise RuntimeError(text.value.decode())
    for event in events:
        table["event_open"](device, c.byref(event))

    def captured(products):
        graph, ns = P(), D()
        for call in products: # first where it can be timed
            table["linear"](device, c.byref(call))
        if table["capture_begin"](device) != 0:
            raise RuntimeError("capture_begin")
        for call in products:
            table["linear"](device, c.byref(call))
        if table["capture_end"](device, c.byref(graph)) != 0:
            raise RuntimeError("capture_end")

        def play():
            table["event_record"](device, events[0])
            table["graph_launch"](device, graph)
            table["event_record"](device, events[1])
            if table["event_wait"](device, events[1]) != 0:
                raise RuntimeError("event_wait")
            table["event_elapsed"](device, events[0], events[1], c.byref(ns))
            return ns.value / 1000
        return play

    for n_out, n_in, adds in ((12288, 4096, False), (4096, 4096, True), (24576, 4096, False),
                              (4096, 12288, True)):
        n_sets = sets_for(2 * n_out * n_in) + 1
        weights = [rand(n_out, n_in, scale=0.02) for _ in range(n_sets)]
        for tokens in (1, 32, 64, 200, 512, 1024, 2048, 8192):
            x, y = rand(tokens, n_in), rand(tokens, n_out)
            torch.cuda.synchronize()
            walks = max(1, min(50, int(1e11 / tokens / n_out / n_in / n_sets)))
            products = [calls.Linear(x=x.data_ptr(), w=w.data_ptr(), add=y.data_ptr() if adds else None,
                            y=y.data_ptr(), x_stride=n_in, y_stride=n_out, n_tokens=tokens,
                            n_outputs=n_out, n_inputs=n_in) for w in weights] * walks
            play = captured(products)
            peer = [lambda w=w: torch.addmm(y, x, w.t(), out=y) if adds
                    else torch.mm(x, w.t(), out=y) for w in weights]
            graph, n = graph_of(peer)
            samples = {"ours": [], "torch": []}
            for r in range(ROUNDS + 1):
                ours = play() / len(products)
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record()
                graph.replay()
                b.record()
                torch.cuda.synchronize()
                if r > 0:
                    samples["ours"].append(ours)
                    samples["torch"].append(a.elapsed_time(b) * 1000 / n)
            us = {name: statistics.median(s) for name, s in samples.items()}
            n_bytes = 2 * (n_out * n_in + tokens * (n_in + n_out * (2 if adds else 1)))
            report("linear", f"T{tokens} N{n_out} K{n_in}" + (" +y" if adds else ""), us, n_bytes,
                   2.0 * tokens * n_out * n_in)
    table["close"](device)


def varlen(q, k, v, starts, longest):
    """SDPA's flash kernel for requests of unequal lengths, where PyTorch has it."""
    from torch.nn.attention.varlen import varlen_attn
    return lambda: varlen_attn(q, k, v, starts, starts, longest, longest)


def bench_dense():
    for lengths, heads, kv in (([512] * 16, 32, 32), ([1024] * 8, 32, 32), ([2048] * 4, 32, 32),
                               ([4096] * 2, 32, 32), ([8192], 32, 32), ([2048] * 4, 28, 4),
                               ([418, 505, 934, 1455, 465, 368], 32, 32),
                               ([2754, 1455, 889, 860, 465, 368], 32, 32),
                               ([368, 465, 860, 889, 1455, 2754], 32, 32), ([2754, 368], 32, 32)):
        b, n, total = len(lengths), max(lengths), sum(lengths)
        q, k, v = rand(total, heads, 128), rand(total, kv, 128), rand(total, kv, 128)
        starts = ints([sum(lengths[:i]) for i in range(b + 1)])
        flops = 4.0 * sum(length * length for length in lengths) * heads * 128
        both = {}
        for name in ("kernel_dense_attention_mma", "kernel_dense_attention_wgmma"):
            run = launch(name, calls.DenseAttention, q=q, k=k, v=v, y=torch.empty_like(q), start=starts,
                         q_stride=heads * 128, kv_stride=kv * 128, y_stride=heads * 128,
                         n_requests=b, n_tokens=total, n_heads=heads, n_kv_heads=kv, head_size=128,
                         max_tokens=n)
            try:
                run()
                both[name.rsplit("_", 1)[1]] = run
            except RuntimeError as error:
                print(error)
        torch.cuda.synchronize()
        candidates = {name: [run] for name, run in both.items()}
        peers = {}
        if min(lengths) == n:
            pq, pk, pv = (t.view(b, n, -1, 128).transpose(1, 2) for t in (q, k, v))
            peers["flash"] = sdpa(SDPBackend.FLASH_ATTENTION, pq, pk, pv, heads != kv)
            peers["cudnn"] = sdpa(SDPBackend.CUDNN_ATTENTION, pq, pk, pv, heads != kv)
        else:
            try:
                run = varlen(q, k, v, starts, n)
                run()
                peers["varlen"] = run
            except Exception as error:
                print(f"varlen: {error!r}")
        us = time_all({**candidates, **{name: [run] for name, run in peers.items()}})
        shape = f"B{b} L{n}" if min(lengths) == n else "L" + "+".join(map(str, lengths))
        for name in both:
            report("dense", f"{name} {shape} H{heads}/{kv}",
                   {"ours": us[name], **{peer: us[peer] for peer in peers}}, 0, flops)


def by_size(kind, size, ours, q, k, v, n_bytes, flops):
    """Ours beside those of SDPA's kernels that take the size; q, k, v: lists of [B, H, T, D]."""
    candidates = {"ours": ours}
    gqa = q[0].shape[1] != k[0].shape[1]
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        runs = [sdpa(backend, *of, gqa) for of in zip(q, k, v)]
        try:
            runs[0]()
            candidates[name] = runs
        except RuntimeError as error:
            print(f"{name} has no heads of {size}: {str(error).splitlines()[0]}")
    b, heads, queries, _ = q[0].shape
    shape = f"{kind} D{size} B{b} q{queries} kv{k[0].shape[2]} H{heads}/{k[0].shape[1]}"
    report("heads", shape, time_all(candidates), n_bytes, flops)


def bench_heads():
    """Attention in its three kinds by the size of a head, of calls that arithmetic and that memory bounds."""
    heads, kv, page_rows = 32, 8, 64
    scratch = torch.zeros(lib.block_attention_scratch_bytes(SMS), device="cuda", dtype=torch.uint8)
    for size in (64, 96, 128, 256):
        strides = dict(q_stride=heads * size, kv_stride=kv * size, y_stride=heads * size, n_heads=heads,
                       n_kv_heads=kv, head_size=size)
        b, n = 8, 1024
        q, k, v = rand(b * n, heads, size), rand(b * n, kv, size), rand(b * n, kv, size)
        run = launch("kernel_dense_attention", calls.DenseAttention, q=q, k=k, v=v, y=torch.empty_like(q),
                     start=ints([i * n for i in range(b + 1)]), n_requests=b, n_tokens=b * n, max_tokens=n, **strides)
        by_size("dense", size, [run], *([t.view(b, n, -1, size).transpose(1, 2)] for t in (q, k, v)),
                2 * b * n * (2 * heads + 2 * kv) * size, 4.0 * b * n * n * heads * size)
        for b, queries, rows in ((64, 32, 2048), (64, 1, 2048), (16, 512, 2048)):
            n_bytes = 2 * (2 * b * (rows + queries) * kv + 2 * b * queries * heads) * size
            flops = 4.0 * b * queries * (rows + queries) * heads * size
            block, paged, peers = [], [], ([], [], [])
            starts = ints([i * queries for i in range(b + 1)])
            n_pages = (rows + queries + page_rows - 1) // page_rows
            pages = torch.randperm(b * n_pages, device="cuda").int()
            common = dict(start=starts, scratch=scratch, n_requests=b, max_queries=queries, **strides)
            for _ in range(sets_for(n_bytes)):
                q = rand(b * queries, heads, size)
                k, v = rand(b * n_pages * page_rows, kv, size), rand(b * n_pages * page_rows, kv, size)
                cache, y = rand(2 * b * rows * kv * size), torch.empty_like(q)
                block.append(launch("kernel_block_attention", calls.BlockAttention, q=q, k=k, v=v, cache=cache, y=y,
                                    kept=ints([rows] * b),
                                    cache_start=ints([2 * i * rows * kv * size for i in range(b)], torch.int64), **common))
                paged.append(launch("kernel_paged_attention", calls.PagedAttention, q=q, k=k, v=v, y=y, pages=pages,
                                    extent=ints([rows + queries] * (b * queries)), n_tokens=b * queries,
                                    max_pages=n_pages, page_rows=page_rows, max_extent=rows + queries, **common))
                for to, t in zip(peers, (q.view(b, queries, heads, size).transpose(1, 2).contiguous(),
                                         rand(b, kv, rows + queries, size), rand(b, kv, rows + queries, size))):
                    to.append(t)
            by_size("block", size, block, *peers, n_bytes, flops)
            by_size("paged", size, paged, *peers, n_bytes, flops)
            del block, paged, peers
            torch.cuda.empty_cache()


def rows_asked(default):
    """The numbers of `rows=32,512` among the arguments, of benches that take it."""
    return next(([int(n) for n in argument[5:].split(",")] for argument in sys.argv[3:] if argument.startswith("rows=")), default)


def main(pieces):
    """Runs the bench_ functions that sys.argv names, else those of pieces, a dictionary."""
    status = lib.head_open(c.byref(head_handle))
    if status != 0:
        raise RuntimeError(f"head_open: CUDA error {status}")
    bench_ceilings()
    for piece in [argument for argument in sys.argv[3:] if not argument.startswith("rows=")] or pieces:
        try:
            pieces[piece]()
        except Exception as error: # one piece's failure must not cost the others' numbers
            print(f"{piece}: {error!r}", flush=True)
        torch.cuda.empty_cache()
    print("at the end: ", end="")
    bench_ceilings()
    with open(sys.argv[2], "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["piece", "shape", "us", "GB/s", "share of copy", "TFLOP/s", "share of gemm",
                      "note", "peers: name=us:ratio"])
        out.writerows(rows)


if __name__ == "__main__":
    main({"norm": bench_norm, "rope": bench_rope, "swiglu": bench_swiglu, "embed": bench_embed,
          "add": bench_add, "keep": bench_keep, "block": bench_block, "select": bench_select, "features": bench_features,
          "sample": bench_sample, "head": bench_head, "linear": bench_linear,
          "dense": bench_dense, "heads": bench_heads})
