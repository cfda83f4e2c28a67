"""Times block diffusion's own kernels: paged attention beside FlexAttention, SDPA and dense
attention, and FOCUS beside the products of a step.

    python3 bench_block.py LIBRARY OUT.csv [PIECE...]

As bench_kernels.py, whose rounds, buffers and ceilings it uses. The peers get keys and values in
one piece, FlexAttention compiled, its block mask built outside of the time.
"""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import bench_kernels as bench
import calls
from bench_kernels import SMS, I, L, P, ints, launch, lib, main, rand, report, sdpa, sets_for, time_all

scratch = torch.zeros(lib.block_attention_scratch_bytes(SMS), device="cuda", dtype=torch.uint8)


def paged(name, q, k, v, queries, context, heads, kv, page_rows, causal=False):
    """Requests of `queries` tokens over `context` rows, their own included, in shuffled pages."""
    b = len(context)
    width = max((n + page_rows - 1) // page_rows for n in context)
    order = torch.randperm(b * width, device="cuda").to(torch.int32)
    extent = [n - queries + 1 + t if causal else n for n in context for t in range(queries)]
    return launch(name, calls.PagedAttention, q=q, k=k, v=v, y=torch.empty_like(q),
                  start=ints([i * queries for i in range(b + 1)]), extent=ints(extent), pages=order,
                  scratch=scratch, q_stride=heads * 128, kv_stride=kv * 128, y_stride=heads * 128,
                  n_requests=b, n_tokens=b * queries, n_heads=heads, n_kv_heads=kv, head_size=128,
                  max_pages=width, page_rows=page_rows, max_queries=queries,
                  max_extent=max(context))


def flex(queries, context, heads, kv):
    """FlexAttention over rectangles: the kernel it chooses by itself, and its general one."""
    b, most = len(context), max(context)
    reach = ints(context)
    mask = create_block_mask(lambda r, h, q, k: k < reach[r], b, None, queries, most,
                             device="cuda")

    def make(options):
        run = torch.compile(flex_attention, dynamic=False)
        return lambda q, k, v: lambda: run(q, k, v, block_mask=mask, enable_gqa=heads != kv,
                                           kernel_options=options)
    return {"flex": make({}), "flex general": make({"FORCE_USE_FLEX_ATTENTION": True})}


def bench_paged(shapes=None, with_flex=False):
    shapes = shapes or [
        (1, [2048] * 64, 32, 8, 64), (1, [2048] * 64, 32, 8, 16), (1, [2048] * 64, 16, 2, 64),
        (1, [2048] * 64, 32, 32, 64), (1, [512] * 16, 32, 8, 64), (1, [8192], 32, 8, 64),
        (1, [128 * (1 + i % 32) for i in range(64)], 32, 8, 64), (4, [2048] * 64, 32, 8, 64),
        (8, [2048] * 64, 32, 8, 64), (16, [2048] * 64, 32, 8, 64), (32, [2048] * 64, 32, 8, 64),
        (32, [2048] * 64, 32, 8, 16), (32, [2048] * 64, 16, 2, 64), (32, [2048] * 64, 32, 32, 64),
        (64, [2048] * 64, 32, 8, 64), (32, [512] * 16, 32, 8, 64), (32, [8192], 32, 8, 64),
        (32, [128 * (1 + i % 32) for i in range(64)], 32, 8, 64)]
    for queries, context, heads, kv, page_rows in shapes:
        b, rows, most = len(context), sum(context), max(context)
        even = len(set(context)) == 1
        n_bytes = 2 * rows * kv * 128 * 2 + 2 * b * queries * heads * 128 * 2
        flops = 4 * heads * 128 * queries * rows
        n_rows = b * ((most + page_rows - 1) // page_rows) * page_rows
        ours, other, flash = [], [], []
        make = flex(queries, context, heads, kv) if with_flex else {}
        peers = {name: [] for name in make}
        for _ in range(sets_for(n_bytes)):
            q = rand(b * queries, heads, 128)
            k, v = (rand(n_rows, kv, 128) for _ in "kv")
            shape = (q, k, v, queries, context, heads, kv, page_rows)
            ours.append(paged("kernel_paged_attention", *shape))
            if queries * heads // kv >= 16:
                path = "wgmma" if queries * heads // kv <= 32 else "mma"
                other.append(paged("kernel_paged_attention_" + path, *shape))
            pq = rand(b, heads, queries, 128)
            pk, pv = (rand(b, kv, most, 128) for _ in "kv")
            if even:
                flash.append(sdpa(SDPBackend.FLASH_ATTENTION, pq, pk, pv, heads != kv))
            for name in list(peers):
                peers[name].append(make[name](pq, pk, pv))
                if len(peers[name]) == 1:
                    try:
                        peers[name][0]()
                    except Exception as error: # our own numbers do not need it
                        print(f"{name}: {error!r}"[:300], flush=True)
                        del peers[name]
        candidates = {"ours": ours, "other path": other, "flash": flash, **peers}
        name = f"B{b} q{queries} kv{context[0] if even else '128..4096'} H{heads}/{kv}"
        report("paged", f"{name} p{page_rows}",
               time_all({k: v for k, v in candidates.items() if v}), n_bytes, flops)
        del ours, other, flash, peers, candidates
        torch.cuda.empty_cache()


def bench_flex():
    bench_paged([(32, [2048] * 64, 32, 8, 64), (1, [2048] * 64, 32, 8, 64),
                 (32, [128 * (1 + i % 32) for i in range(64)], 32, 8, 64)], True)


def bench_prefill():
    """Long spans: causal, beside SDPA; and all to all, beside our own dense attention."""
    for b, n, heads, kv, page_rows, causal in ((4, 2048, 32, 8, 64, True), (1, 2048, 32, 8, 64, True),
                                               (4, 2048, 32, 8, 64, False), (4, 2048, 32, 8, 16, False),
                                               (1, 8192, 32, 8, 64, True)):
        q, k, v = rand(b * n, heads, 128), rand(b * n, kv, 128), rand(b * n, kv, 128)
        pairs = n * (n + 1) / 2 if causal else n * n
        shape = (q, k, v, n, [n] * b, heads, kv, page_rows, causal)
        candidates = {"ours": [paged("kernel_paged_attention_wgmma", *shape)],
                      "mma": [paged("kernel_paged_attention_mma", *shape)]}
        if not causal:
            starts = ints([i * n for i in range(b + 1)])
            for path in ("mma", "wgmma"):
                candidates["dense " + path] = [launch(
                    "kernel_dense_attention_" + path, calls.DenseAttention, q=q, k=k, v=v, y=torch.empty_like(q),
                    start=starts, q_stride=heads * 128, kv_stride=kv * 128, y_stride=heads * 128,
                    n_requests=b, n_tokens=b * n, n_heads=heads, n_kv_heads=kv, head_size=128,
                    max_tokens=n)]
        else:
            pq, pk, pv = (t.view(b, n, -1, 128).transpose(1, 2) for t in (q, k, v))
            candidates["sdpa"] = [lambda: F.scaled_dot_product_attention(
                pq, pk, pv, is_causal=True, enable_gqa=True)]
        report("prefill", f"B{b} L{n} H{heads}/{kv} p{page_rows}" + (" causal" if causal else ""),
               time_all(candidates), 0, 4.0 * b * pairs * heads * 128)


def bench_focus():
    """What FOCUS adds to a step, at SDAR-8B's shape, blocks of 32, all masked or a third."""
    for b, share in ((64, 1.0), (64, 0.34), (256, 1.0), (1, 1.0)):
        block, n = 32, b * 32
        masked = (torch.rand(n, device="cuda") < share).to(torch.uint8)
        start = ints([i * block for i in range(b + 1)])
        where = torch.randperm(4 * n, device="cuda").to(torch.int32)[:n].contiguous()
        scores = [torch.zeros(n, device="cuda") for _ in "ab"]
        rows = ints(range(0, n, 6))  # FOCUS keeps about a sixth
        kept = len(rows)
        n_rows = ints([kept])
        stages, alive = {"importance": [], "compact": [], "all": []}, []
        for _ in range(sets_for(n * 4096 * 2 * 4)):
            q, residual = rand(n, 32, 128), rand(n, 4096)
            keys = [rand(4 * n, 8, 128) for _ in "ab"]
            to = [torch.empty_like(residual) for _ in "ab"]
            importance = [launch("kernel_importance", calls.Importance, q=q, k=keys[i], kv_rows=where,
                                 start=start, masked=masked, importance=scores[i],
                                 q_stride=32 * 128, kv_stride=8 * 128, n_requests=b, n_heads=32,
                                 n_kv_heads=8, head_size=128, max_masked=block) for i in (0, 1)]
            compact = launch("kernel_compact", calls.Compact, rows=rows, n_rows=n_rows,
                             **{"from": (P * 4)(q.data_ptr(), residual.data_ptr())},
                             to=(P * 4)(to[0].data_ptr(), to[1].data_ptr()),
                             from_stride=(L * 4)(4096, 4096), to_stride=(L * 4)(4096, 4096),
                             width=(I * 4)(4096, 4096), n_arrays=2, max_rows=n)
            alive.append((q, residual, to, keys))
            for name, runs in (("importance", importance[:1]), ("compact", [compact]),
                               ("all", importance + [compact])):
                stages[name].append(lambda runs=runs: [run() for run in runs])
        us = time_all(stages)
        # The products of a step, before and after eviction, at the rates they have by themselves.
        layer = lambda t: products([(t, 6144, 4096), (t, 4096, 4096), (t, 24576, 4096), (t, 4096, 12288)])
        whole = 36 * layer(n) + products([(n, 151936, 4096)])
        focused = 2 * layer(n) + 34 * layer(kept) + products([(kept, 151936, 4096)])
        print(f"focus    B{b} masked {share:.2f} kept {kept}/{n}: importance {us['importance']:.1f} "
              f"us, compact {us['compact']:.1f}, all three "
              f"{us['all']:.1f} us = {100 * us['all'] / whole:.3f} % of a whole step's products "
              f"({whole / 1000:.2f} ms), {100 * us['all'] / focused:.3f} % of a focused one's "
              f"({focused / 1000:.2f} ms)", flush=True)
        bench.rows.append(["focus", f"B{b} masked {share}", f"{us['all']:.2f}", "", "", "", "",
                           f"kept {kept} of {n}; products whole {whole:.0f} us, focused {focused:.0f} us",
                           f"importance={us['importance']:.2f}us",
                           f"compact={us['compact']:.2f}us", ""])


def products(shapes):
    total = 0.0
    for m, n, k in shapes:
        x, w = rand(m, k), rand(n, k, scale=0.02)
        total += time_all({"mm": [lambda: torch.mm(x, w.t())] * 4})["mm"]
    return total


main({"paged": bench_paged, "flex": bench_flex, "prefill": bench_prefill, "focus": bench_focus})
