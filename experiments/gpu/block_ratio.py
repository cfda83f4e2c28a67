"""FOCUS's decoding steps beside LMDeploy's in the output of block_diffusion.sh: FLOPs and device
time of one over the other, and what FOCUS's steps took beyond the prediction that the run's step files hold.

Usage: python3 experiments/gpu/block_ratio.py FOLDER [BATCH...]
"""
import csv
import statistics
import sys

# SDAR-8B: channels, query and key heads' channels, FFN, vocabulary, layers (sim/model/models).
C, Q, KV, F, V, LAYERS = 4096, 4096, 2048, 12288, 151936, 36
QKV, REST = 2 * C * (Q + KV), 2 * Q * C + 2 * 3 * C * F


def flops(row, evicts):
    """Layer 0 and layer 1's first product run over all tokens, what is behind over those kept."""
    n = {name: int(row[name]) for name in
         ("tokens", "kept_tokens", "logit_rows", "block_qk", "prefill_qk", "kept_qk")}
    kept = n["kept_tokens"] if evicts else n["tokens"]
    pairs = n["block_qk"] + n["prefill_qk"]
    kept_pairs = n["kept_qk"] + n["prefill_qk"] if evicts else pairs
    return (n["tokens"] * (2 * QKV + REST) + kept * REST + (LAYERS - 2) * kept * (QKV + REST)
            + n["logit_rows"] * 2 * C * V + 4 * Q * (pairs + (LAYERS - 1) * kept_pairs))


def decoding(path):
    return [row for row in csv.DictReader(open(path))
            if row["kind"] == "reuse" and int(row["logit_rows"]) > 0]


def mean(rows, value):
    return sum(value(r) * int(r["steps"]) for r in rows) / sum(int(r["steps"]) for r in rows)


folder, batches = sys.argv[1], sys.argv[2:] or ["32", "64", "128", "256"]
for batch in batches:
    plain, focus = (decoding(f"{folder}/{s}-{batch}-steps.csv") for s in ("lmdeploy", "focus"))
    work = mean(focus, lambda r: flops(r, True)) / mean(plain, lambda r: flops(r, False))
    time = mean(focus, lambda r: float(r["measured_device_ns"])) / mean(
        plain, lambda r: float(r["measured_device_ns"]))
    beyond = sorted(float(r["measured_device_ns"]) - float(r["predicted_device_ns"]) for r in focus)
    print(f"batch {batch:>3}  FLOPs {work:.3f}  device time {time:.3f}  beyond the prediction "
          f"{statistics.median_high(beyond) / 1e3:.0f} us (median of {len(beyond)})")
