"""Times the experts' products of a mixture in bf16 and in fp8 beside PyTorch's grouped products, in one process.

    python3 bench_experts.py LIBRARY OUT.csv [rows=32,1024] [PIECE...]

As bench_fp8.py: graphs, interleaved rounds, medians; the pieces are shapes of models and `choice`, which is routing. Each of
`rows` tokens goes to 8 experts, drawn at random. Columns: microseconds of gates, ups and activation, of the product down, and of both, by weights in bf16,
fp8 by squares of 128 x 128, by rows, by squares with inputs in bf16, and by squares without Hopper's instructions (mma).
Peers, both products alone, on inputs that were gathered and quantised outside of the time: torch._grouped_mm (bf16) and
torch._scaled_grouped_mm (fp8, scales of rows). `once` is the weights of the experts that have tokens, read once at the rate
of a device copy.
"""
import torch

import bench_kernels as bench
import calls
from bench_fp8 import codes, fp8, launched, quantised, row_bytes, tried

ROWS = bench.rows_asked([32, 256, 1024, 4096])
ACTIVE = 8
SHAPES = {"llada2-mini": (256, 2048, 512), "llada-moe": (64, 2048, 1024)} # experts, channels, hidden


def narrow(experts, n, k):
    return codes(experts * n, k).view(experts, n, k)


