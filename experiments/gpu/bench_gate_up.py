"""Checks the fused gate-up product and the plain product on its main loop, then times them.

    python3 bench_gate_up.py OUT.csv checks|bench|all LIBRARY [LIBRARY...]

The checks compare random shapes, tails included, with a float32 reference. The bench prints ratios
of times within one run: of the fused product to torch.matmul alone and to torch.matmul followed by
kernel_swiglu; of the plain product to torch.matmul. Kernels run from CUDA graphs that walk through
LAYERS sets of weights, so that a product finds none of its own in the L2 cache; candidates take
turns in an order drawn anew for each of ROUNDS rounds; medians are printed. Several libraries are
versions of one, timed beside each other.
"""
import csv
import ctypes as c
import random
import statistics
import sys

import torch

import calls

ROUNDS = 9
LAYERS = 3
GRAPH_US = 12000
SEED = int.from_bytes(open("/dev/urandom", "rb").read(4), "little")
torch.manual_seed(SEED)
random.seed(SEED)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
P = c.c_void_p


def rand(*shape, scale=1.0):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).mul_(scale)


def launch(lib, name, make, **tensors):
    """A closure that launches a kernel; it keeps the tensors alive."""
    values = {k: (v.data_ptr() if isinstance(v, torch.Tensor) else v) for k, v in tensors.items()}
    call = make(**values)
    function = getattr(lib, name)

    def run(_keep=tensors):
        status = function(c.byref(call), P(torch.cuda.current_stream().cuda_stream))
        if status != 0:
            raise RuntimeError(f"{name}: CUDA error {status}")
    return run


def strided(rows, columns, pad, guard=0, fill=None):
    """Rows further apart than they are long, and guard rows behind them, filled with NaN."""
    base = torch.full((rows + guard, columns + pad), float("nan"), device="cuda",
                      dtype=torch.bfloat16)
    if fill is not None:
        base[:rows, :columns] = fill
    return base


def wrong(got, want, rows, columns):
    """Why a poisoned output is wrong; empty when it is right."""
    if not got[rows:].isnan().all() or not got[:, columns:].isnan().all():
        return "wrote outside its rows and columns"
    got = got[:rows, :columns].float()
    error = ((got - want).norm(dim=1) / want.norm(dim=1).clamp_min(1e-30)).max().item()
    # One rounding to bf16 is at most 2^-8 of each element; the sums are single precision.
    bound = 2.0**-8
    largest = ((got - want).abs() - 2.0**-8 * want.abs()).max().item()
    if not error <= bound or not largest <= 1e-4 * want.square().mean().sqrt().item() + 1e-6:
        return f"relative error {error:.2e}, largest beyond rounding {largest:.2e}"
    return ""


