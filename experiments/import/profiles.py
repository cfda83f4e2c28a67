#!/usr/bin/env python3
"""Writes kernels/profiles/*.csv from two published sets of measured operator times.

    experiments/import/profiles.py SOURCES OUT

SOURCES holds two folders of gzip'd CSV files:
  aiconfigurator/         <gpu>_{gemm,context_attention,generation_attention,moe,nccl}_bf16.csv.gz,
                          the bf16 rows of ai-dynamo/aiconfigurator's parquet tables as text
                          <gpu>_gemm_{fp8,fp8_block}.csv.gz, those of its products in fp8, where there are any
                          (parquet.py writes all of them from the package aiconfigurator-core 0.12.0)
  llmservingsim_profiles/ <gpu>_llama31_8b_tp1_{dense,per_sequence,attention}.csv.gz,
                          casys-kaist/LLMServingSim's profiler/perf, unchanged
OUT receives one long-format file a GPU. Python's standard library only; the output depends on
nothing but the input. Times are copied, never smoothed; only units and shapes are rewritten, and rows that were timed on
a warm cache are raised, marked (cold.py).
"""
import csv
import gzip
import os
import sys

import cold

GPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../sim/model/gpus")

COLUMNS = """\
# columns: gemm,m,n,k,time_us
# columns: attention_causal,batch,q,kv,heads,kv_heads,head_dim,time_us
# columns: attention_decode,batch,q,kv,heads,kv_heads,head_dim,time_us
# columns: moe,tokens,hidden,expert_ffn,top_k,experts,hit,time_us
# columns: elementwise,bytes,time_us
# columns: all_reduce,gpus,bytes,time_us
# columns: all_gather,gpus,bytes,time_us
# Sizes are tokens, rows, channels, heads; kv counts every key a sequence's last query sees;
# bytes are read plus written (elementwise) or the message of one GPU (collectives)."""

# (top_k, experts) of NVIDIA Nemotron-H, whose experts have no gate: two products, not three. The
# collector of vLLM 0.24 runs them so (by their bytes three would read at up to 1.37 times the
# memory's peak), that of 0.14 with a gate.
NEMOTRON = ((6, 128), (22, 512))

AICONFIGURATOR = {
    "l40s": ("l40s", "NVIDIA L40S 48 GB",
             "vLLM 0.24.0 (cuBLAS, FlashAttention-2, Triton MoE), TensorRT-LLM 1.3.0rc20 (products in fp8)", NEMOTRON),
    "a100-80g": ("a100_sxm", "NVIDIA A100 SXM4 80 GB",
                 "vLLM 0.14.0 (default GEMM, FlashAttention, fused MoE)", ()),
    "h100": ("h100_sxm", "NVIDIA H100 SXM5 80 GB",
             "vLLM 0.24.0 (cuBLAS, FlashAttention-3, Triton MoE), SGLang 0.5.14 (products in fp8)", NEMOTRON),
    "b200": ("b200_sxm", "NVIDIA B200 SXM 180 GB", "vLLM 0.24.0 (cuBLAS, FlashInfer), SGLang 0.5.14 (products in fp8)",
             NEMOTRON),
}
AICONFIGURATOR_ORIGIN = ("ai-dynamo/aiconfigurator@095f58a51c4ca8e61b66ec108d86f223f8d559ce "
                         "aic-core/src/aiconfigurator_core/systems/data")
LLMSERVINGSIM = {
    "rtx4090": ("RTX4090", "NVIDIA GeForce RTX 4090 24 GB",
                "vLLM 0.19.0, CUDA 12.8, eager, 2026-08-17"),
    "rtx-pro-6000": ("RTXPRO6000", "NVIDIA RTX PRO 6000 Blackwell 96 GB",
                     "vLLM 0.19.0, CUDA 13.0, eager, 2026-04-24"),
}
LLMSERVINGSIM_ORIGIN = ("casys-kaist/LLMServingSim@5daddb21a545658d5150b535712d0494584b5278 "
                        "profiler/perf")