def scales(experts, n, k, channels):
    shape = (experts, n) if channels else (experts, (n + 127) // 128, (k + 127) // 128)
    return torch.rand(*shape, device="cuda") * 0.01 + 0.001


class Pairs:
    """Which token goes where, as kernel_moe_sort has it."""
    def __init__(self, rows, experts):
        chosen = torch.rand(rows, experts, device="cuda").topk(ACTIVE, -1).indices.view(-1)
        self.order = torch.argsort(chosen, stable=True).to(torch.int32)
        self.ends = torch.bincount(chosen, minlength=experts).cumsum(0).to(torch.int32)
        self.start = torch.cat([torch.zeros(1, device="cuda", dtype=torch.int32), self.ends])
        self.hit = int(torch.bincount(chosen, minlength=experts).gt(0).sum())


def ours(shape, rows, pairs, w1, w2, x, inner, outer, made=None, channels=False, x_too=True, path=""):
    """The two launches; made: their scales, in fp8."""
    experts, c, f = shape
    common = dict(start=pairs.start.data_ptr(), n_tokens=rows, n_active=ACTIVE, n_experts=experts, n_channels=c, n_hidden=f)
    narrow_x = made and x_too
    one = dict(fp8=fp8(made[0], c, channels, x_too)) if made else {}
    two = dict(fp8=fp8(made[1], f, channels, x_too)) if made else {}
    between = quantised(inner, channels)[0] if narrow_x else inner
    up = calls.MoeGateUp(x=x.data_ptr(), w=w1.data_ptr(), order=pairs.order.data_ptr(), y=inner.data_ptr(),
                         x_stride=row_bytes(c, channels) if narrow_x else c, **common, **one)
    down = calls.MoeDown(x=between.data_ptr(), w=w2.data_ptr(), y=outer.data_ptr(), **common, **two)
    keep = (pairs, w1, w2, x, inner, outer, between, made)
    return (launched("kernel_moe_gate_up" + path, up, keep=keep), launched("kernel_moe_down" + path, down, keep=keep))


def peers(shape, rows, pairs, wide, w1, w2):
    experts, c, f = shape
    n = rows * ACTIVE
    x, inner = bench.rand(n, c), bench.rand(n, f)
    out = {"grouped_mm": lambda: (torch._grouped_mm(x, wide[0].transpose(1, 2), offs=pairs.ends),
                                  torch._grouped_mm(inner, wide[1].transpose(1, 2), offs=pairs.ends))}
    if hasattr(torch, "_scaled_grouped_mm"):
        x8, inner8, of_x = codes(n, c), codes(n, f), torch.rand(n, device="cuda") + 0.1
        s1, s2 = scales(experts, 2 * f, c, True), scales(experts, c, f, True)

        def scaled(a, w, s):
            return torch._scaled_grouped_mm(a, w.transpose(1, 2), of_x, s, offs=pairs.ends, out_dtype=torch.bfloat16,
                                            use_fast_accum=True)
        out["scaled_grouped"] = lambda: (scaled(x8, w1, s1), scaled(inner8, w2, s2))
    return out


def bench_shape(name):
    shape = experts, c, f = SHAPES[name]
    wide = bench.rand(experts, 2 * f, c, scale=c**-0.5), bench.rand(experts, c, f, scale=f**-0.5)
    w1, w2 = narrow(experts, 2 * f, c), narrow(experts, c, f)
    squares = scales(experts, 2 * f, c, False), scales(experts, c, f, False)
    channels = scales(experts, 2 * f, c, True), scales(experts, c, f, True)
    for rows in ROWS:
        pairs, x = Pairs(rows, experts), bench.rand(rows, c)
        inner, outer = bench.rand(rows * ACTIVE, f), bench.rand(rows * ACTIVE, c)
        common = shape, rows, pairs
        runs = {"bf16": ours(*common, *wide, x, inner, outer),
                "squares": ours(*common, w1, w2, quantised(x, False)[0], inner, outer, squares),
                "rows": ours(*common, w1, w2, quantised(x, True)[0], inner, outer, channels, True),
                "w8a16": ours(*common, w1, w2, x, inner, outer, squares, x_too=False)}
        if rows <= 256:
            runs["mma"] = ours(*common, w1, w2, quantised(x, False)[0], inner, outer, squares, path="_mma")
        candidates = {}
        for form, (up, down) in runs.items():
            candidates.update({f"{form} up": [up], f"{form} down": [down],
                               f"{form}": [lambda up=up, down=down: (up(), down())]})
        candidates.update({key: [run] for key, run in peers(shape, rows, pairs, wide, w1, w2).items()})
        us = bench.time_all({key: made for key, made in ((key, tried(lambda made=made: made))
                                                         for key, made in candidates.items()) if made})
        once = pairs.hit * 3 * c * f / bench.copy_gbs / 1e3
        print(f"{name} {rows} tokens, {pairs.hit} of {experts} experts hit: once in fp8 {once:.1f} us; " +
              ", ".join(f"{key} {value:.1f}" for key, value in us.items()), flush=True)
        bench.rows.append([name, rows, f"hit={pairs.hit}", f"once={once:.2f}"] +
                          [f"{key}={value:.2f}" for key, value in us.items()])


def bench_choice():
    """LLaDA2.0-mini's choice of 8 of 256 experts, in 8 groups of which 4 stay, and the order of the pairs."""
    experts, groups = 256, 8
    for rows in ROWS:
        logits, bias = bench.rand(rows, experts), torch.randn(experts, device="cuda") * 0.01
        expert, order, place = (torch.empty(rows * ACTIVE, device="cuda", dtype=torch.int32) for _ in "abc")
        weight = torch.empty(rows * ACTIVE, device="cuda")
        start = torch.empty(experts + 1, device="cuda", dtype=torch.int32)
        common = dict(n_tokens=rows, n_active=ACTIVE, n_experts=experts)
        route = bench.launch("kernel_moe_route", calls.MoeRoute, logits=logits, bias=bias, expert=expert, weight=weight,
                             logit_stride=experts, n_groups=groups, n_groups_active=groups // 2, normalised=True, scale=1.0,
                             router=1, **common)
        sort = bench.launch("kernel_moe_sort", calls.MoeSort, expert=expert, start=start, order=order, place=place, **common)
        us = bench.time_all({"route": [route], "sort": [sort], "both": [lambda route=route, sort=sort: (route(), sort())]})
        print(f"choice {rows} tokens: " + ", ".join(f"{key} {value:.2f}" for key, value in us.items()), flush=True)


if __name__ == "__main__":
    bench.main({"choice": bench_choice, **{name: lambda name=name: bench_shape(name) for name in SHAPES}})