def shapes():
    edges = [1, 2, 31, 32, 63, 64, 65, 127, 128, 129, 255, 256, 257, 383, 384, 385, 1025, 1100]
    for tokens in edges + [random.randint(1, 3000) for _ in range(14)]:
        unit = random.choice((8, 64, 64))
        yield (tokens, unit * random.randint(1, 1200 // unit), unit * random.randint(1, 2000 // unit),
               random.choice((0, 8, 64)), random.choice((0, 8, 24)))
    yield 300, 4096, 12288, 0, 0
    yield 2048, 4096, 12288, 0, 0


def check(path):
    lib = c.CDLL(path)
    n_checked = n_failed = 0

    def judge(name, shape, run, y, want, rows, columns):
        nonlocal n_checked, n_failed
        run()
        why = wrong(y, want, rows, columns)
        n_checked += 1
        if why:
            n_failed += 1
            print(f"FAILED {path} {name} {shape}: {why}", flush=True)

    for shape in shapes():
        tokens, channels, hidden, x_pad, y_pad = shape
        x = strided(tokens, channels, x_pad, fill=rand(tokens, channels))
        w = rand(2 * hidden, channels, scale=2 * channels**-0.5)
        exact = x[:, :channels].float() @ w.float().t()
        gate, up = exact[:, :hidden], exact[:, hidden:]
        y = strided(tokens, hidden, y_pad, guard=3)
        judge("gate_up", shape,
              launch(lib, "kernel_gate_up", calls.GateUp, x=x, w=w, y=y, x_stride=channels + x_pad,
                     y_stride=hidden + y_pad, n_tokens=tokens, n_channels=channels,
                     n_hidden=hidden), y, torch.nn.functional.silu(gate) * up, tokens, hidden)
        common = dict(x=x, w=w, x_stride=channels + x_pad, y_stride=hidden + y_pad,
                      n_tokens=tokens, n_outputs=hidden, n_inputs=channels)
        residual = rand(tokens, hidden)
        for name in ("plain", "add", "in place"):
            y = strided(tokens, hidden, y_pad, guard=3, fill=residual if name == "in place" else None)
            add = None if name == "plain" else y if name == "in place" else \
                strided(tokens, hidden, y_pad, fill=residual)
            want = gate if name == "plain" else gate + residual.float()
            judge("linear " + name, shape,
                  launch(lib, "kernel_linear_wgmma", calls.Linear, y=y, add=add, **common), y, want,
                  tokens, hidden)
    print(f"{path}: {n_checked} checked, {n_failed} failed", flush=True)
    return n_failed


def graph_of(runs):
    """A graph of a whole number of walks through the layers, and the launches it holds."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for run in runs:
            run()
        stream.synchronize()
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for run in runs:
            run()
        b.record()
        stream.synchronize()
        each = max(1.0, a.elapsed_time(b) * 1000 / len(runs))
    walks = max(1, min(int(GRAPH_US / each / len(runs)), 60))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(walks):
            for run in runs:
                run()
    return graph, walks * len(runs)


def time_all(candidates):
    """Median microseconds of each candidate, in interleaved rounds."""
    graphs = {name: graph_of(runs) for name, runs in candidates.items()}
    samples = {name: [] for name in candidates}
    for r in range(ROUNDS + 1):
        for name in random.sample(list(graphs), len(graphs)):
            graph, n = graphs[name]
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            graph.replay()
            b.record()
            torch.cuda.synchronize()
            if r > 0:
                samples[name].append(a.elapsed_time(b) * 1000 / n)
    return {name: statistics.median(s) for name, s in samples.items()}


def bench_gate_up(libs, rows):
    channels, hidden = 4096, 12288
    weights = [rand(2 * hidden, channels, scale=0.02) for _ in range(LAYERS)]
    for tokens in (32, 128, 256, 384, 512, 1024, 2048, 4096, 8192, 16384):
        x, y = rand(tokens, channels), torch.empty(tokens, hidden, device="cuda", dtype=torch.bfloat16)
        both = torch.empty(tokens, 2 * hidden, device="cuda", dtype=torch.bfloat16)
        separate = launch(libs[0], "kernel_swiglu", calls.Swiglu, gate_up=both, y=y, y_stride=hidden,
                          n_tokens=tokens, n_hidden=hidden)
        candidates = {"product": [], "product+swiglu": []}
        for w in weights:
            def product(w=w):
                torch.mm(x, w.t(), out=both)

            def pair(product=product):
                product()
                separate()
            candidates["product"].append(product)
            candidates["product+swiglu"].append(pair)
        for i, lib in enumerate(libs):
            candidates[f"ours{i}"] = [
                launch(lib, "kernel_gate_up", calls.GateUp, x=x, w=w, y=y, x_stride=channels,
                       y_stride=hidden, n_tokens=tokens, n_channels=channels, n_hidden=hidden)
                for w in weights]
        us = time_all(candidates)
        n_bytes = 2 * (2 * hidden * channels + tokens * (channels + hidden))
        report(rows, "gate_up", f"T{tokens} C{channels} F{hidden}", us, n_bytes,
               4.0 * tokens * hidden * channels)


def bench_linear(libs, rows):
    for outputs, channels in ((12288, 4096), (4096, 4096), (4096, 12288)):
        weights = [rand(outputs, channels, scale=0.02) for _ in range(2 * LAYERS)]
        for tokens in (32, 128, 512, 1024, 2048, 4096, 8192, 16384):
            x = rand(tokens, channels)
            y, residual = rand(tokens, outputs), rand(tokens, outputs)
            candidates = {"product": [lambda w=w: torch.mm(x, w.t(), out=y) for w in weights],
                          "addmm": [lambda w=w: torch.addmm(residual, x, w.t(), out=y)
                                    for w in weights]}
            for i, lib in enumerate(libs):
                for name, add in ((f"ours{i}", None), (f"ours{i} add", residual)):
                    candidates[name] = [
                        launch(lib, "kernel_linear_wgmma", calls.Linear, x=x, w=w, add=add, y=y,
                               x_stride=channels, y_stride=outputs, n_tokens=tokens,
                               n_outputs=outputs, n_inputs=channels) for w in weights]
            us = time_all(candidates)
            n_bytes = 2 * (outputs * channels + tokens * (channels + outputs))
            report(rows, "linear", f"T{tokens} K{channels} N{outputs}", us, n_bytes,
                   2.0 * tokens * outputs * channels)


def report(rows, piece, shape, us, n_bytes, flops):
    text = [f"{k} {v / us['product']:.3f}" for k, v in us.items() if k != "product"]
    best = min(v for k, v in us.items() if k.startswith("ours"))
    print(f"{piece:8s} {shape:22s} product {us['product']:8.1f}us {flops / us['product'] / 1e6:4.0f}TF;"
          f" best {n_bytes / best / 1e3:5.0f}GB/s {flops / best / 1e6:4.0f}TF; / product: "
          + "  ".join(text), flush=True)
    rows += [[piece, shape, name, f"{t:.2f}", f"{t / us['product']:.4f}", f"{n_bytes / t / 1e3:.0f}",
              f"{flops / t / 1e6:.1f}"] for name, t in us.items()]


def main():
    out, what, paths = sys.argv[1], sys.argv[2], sys.argv[3:]
    print(f"seed {SEED}")
    failed = sum(check(path) for path in paths) if what != "bench" else 0
    if what != "checks":
        libs, rows = [c.CDLL(path) for path in paths], []
        bench_gate_up(libs, rows)
        bench_linear(libs, rows)
        with open(out, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["piece", "shape", "version", "us", "ratio to the bare product", "GB/s",
                            "TFLOP/s"])
            table.writerows(rows)
    return 1 if failed else 0


sys.exit(main())
