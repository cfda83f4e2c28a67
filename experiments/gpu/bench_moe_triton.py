"""The experts' two products in Triton, for bench_moe.py to compare with: one kernel as fused-MoE
kernels are written, with a table of tiles made by PyTorch outside of the time."""
import torch
import triton
import triton.language as tl


@triton.jit
def product(x, w, y, rows, tile_expert, tile_first, tile_end, stride_x, n, k, second,
            GATED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    tile = tl.program_id(1)
    expert = tl.load(tile_expert + tile).to(tl.int64)
    place = tl.load(tile_first + tile) + tl.arange(0, M)
    ours = place < tl.load(tile_end + tile)
    row = tl.load(rows + place, mask=ours, other=0).to(tl.int64)
    output = tl.program_id(0) * N + tl.arange(0, N)
    channel = tl.arange(0, K)
    w += expert * (2 * n if GATED else n) * k
    x_at = x + row[:, None] * stride_x + channel[None, :]
    w_at = w + output[None, :].to(tl.int64) * k + channel[:, None]
    sums = tl.zeros((M, N), dtype=tl.float32)
    ups = tl.zeros((M, N), dtype=tl.float32)
    for step in range(0, k, K):
        a = tl.load(x_at, mask=ours[:, None], other=0.0)
        sums = tl.dot(a, tl.load(w_at), sums)
        if GATED:
            ups = tl.dot(a, tl.load(w_at + second), ups)
        x_at += K
        w_at += K
    if GATED:
        sums = sums * tl.sigmoid(sums) * ups
    tl.store(y + place[:, None].to(tl.int64) * n + output[None, :], sums.to(tl.bfloat16),
             mask=ours[:, None])


def tiles(ends, m):
    ends = ends.tolist()
    found = [(e, first, end) for e, (begin, end) in enumerate(zip([0] + ends, ends))
             for first in range(begin, end, m)]
    return [torch.tensor(part, device="cuda", dtype=torch.int32) for part in zip(*found)]


def products(x, order, ends, w1, w2, n_active):
    """A closure for each shape of tiles that suits the tokens an expert has."""
    experts, channels, hidden = w2.shape
    each = len(order) / experts
    token, place = (order // n_active).to(torch.int32), torch.arange(len(order), device="cuda",
                                                                     dtype=torch.int32)
    inner = torch.empty(len(order), hidden, device="cuda", dtype=torch.bfloat16)
    outer = torch.empty(len(order), channels, device="cuda", dtype=torch.bfloat16)
    shapes = ((16, 64, 128, 4, 4), (16, 32, 256, 4, 3)) if each <= 16 else \
        ((32, 64, 64, 4, 4), (64, 128, 64, 4, 3)) if each <= 64 else \
        ((64, 128, 64, 4, 4), (128, 128, 64, 8, 3))
    runs = {}
    for m, n, k, warps, stages in shapes:
        table = tiles(ends, m)
        count = len(table[0])

        def run(m=m, n=n, k=k, warps=warps, stages=stages, table=table, count=count):
            options = dict(M=m, N=n, K=k, num_warps=warps, num_stages=stages)
            product[(hidden // n, count)](x, w1, inner, token, *table, x.stride(0), hidden, channels,
                                          hidden * channels, GATED=True, **options)
            product[(channels // n, count)](inner, w2, outer, place, *table, hidden, channels, hidden,
                                            0, GATED=False, **options)
        runs[f"triton {m}x{n}x{k}"] = run
    return runs
