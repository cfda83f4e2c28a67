"""The output of mixtures.sh as a table: a block step beside one reading of the weights that its
tokens need, 32 requests simulated beside live, and the device's share of unrolled steps.

Usage: python3 experiments/gpu/mixture_table.py FOLDER MODEL GPUS_JSON GPU
"""
import json
import os
import sys

# Layers, dense ones among them, channels, query and key heads' channels, dense FFN, experts' FFN,
# shared FFN, experts, vocabulary (sim/model/models).
SHAPES = {
    "llada-moe": (16, 0, 2048, 2048, 2048, 0, 1024, 0, 64, 157184),
    "llada2-mini": (20, 1, 2048, 2048, 512, 5120, 512, 512, 256, 157184),
    "sdar-30b-a3b": (48, 0, 2048, 4096, 512, 0, 768, 0, 128, 151936),
}


def weight_bytes(model, hit):
    """What a step reads, in bf16, where each mixture layer's tokens go to `hit` experts."""
    layers, dense, c, q, kv, ffn, expert, shared, experts, vocab = SHAPES[model]
    attention = c * (q + 2 * kv) + q * c
    mixture = experts * c + 3 * c * (hit * expert + shared)
    return 2 * (layers * attention + dense * 3 * c * ffn + (layers - dense) * mixture + vocab * c)


def main(folder, model, gpus, gpu):
    load = lambda name: json.load(open(f"{folder}/{model}-{name}.json"))
    peak = next(row["GB/s"] for row in json.loads(gpus)["gpus"]["rows"] if row["name"] == gpu)
    for n in (1, 32):
        step = load(f"explain-{n}")
        hit, device = step["experts_hit"], step["measured"]["device_ms"]
        once = weight_bytes(model, hit["measured"]) / peak * 1e-6
        print(f"{model} x {n}: {step['tokens']} tokens, experts hit {hit['measured']:.1f} of {hit['experts']}"
              f" ({hit['expected']:.1f} expected); weights read {once * peak * 1e-3:.2f} GB, once at {peak:.0f} GB/s"
              f" {once:.3f} ms; step {device:.3f} ms, {device / once:.2f} x that"
              f" (wall {step['measured']['wall_ms']:.3f}); priced {step['device_ms']:.3f} ms"
              f" ({100 * (step['device_ms'] / device - 1):+.1f} %)")
        for op in sorted(step["operators"], key=lambda op: -(op["measured_ms"] or 0))[:12]:
            if op["measured_ms"]:
                print(f"    {op['operator']:<36} {op['times']:>3} x  measured {op['measured_ms']:8.3f} ms"
                      f"  priced {op['ms']:8.3f} ms ({op['error_%']:+6.1f} %)")
    sim, live = load("sim"), load("live")
    for key in ("makespan_s", "throughput_tok_s", "activation_peak_bytes", "kv_peak_bytes"):
        print(f"{model} 32 requests {key:<22} simulated {sim[key]:14.6g} live {live[key]:14.6g}"
              f" ({100 * (sim[key] / live[key] - 1):+.2f} %)")
    for k in (1, 4):
        if os.path.exists(f"{folder}/{model}-unrolled-{k}.json"):
            run = load(f"unrolled-{k}")
            print(f"{model} as dInfer serves it, up to {k} steps at a time: {run['steps']} steps,"
                  f" {run['tokens_committed']} tokens in {run['makespan_s']:.3f} s,"
                  f" {100 * (1 - run['gpu_busy']):.2f} % of it not the device's")


if __name__ == "__main__":
    main(*sys.argv[1:])
