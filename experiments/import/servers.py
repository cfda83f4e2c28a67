#!/usr/bin/env python3
"""Writes experiments/study/reference/vllm_*.csv: request timings of real vLLM servers.

    experiments/import/servers.py CHECKOUT OUT

CHECKOUT is a clone of casys-kaist/LLMServingSim with bench/examples and workloads. OUT receives one
CSV a server, a trace and a measurement in one: `unmask validate --measured` and every trace reader of
the program take it. Python's standard library only.

Times are whole microseconds since the first request's arrival. The source keeps arrivals by the wall
clock and all else by a monotonic one; the offset between them is taken from the request that was
queued soonest after it arrived, so that its way into the engine counts as 0. prefix_tokens, where
they are asked for, count the leading tokens that an earlier prompt of the workload begins with, too.
"""
import csv
import json
import os
import sys

WORKLOAD = "workloads/sharegpt-llama-3.1-8b-300-sps10.jsonl"
# The 4090's pool is full most of the time and evicts what prompts share before it is asked for.
SERVERS = {"RTXPRO6000": ("vllm_llama31_8b_rtx_pro_6000.csv", True),
           "RTX4090": ("vllm_llama31_8b_rtx4090.csv", False)}


def lines_of(path):
    with open(path) as f:
        return [json.loads(line) for line in f if line.strip()]


def shared_prefixes(prompts):
    """For each prompt the longest beginning that it has in common with an earlier one."""
    out = []
    for i, prompt in enumerate(prompts):
        best = 0
        for other in prompts[:i]:
            n = 0
            while n < min(len(prompt), len(other)) and prompt[n] == other[n]:
                n += 1
            best = max(best, n)
        out.append(best)
    return out


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    checkout, out = sys.argv[1:]
    workload = lines_of(os.path.join(checkout, WORKLOAD))
    prefixes = shared_prefixes([row["input_tok_ids"] for row in workload])
    for gpu, (name, shares) in SERVERS.items():
        rows = lines_of(os.path.join(checkout, "bench/examples", gpu,
                                     "Llama-3.1-8B/vllm/requests.jsonl"))
        offset = min(r["queued_ts"] - r["arrival_time"] for r in rows)
        first = min(r["arrival_time"] for r in rows) + offset
        with open(os.path.join(out, name), "w", newline="\n") as f:
            write = csv.writer(f, lineterminator="\n").writerow
            write(["arrival_us", "input_tokens", "output_tokens"] +
                  (["prefix_tokens"] if shares else []) +
                  ["queued_us", "scheduled_us", "first_token_us", "last_token_us"])
            for row, asked, prefix in zip(rows, workload, prefixes):
                assert row["input_toks"] == len(asked["input_tok_ids"])
                assert row["output_toks"] == asked["output_toks"]
                times = [row["arrival_time"] + offset, row["queued_ts"], row["scheduled_ts"],
                         row["first_token_ts"], row["last_token_ts"]]
                times = [round((t - first) * 1e6) for t in times]
                write([times[0], row["input_toks"], row["output_toks"]] +
                      ([prefix] if shares else []) + times[1:])


main()
