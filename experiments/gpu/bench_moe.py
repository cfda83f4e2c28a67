"""Times a mixture of experts, from the router's logits to the tokens' sums, beside PyTorch's.

    python3 bench_moe.py LIBRARY OUT.csv [PIECE...]

As bench_kernels.py, whose rounds, buffers and ceilings it uses; the pieces are the models. The
peers: torch._grouped_mm with PyTorch's own routing, sorting, gathering, activation and sum around
it (grouped); its two products alone, on inputs that were gathered outside of the time (bare); a loop
over the experts with a cuBLAS product each, on counts the host was told (looped); and two Triton
kernels as fused-MoE kernels are written, gathering and activating by themselves, the fastest of a
few shapes of tiles (triton). Ratios are the peer's time by ours, of the whole and of the products
(gathering and SwiGLU included in ours). "floor" is the time by that of reading the weights of the
experts that have tokens once, at the rate of a device-to-device copy.
"""
import torch
import torch.nn.functional as F

import bench_kernels as bench
import calls
from bench_kernels import launch, main, rand, time_all

C, A = 2048, 8
TOKENS = (32, 64, 256, 1024, 2048, 8192)


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, device="cuda", dtype=dtype)


def ours(x, logits, bias, w1, w2, groups, path=""):
    """The five launches and what they write."""
    tokens, experts, hidden = x.shape[0], w1.shape[0], w2.shape[2]
    pairs = tokens * A
    expert, order, place = (empty(pairs, dtype=torch.int32) for _ in "abc")
    weight, start = empty(pairs, dtype=torch.float32), empty(experts + 1, dtype=torch.int32)
    inner, outer, y = empty(pairs, hidden), empty(pairs, C), empty(tokens, C)
    shape = dict(n_tokens=tokens, n_active=A, n_experts=experts)
    stages = {
        "route": launch("kernel_moe_route", calls.MoeRoute, logits=logits, bias=bias, expert=expert,
                        weight=weight, logit_stride=experts, n_groups=groups,
                        n_groups_active=max(1, groups // 2), normalised=True, scale=1.0,
                        router=int(groups > 1), **shape),
        "sort": launch("kernel_moe_sort", calls.MoeSort, expert=expert, start=start, order=order, place=place,
                       **shape),
        "gate_up": launch("kernel_moe_gate_up" + path, calls.MoeGateUp, x=x, w=w1, start=start, order=order,
                          y=inner, x_stride=C, n_channels=C, n_hidden=hidden, **shape),
        "down": launch("kernel_moe_down" + path, calls.MoeDown, x=inner, w=w2, start=start, y=outer,
                       n_channels=C, n_hidden=hidden, **shape),
        "combine": launch("kernel_moe_combine", calls.MoeCombine, x=outer, weight=weight, place=place, y=y,
                          n_tokens=tokens, n_active=A, n_channels=C),
    }
    return stages, expert, start, y


def route(logits, bias, groups):
    """As transformers has it; weights and experts."""
    if groups == 1:
        weight, expert = torch.topk(torch.softmax(logits.float(), -1), A)
    else:
        score = torch.sigmoid(logits.float())
        rank = (score + bias).view(len(logits), groups, -1)
        best = rank.topk(2, -1).values.sum(-1).topk(groups // 2, -1).indices
        stays = torch.zeros_like(rank[..., 0]).scatter_(1, best, 1.0).unsqueeze(-1)
        rank = rank.masked_fill(stays == 0, float("-inf")).view_as(score)
        expert = torch.topk(rank, A).indices
        weight = score.gather(1, expert)
    return weight / weight.sum(-1, keepdim=True), expert


def sort(expert, experts):
    order = torch.argsort(expert.view(-1), stable=True)
    ends = torch.searchsorted(expert.view(-1)[order], torch.arange(experts, device="cuda"),
                              right=True).to(torch.int32)
    return order, ends


def grouped(x, logits, bias, w1, w2, groups):
    hidden, up, down = w2.shape[2], w1.transpose(1, 2), w2.transpose(1, 2)

    def run():
        weight, expert = route(logits, bias, groups)
        order, ends = sort(expert, w1.shape[0])
        both = torch._grouped_mm(x[order // A], up, offs=ends)
        inner = F.silu(both[:, :hidden]) * both[:, hidden:]
        outer = torch._grouped_mm(inner, down, offs=ends)
        back = torch.empty_like(outer).index_copy_(0, order, outer).view(len(x), A, C)
        return torch.einsum("tac,ta->tc", back, weight.to(back.dtype))
    return run


def bare(x, logits, bias, w1, w2, groups):
    order, ends = sort(route(logits, bias, groups)[1], w1.shape[0])
    gathered, inner = x[order // A].contiguous(), rand(len(order), w2.shape[2])
    return lambda: (torch._grouped_mm(gathered, w1.transpose(1, 2), offs=ends),
                    torch._grouped_mm(inner, w2.transpose(1, 2), offs=ends))


def looped(x, logits, bias, w1, w2, groups):
    order, ends = sort(route(logits, bias, groups)[1], w1.shape[0])
    inner, outer = rand(len(order), w2.shape[2]), empty(len(order), C)
    both, gathered, ends = empty(len(order), w1.shape[1]), x[order // A], [0] + ends.tolist()

    def run():
        for e, (a, b) in enumerate(zip(ends, ends[1:])):
            if b > a:
                torch.mm(gathered[a:b], w1[e].t(), out=both[a:b])
                torch.mm(inner[a:b], w2[e].t(), out=outer[a:b])
    return run


def triton_runs(x, logits, bias, w1, w2, groups):
    """The two products in Triton for each shape of tiles; None where Triton is missing."""
    try:
        from bench_moe_triton import products
    except ImportError:
        return {}
    order, ends = sort(route(logits, bias, groups)[1], w1.shape[0])
    return products(x, order, ends, w1, w2, A)


def bench_model(name, experts, hidden, groups):
    w1 = rand(experts, 2 * hidden, C, scale=C**-0.5)
    w2 = rand(experts, C, hidden, scale=hidden**-0.5)
    bias = torch.randn(experts, device="cuda") * 0.01
    for tokens in TOKENS:
        x, logits = rand(tokens, C), rand(tokens, experts)
        inputs = (x, logits, bias, w1, w2, groups)
        stages, expert, start, y = ours(*inputs)
        for run in stages.values():
            run()
        want, theirs = grouped(*inputs)(), route(logits, bias, groups)[1]
        torch.cuda.synchronize()
        error = ((y.float() - want.float()).norm() / want.float().norm()).item()
        same = (expert.view(tokens, A).sort().values == theirs.sort().values).float().mean().item()
        hit = int((start[1:] > start[:-1]).sum())
        runs = {"ours": [lambda: [run() for run in stages.values()]],
                "products": [lambda: (stages["gate_up"](), stages["down"]())]}
        runs.update({stage: [run] for stage, run in stages.items()})
        runs["grouped"], runs["bare"] = [grouped(*inputs)], [bare(*inputs)]
        if tokens <= 2048:
            runs["looped"] = [looped(*inputs)]
        triton = triton_runs(*inputs)
        runs.update({key: [run] for key, run in triton.items()})
        us = time_all(runs)
        best = min((us[key] for key in triton), default=None)
        n_bytes = hit * 3 * hidden * C * 2
        flops = 6.0 * tokens * A * hidden * C
        floor = n_bytes / bench.copy_gbs / 1e3
        ratios = {"grouped": us["grouped"] / us["ours"], "bare": us["bare"] / us["products"]}
        if "looped" in us:
            ratios["looped"] = us["looped"] / us["products"]
        if best:
            ratios["triton"] = best / us["products"]
        print(f"{name} T{tokens:<5d} {tokens * A / experts:6.1f}/expert {us['ours']:8.1f}us "
              f"{n_bytes / us['ours'] / 1e3:5.0f}GB/s {flops / us['ours'] / 1e6:4.0f}TF "
              f"floor {us['ours'] / floor:.2f}  "
              + " ".join(f"{key} {value:.2f}x" for key, value in ratios.items())
              + "  us: " + " ".join(f"{key} {us[key]:.1f}" for key in stages)
              + f"  error {error:.1e}" + ("" if error < 1e-2 else " WRONG")
              + ("" if same > 0.999 else f" experts {same:.4f}"), flush=True)
        bench.rows.append([name, f"T{tokens}", f"{us['ours']:.2f}",
                           f"{n_bytes / us['ours'] / 1e3:.0f}", f"{floor / us['ours']:.3f}",
                           f"{flops / us['ours'] / 1e6:.1f}", "",
                           f"{hit} experts hit; error {error:.1e}"]
                          + [f"{key}={value:.2f}us" for key, value in us.items() if key != "ours"])
        del runs, stages
        torch.cuda.empty_cache()


main({"llada-moe": lambda: bench_model("llada-moe", 64, 1024, 1),
      "llada2-mini": lambda: bench_model("llada2-mini", 256, 512, 8)})
