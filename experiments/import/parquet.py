#!/usr/bin/env python3
"""Writes the tables of one GPU that profiles.py reads, out of the Python package aiconfigurator-core (Apache-2.0).

    pip download --no-deps aiconfigurator-core==0.12.0 && unzip -d PACKAGE aiconfigurator_core-*.whl
    experiments/import/parquet.py PACKAGE/aiconfigurator_core/systems/data GPU OUT    # GPU: h100_sxm, b200_sxm, l40s

OUT receives gzip'd CSV files, named by GPU, table and type. Rows are copied, of two kernels for one shape the quicker. All
are vLLM's but for products in fp8 with scales of 128 x 128: vLLM's short ones are timed with the host's launches, which
take 85 us on an H100 and 0.3 ms on an L40S whatever the shape. These are SGLang's, or where it has none TensorRT-LLM's and
the longer ones of vLLM. Needs pyarrow.
"""
import csv
import glob
import gzip
import io
import os
import sys

import pyarrow.parquet

VLLM, SGLANG, TRTLLM, NCCL = "vllm/0.24.0", "sglang/0.5.14", "trtllm/1.3.0rc20", "nccl/*"
WHOLE = {"kv_cache_dtype": "bfloat16", "window_size": 0, "head_dim": 128}
# What OUT calls a table; where it lies, in lists of which the first that has rows counts; which rows; a shape's columns.
TABLES = [
    ("gemm_bf16", [[("gemm", VLLM, "gemm")]], {"gemm_dtype": "bfloat16"}, ("m", "n", "k")),
    ("gemm_fp8", [[("gemm", VLLM, "gemm")]], {"gemm_dtype": "fp8"}, ("m", "n", "k")),
    ("gemm_fp8_block", [[("gemm", SGLANG, "gemm")], [("gemm", TRTLLM, "gemm"), ("gemm", VLLM, "gemm")]], {"gemm_dtype": "fp8_block"}, ("m", "n", "k")),
    ("context_attention_bf16", [[("attention", VLLM, "context_attention")]], WHOLE,
     ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")),
    ("generation_attention_bf16", [[("attention", VLLM, "generation_attention")]], WHOLE,
     ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "step")),
    ("moe_bf16", [[("moe", VLLM, "moe")]], {"moe_dtype": "bfloat16"},
     ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "distribution")),
    ("nccl_bf16", [[("comm", NCCL, "nccl")]], {"nccl_dtype": "half"}, ("op_name", "num_gpus", "message_size")),
]


def rows_of(folder, gpu, table, source, file, taken):
    """Those of the newest version, or none."""
    paths = sorted(glob.glob(os.path.join(folder, gpu, table, source, file + "_perf.parquet")))
    rows = pyarrow.parquet.read_table(paths[-1]).to_pylist() if paths else []
    return [r for r in rows if all(r[key] == value for key, value in taken.items()) and
            r["op_name"] not in ("alltoall", "reduce_scatter")]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    folder, gpu, out = sys.argv[1:]
    for name, sources, taken, shape in TABLES:
        found = ([r for place in places for r in rows_of(folder, gpu, *place, taken)] for places in sources)
        rows = next(filter(None, found), [])
        best = {}
        for r in rows:
            key = tuple(r[c] for c in shape)
            best[key] = min(best.get(key, r["latency"]), r["latency"])
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(shape + ("latency" if name.startswith("nccl") else "latency_ms",))
        lines.writerows(key + (repr(best[key]),) for key in sorted(best))
        if best:
            with open(os.path.join(out, "%s_%s.csv.gz" % (gpu, name)), "wb") as f:
                f.write(gzip.compress(text.getvalue().encode(), mtime=0))
        print("%s %s: %d rows" % (gpu, name, len(best)))


main()