# Llama-3.1-8B at one GPU: the shapes behind the layer names of LLMServingSim's tables.
HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 4096, 14336, 32, 8, 128, 128256
LAYERNORM_MAX_BYTES = 2048 * 4 * HIDDEN * 2  # 2048 tokens, the source's last row
LAYER_GEMM = {
    "qkv_proj": ((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN),
    "o_proj": (HIDDEN, HEADS * HEAD_DIM),
    "gate_up_proj": (2 * FFN, HIDDEN),
    "down_proj": (HIDDEN, FFN),
    "lm_head": (VOCAB, HIDDEN),
}


def rows_of(folder, name):
    with gzip.open(os.path.join(folder, name), "rt", newline="") as f:
        yield from csv.DictReader(f)


# TensorRT-LLM's collector takes as many copies of a weight as fill the L2 cache, so that all that is smaller is timed warm.
FILLS_L2 = {"l40s": "gemm(fp8) 1, "}

# What the source calls types of products, and we; their scales are of rows, and of 128 x 128.
FP8_TYPES = {"fp8": "fp8-channel", "fp8_block": "fp8"}


def fp8_products(folder, name):
    """As the bf16 products, with their type before the time; rows of powers of two alone."""
    out = []
    for source, ours in FP8_TYPES.items():
        file = "%s_gemm_%s.csv.gz" % (name, source)
        for r in rows_of(folder, file) if os.path.exists(os.path.join(folder, file)) else ():
            m, n, k = int(r["m"]), int(r["n"]), int(r["k"])
            if n >= 512 and k >= 512 and m & (m - 1) == 0:
                out.append(("gemm", m, n, k, ours, us(r["latency_ms"], 1e3)))
    return out


def us(text, scale):
    return "%.6g" % (float(text) * scale)


def experts_hit(tokens, top_k, experts, alpha=1.01):
    """Experts with a token under the collector's power law (power_law_logits_v3): each expert draws a
    weight from x^-alpha between the bounds below, the weights are scaled to all pairs and rounded,
    and pairs that are left over go to the experts that have fewest. The draws are taken at even
    quantiles: within 2 of the mean of 40 random draws."""
    pairs, a = tokens * top_k, 1 - alpha
    low, high = (1, 0.8 * tokens) if pairs > experts else (0.01, 2)
    low, high = low ** a, high ** a
    weights = [(low + (high - low) * (i + 0.5) / experts) ** (1 / a) for i in range(experts)]
    total = sum(weights)
    counts = [int(w / total * pairs + 0.5) for w in weights]
    left = max(0, pairs - sum(min(c, tokens) for c in counts))
    return experts - max(0, counts.count(0) - left)


def from_aiconfigurator(folder, name, ungated):
    """Rows as (operator, sizes..., microseconds); the source's latencies are milliseconds."""
    out = []
    for r in rows_of(folder, name + "_gemm_bf16.csv.gz"):
        m, n, k = int(r["m"]), int(r["n"]), int(r["k"])
        if n >= 512 and k >= 512:
            out.append(("gemm", m, n, k, us(r["latency_ms"], 1e3)))
    out += fp8_products(folder, name)
    for r in rows_of(folder, name + "_context_attention_bf16.csv.gz"):
        heads = int(r["num_heads"])
        if heads >= 4:
            length = int(r["isl"])
            out.append(("attention_causal", int(r["batch_size"]), length, length, heads,
                        int(r["num_key_value_heads"]), int(r["head_dim"]),
                        us(r["latency_ms"], 1e3)))
    for r in rows_of(folder, name + "_generation_attention_bf16.csv.gz"):
        heads = int(r["num_heads"])
        if heads >= 4:
            out.append(("attention_decode", int(r["batch_size"]), 1,
                        int(r["isl"]) + int(r["step"]), heads, int(r["num_key_value_heads"]),
                        int(r["head_dim"]), us(r["latency_ms"], 1e3)))
    for r in rows_of(folder, name + "_moe_bf16.csv.gz"):
        inter, tp = int(r["inter_size"]), int(r["moe_tp_size"])
        if (int(r["topk"]), int(r["num_experts"])) in ungated:
            continue
        if r["distribution"] == "power_law_1.01" and r["moe_ep_size"] == "1" and inter % tp == 0:
            tokens, top_k, experts = (int(r[c]) for c in ("num_tokens", "topk", "num_experts"))
            out.append(("moe", tokens, int(r["hidden_size"]), inter // tp, top_k, experts,
                        experts_hit(tokens, top_k, experts), us(r["latency_ms"], 1e3)))
    for r in rows_of(folder, name + "_nccl_bf16.csv.gz"):
        # nccl-tests' size of a gathering is that of all parts together (its doc/PERFORMANCE.md).
        gpus = int(r["num_gpus"])
        parts = gpus if r["op_name"] == "all_gather" else 1
        out.append((r["op_name"], gpus, 2 * int(r["message_size"]) // parts,
                    us(r["latency"], 1e3)))
    return out


def from_llmservingsim(folder, name):
    """The source's times are microseconds of one layer."""
    out = []
    for table in ("dense", "per_sequence"):
        for r in rows_of(folder, "%s_llama31_8b_tp1_%s.csv.gz" % (name, table)):
            m = int(r.get("tokens") or r["sequences"])
            if r["layer"] in LAYER_GEMM:
                n, k = LAYER_GEMM[r["layer"]]
                out.append(("gemm", m, n, k, us(r["time_us"], 1)))
            elif r["layer"] == "layernorm":
                # Fused residual add and RMSNorm: hidden and residual, each read and written, bf16.
                out.append(("elementwise", m * 4 * HIDDEN * 2, us(r["time_us"], 1)))
            elif r["layer"] == "act_fn" and m * 3 * FFN * 2 > LAYERNORM_MAX_BYTES:
                # SwiGLU: gate and up read, their product written, bf16.
                out.append(("elementwise", m * 3 * FFN * 2, us(r["time_us"], 1)))
    for r in rows_of(folder, name + "_llama31_8b_tp1_attention.csv.gz"):
        chunk, prefix = int(r["prefill_chunk"]), int(r["kv_prefill"])
        batch, kv = int(r["n_decode"]), int(r["kv_decode"])
        if batch == 0:
            out.append(("attention_causal", 1, chunk, prefix + chunk, HEADS, KV_HEADS, HEAD_DIM,
                        us(r["time_us"], 1)))
        elif chunk == 0:
            out.append(("attention_decode", batch, 1, kv, HEADS, KV_HEADS, HEAD_DIM,
                        us(r["time_us"], 1)))
        elif prefix == 0:
            out.append(("attention_mixed", batch, chunk, kv, HEADS, KV_HEADS, HEAD_DIM,
                        us(r["time_us"], 1)))
    return out


def write(path, head, rows):
    """Sorted rows, one a shape: where a shape was measured twice, the faster one stays."""
    best = {}
    for row in rows:
        key = row[:-1]
        if key not in best or float(row[-1]) < float(best[key]):
            best[key] = row[-1]
    operators = []
    for row in rows:
        if row[0] not in operators:
            operators.append(row[0])
    with open(path, "w", newline="\n") as f:
        first, rest = head.split("\n", 1)
        f.write("%s\n# rows: %d\n%s\n%s\n" % (first, len(best), rest, COLUMNS))
        for key in sorted(best, key=lambda k: (operators.index(k[0]), isinstance(k[-1], str), k[1:])):
            f.write(",".join(map(str, key)) + "," + best[key] + "\n")
    print("%s: %d rows, %d bytes" % (path, len(best), os.path.getsize(path)))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sources, out = sys.argv[1:]
    for gpu, (name, title, software, ungated) in AICONFIGURATOR.items():
        head = "\n".join([
            "# Operator times of one GPU, bf16, as published by others; see LICENSES.md.",
            "# kind: imported", "# gpu: " + title, "# source: " + AICONFIGURATOR_ORIGIN,
            "# licence: Apache-2.0, Copyright 2025-2026 NVIDIA CORPORATION & AFFILIATES",
            "# software: " + software,
            "# weights_in_turn: gemm 6, %smoe 1, attention_decode 1" % FILLS_L2.get(gpu, ""),
            "# expert_routing: power_law 1.01",
            "# experts_hit: by the collector's power law, computed (experts_hit in "
            "experiments/import/profiles.py); nobody counted",
            "# Transformation (experiments/import/profiles.py): milliseconds to microseconds; "
            "message elements to bytes of one GPU (a gathering's size / gpus); decode kv = isl + step; expert_ffn = inter_size / tp.",
            "# Types: gemm rows of fp8 are the source's fp8_block (scales of 128 x 128; SGLang's DeepGEMM, or where it has none the quicker of TensorRT-LLM's and "
            "vLLM's), of fp8-channel its fp8 (vLLM's CUTLASS, scaled by row). Times of SGLang and TensorRT-LLM hold the quantising of inputs.",
            "# Dropped: products of fp8 at other rows than powers of two; products with n or k below 512; attention with fewer than 4 query heads; "
            "MoE routings other than power_law_1.01; " +
            ("experts without a gate (Nemotron-H); " if ungated else "") +
            "of two kernels for one shape the slower.",
            "# weights_in_turn, expert_routing: how the source's collector times and routes; see "
            "experiments/import/cold.py and sim/price/profile/profile_rows.c.",
            "# attention_causal is causal: about half the FLOPs of a bidirectional pass."])
        write(os.path.join(out, gpu + ".csv"), head,
              from_aiconfigurator(os.path.join(sources, "aiconfigurator"), name, ungated))
        cold.raise_file(os.path.join(GPUS, gpu + ".ini"), os.path.join(out, gpu + ".csv"))
    for gpu, (name, title, software) in LLMSERVINGSIM.items():
        head = "\n".join([
            "# Operator times of one GPU, bf16, as published by others; see LICENSES.md.",
            "# kind: imported", "# gpu: " + title, "# source: " + LLMSERVINGSIM_ORIGIN,
            "# licence: MIT, Copyright (c) 2024 CASYS Lab at KAIST",
            "# software: " + software,
            "# Transformation (experiments/import/profiles.py): Llama-3.1-8B layers to shapes: "
            "qkv 6144x4096, o 4096x4096, gate_up 28672x4096, down 4096x14336, lm_head "
            "128256x4096 with m = sequences; elementwise = layernorm (fused with the residual add) up "
            "to its last row of 67 MB, act_fn (SwiGLU) above it; kv = kv_prefill + prefill_chunk.",
            "# attention_mixed: one call for a causal chunk of q tokens without a prefix and `batch` "
            "single queries over kv keys each.",
            "# Dropped: mixed attention batches whose chunk has a prefix; smaller act_fn rows; "
            "rotary_emb, embedding, final_layernorm and sampler layers.",
            "# attention_causal is causal: query i of a chunk sees the prefix and chunk keys 0..i.",
            "# columns: attention_mixed,batch,q,kv,heads,kv_heads,head_dim,time_us"])
        write(os.path.join(out, gpu + ".csv"), head,
              from_llmservingsim(os.path.join(sources, "llmservingsim_profiles"), name))


main()
