"""Times products with weights in fp8 against cuBLASLt's bf16 products (torch.mm) and fp8 ones (torch._scaled_mm), for
LLaDA-8B's shapes, in one process.

    python3 bench_fp8.py LIBRARY OUT.csv [rows=32,512] [PIECE...]

As bench_kernels.py: graphs over cold weights, interleaved rounds, medians. `bytes` is the time of the weights, inputs and
outputs at the rate of a device copy, over the measured time.
"""
import ctypes as c

import torch

import bench_kernels as bench
import calls

ROWS = bench.rows_asked([32, 512, 2048, 4096])
LAYERS = 32
PRODUCTS = [("qkv", 12288, 4096), ("output", 4096, 4096), ("gate-up", 24576, 4096), ("down", 4096, 12288)]
E4M3 = torch.float8_e4m3fn


def codes(n, k):
    return torch.randn(n, k, device="cuda", dtype=torch.bfloat16).mul_(32).to(E4M3)


def scales(n, k, channels):
    shape = (n, 1) if channels else ((n + 127) // 128, (k + 127) // 128)
    return torch.rand(*shape, device="cuda") * 0.01 + 0.001


def row_bytes(k, channels):
    return (k + 4 * (1 if channels else (k + 127) // 128) + 127) // 128 * 128


def quantised(x, channels):
    rows, k = x.shape
    y = torch.empty(rows, row_bytes(k, channels), device="cuda", dtype=torch.uint8)
    run = bench.launch("kernel_quantise", calls.Quantise, x=x, y=y, x_stride=k, n_rows=rows, n_channels=k,
                       group=k if channels else 128)
    run()
    return y, run


def fp8(scale, k, channels, x_too=True):
    return calls.Fp8(w_scale=scale.data_ptr(), w_rows=1 if channels else 128, w_columns=k if channels else 128, x_too=x_too)


def launched(name, call, *after, keep=()):
    function = getattr(bench.lib, name)

    def run(_keep=keep):
        status = function(c.byref(call), *after, bench.P(torch.cuda.current_stream().cuda_stream))
        if status != 0:
            raise RuntimeError(f"{name}: CUDA error {status}")
    return run


def ours(name, rows, n, k, w, scale, channels, x, y, x_too=True, path=""):
    gated = name == "gate-up"
    numbers = {"n_channels": k, "n_hidden": n // 2} if gated else {"n_inputs": k, "n_outputs": n}
    make = calls.GateUp if gated else calls.Linear
    call = make(x=x.data_ptr(), w=w.data_ptr(), y=y.data_ptr(), x_stride=row_bytes(k, channels) if x_too else k,
                y_stride=y.shape[1], n_tokens=rows, fp8=fp8(scale, k, channels, x_too), **numbers)
    kind = "kernel_gate_up_fp8" if gated else "kernel_linear_fp8"
    return launched(kind + path, call, *([] if path else [c.c_bool(False)]), keep=(w, scale, x, y))


def ours_bf16(name, rows, n, k, w, x, y):
    gated = name == "gate-up"
    numbers = {"n_channels": k, "n_hidden": n // 2} if gated else {"n_inputs": k, "n_outputs": n}
    call = (calls.GateUp if gated else calls.Linear)(x=x.data_ptr(), w=w.data_ptr(), y=y.data_ptr(), x_stride=k,
                                                     y_stride=y.shape[1], n_tokens=rows, **numbers)
    few = rows <= 64
    kind = ("kernel_gate_up_few" if few else "kernel_gate_up") if gated else ("kernel_linear_few" if few else
                                                                             "kernel_linear_wgmma")
    return launched(kind, call, keep=(w, x, y))


def tried(make):
    """The runs that `make` gives, or none where the first of them fails."""
    try:
        runs = make()
        runs[0]()
        torch.cuda.synchronize()
        return runs
    except Exception as error:
        print(f"  left out: {str(error).splitlines()[0][:150]}", flush=True)
        return None


def scaled(x, ws, x_scale, w_scales, y, fast=False):
    return [lambda w=w, s=s: torch._scaled_mm(x, w.t(), scale_a=x_scale, scale_b=s, out_dtype=torch.bfloat16, out=y,
                                              use_fast_accum=fast) for w, s in zip(ws, w_scales)]


def candidates(name, rows, n, k):
    sets = range(max(2, min(24, int(bench.COLD_BYTES / (n * k)) + 1)))
    halves = range(max(2, min(12, int(bench.COLD_BYTES / (2 * n * k)) + 1)))
    wide, x = [bench.rand(n, k) for _ in halves], bench.rand(rows, k)
    ws = [codes(n, k) for _ in sets]
    outputs = n // 2 if name == "gate-up" else n
    y, whole = (torch.empty(rows, m, device="cuda", dtype=torch.bfloat16) for m in (outputs, n))
    out = {}
    for form, channels in (("squares", False), ("channels", True)):
        rows_of_x, _ = quantised(x, channels)
        made = [scales(n, k, channels) for _ in sets]
        out[form] = [ours(name, rows, n, k, w, s, channels, rows_of_x, y) for w, s in zip(ws, made)]
    out["mm bf16"] = [lambda w=w: torch.mm(x, w.t(), out=whole) for w in wide]
    out["ours bf16"] = [ours_bf16(name, rows, n, k, w, x, y) for w in wide]
    codes_of_x = codes(rows, k)
    x_row = torch.rand(rows, 1, device="cuda") + 0.1
    out["scaled row"] = scaled(codes_of_x, ws, x_row, [scales(n, k, True).t() for _ in sets], whole)
    out["scaled fast"] = scaled(codes_of_x, ws, x_row, [scales(n, k, True).t() for _ in sets], whole, True)
    x_block = (torch.rand(k // 128, rows, device="cuda") + 0.1).t()
    out["scaled block"] = scaled(codes_of_x, ws, x_block, [scales(n, k, False).t() for _ in sets], whole)
    if rows <= 1024:
        made = [scales(n, k, False) for _ in sets]
        out["w8a16"] = [ours(name, rows, n, k, w, s, False, x, y, False) for w, s in zip(ws, made)]
    if rows <= 64:
        rows_of_x, _ = quantised(x, False)
        out["mma"] = [ours(name, rows, n, k, w, s, False, rows_of_x, y, True, "_mma") for w, s in zip(ws, made)]
    return {key: runs for key, runs in ((key, tried(lambda runs=runs: runs)) for key, runs in out.items()) if runs}


NAMES = ["squares", "channels", "scaled row", "scaled fast", "scaled block", "mm bf16", "ours bf16", "w8a16", "mma"]


def line(cells):
    print("".join(f"{cell:>13}" for cell in cells), flush=True)


def bench_products():
    line(["us", "rows"] + NAMES + ["bytes sq", "bytes ch"])
    for rows in ROWS:
        sums = {}
        for name, n, k in PRODUCTS:
            us = bench.time_all(candidates(name, rows, n, k))
            torch.cuda.empty_cache()
            n_bytes = n * k + rows * (k + 2 * (n // 2 if name == "gate-up" else n))
            shares = [f"{n_bytes / us[form] / 1e3 / bench.copy_gbs:.2f}" if form in us else "" for form in NAMES[:2]]
            line([name, rows] + [f"{us[key]:.2f}" if key in us else "" for key in NAMES] + shares)
            bench.rows.append([name, rows] + [f"{key}={value:.2f}" for key, value in us.items()])
            for key, value in us.items():
                sums.setdefault(key, []).append(value)
        whole = {key: sum(values) * LAYERS / 1000 for key, values in sums.items() if len(values) == len(PRODUCTS)}
        line(["ms, 32 layers", rows] + [f"{whole[key]:.2f}" if key in whole else "" for key in NAMES])
        if "mm bf16" in whole:
            line(["of mm bf16", rows] + [f"{whole[key] / whole['mm bf16']:.3f}" if key in whole else "" for key in NAMES])


def bench_quantise():
    for rows in ROWS:
        for k in (4096, 12288):
            x, out = bench.rand(rows, k), {}
            for form, channels in (("squares", False), ("channels", True)):
                _, run = quantised(x, channels)
                out[form] = [run]
            us = bench.time_all(out)
            floor = rows * 3 * k / bench.copy_gbs / 1e3
            print(f"quantise {rows:5d} x {k:5d}: squares {us['squares']:.2f} us, channels {us['channels']:.2f} us; "
                  f"bytes {floor:.2f}", flush=True)


def bench_head():
    vocab, k = 126464, 4096
    scratch = torch.empty(bench.lib.head_scratch_bytes(), device="cuda", dtype=torch.uint8)
    for rows in ROWS:
        x, wide, w = bench.rand(rows, k), bench.rand(vocab, k, scale=0.05), codes(vocab, k)
        token = torch.empty(rows, device="cuda", dtype=torch.int32)
        sure = torch.empty(rows, device="cuda")
        common = {"token": token.data_ptr(), "confidence": sure.data_ptr(), "scratch": scratch.data_ptr(), "n_rows": rows,
                  "n_channels": k, "n_vocab": vocab, "rounded": True}

        def of(call, *keep):
            def run(_keep=keep):
                status = bench.lib.kernel_head(bench.head_handle, c.byref(call),
                                               bench.P(torch.cuda.current_stream().cuda_stream))
                if status != 0:
                    raise RuntimeError(f"kernel_head: CUDA error {status}")
            return [run]
        out = {"bf16": of(calls.Head(x=x.data_ptr(), w=wide.data_ptr(), **common), x, wide)}
        for form, channels in (("squares", False), ("channels", True)):
            rows_of_x, _ = quantised(x, channels)
            scale = scales(vocab, k, channels)
            out[form] = of(calls.Head(x=rows_of_x.data_ptr(), w=w.data_ptr(), fp8=fp8(scale, k, channels), **common),
                           rows_of_x, w, scale)
        us = bench.time_all({key: runs for key, runs in out.items() if tried(lambda runs=runs: runs)})
        print(f"head {rows:5d}: " + ", ".join(f"{key} {value:.1f} us" for key, value in us.items()), flush=True)
        del wide, w
        torch.cuda.empty_cache()


if __name__ == "__main__":
    bench.main({"products": bench_products, "quantise": bench_quantise, "head": bench_head})
