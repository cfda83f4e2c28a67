#!/usr/bin/env python3
"""Products as a benchmark's loop times them, and as a step meets them.

The same bf16 product out[m, n] = in[m, k] . weight[n, k]^T is timed twice: always with one weight
("warm": it stays in the L2 cache where it fits), and over so many weights in turn that none is in
the cache when its turn comes ("cold": more than four times the cache lies between two uses).
Medians over rounds of CUDA graphs of many launches, warm and cold interleaved.

Usage: cold_products.py OUT.csv      (columns: gpu, m, n, k, weight_mb, warm_us, cold_us)
"""
import sys

import torch

SHAPES = [(2048, 2048), (6144, 2048), (3072, 2048), (2048, 1024), (4096, 1024), (6144, 4096),
          (12288, 4096), (4096, 4096), (1536, 2048), (1024, 4096), (24576, 4096), (4096, 12288)]
TOKENS = [1, 8, 32, 64, 128, 256, 512, 1024, 2048]
LAUNCHES, ROUNDS = 48, 7


def graph_of(weights, tokens, outputs):
    for weight in weights[:3]:
        torch.mm(tokens, weight.t(), out=outputs[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(LAUNCHES):
            torch.mm(tokens, weights[i % len(weights)].t(), out=outputs[i % len(outputs)])
    return graph


def time_us(graph):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / LAUNCHES


def median(values):
    return sorted(values)[len(values) // 2]


def main():
    name = torch.cuda.get_device_name(0).replace(",", " ")
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(f"# {name}, L2 {cache} bytes, torch {torch.__version__}, medians of {ROUNDS} "
                  f"rounds of {LAUNCHES} launches in a CUDA graph\n")
        out.write("gpu,m,n,k,weight_mb,warm_us,cold_us\n")
        for n, k in SHAPES:
            n_cold = max(3, -(-4 * cache // (2 * n * k)) + 1)
            weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(n_cold)]
            for m in TOKENS:
                tokens = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
                outputs = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16)]
                warm, cold = graph_of(weights[:1], tokens, outputs), graph_of(weights, tokens, outputs)
                times = [(time_us(warm), time_us(cold)) for _ in range(ROUNDS + 2)][2:]
                row = [median([t[side] for t in times]) for side in range(2)]
                out.write(f"{name},{m},{n},{k},{2e-6 * n * k:.1f},{row[0]:.2f},{row[1]:.2f}\n")
            del weights
    print(open(sys.argv[1], encoding="utf-8").read()[-1500:])


if __name__ == "__main__":
    main()
