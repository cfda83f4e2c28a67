#!/usr/bin/env python3
"""Fail n = 1, 2, 3, ... until it passes: every command, with every kind of fault, one at a time.

    python3 tests/torture/each.py [--most N] [--jobs N] [--kinds alloc,file,device,io,write] [COMMAND...]

Where there are more than N chances (default: 40; 0: no bound), N of them are tried, spread evenly.
Prints a table of verdicts, and below it every complaint once with the fault that repeats it:

    status 1   ended with a sentence          same      status 0, and what was printed is the same,
                                                        or all but an identity that it does not know
    killed     by the signal that was asked   other     status 0, and something else was printed
    blames     status 1, out of memory, and the sentence speaks of something else
    broken     hangs, crashes, reports of sanitizers, internal errors, no sentence
"""
import argparse
import collections
import concurrent.futures
import os
import shutil
import sys
import tarfile
import tempfile

import program
from program import PLUGINS, ROOT, Run

TINY = ["--requests", "3", "--rate", "1", "--input-tokens", "24", "--output-tokens", "32"]
LIVE = ["--backend", "cpu", "--clock", "virtual", *TINY[:2], "--input-tokens", "8",
        "--output-tokens", "8"]
SWEEP = """[sweep]
systems = dllm-serve, fast-dllm
gpus = l40s
workloads = burst
rates = 0.5, 1
requests = 3
"""
FIGURE = """[figure]
title = one
kind = lines
x_label = rate
y_label = seconds
query = SELECT system AS series, rate AS x, latency_s_p99 AS y FROM run
[run]
system = dllm-serve
gpu = l40s
workload = burst
rate = 0.5, 1
requests = 3
"""
RANKING = """[one]
claim = dLLM-Serve serves more than Fast-dLLM
systems = dllm-serve, fast-dllm
gpu = l40s
workloads = burst
rate = 1
printed = 1.5
key = profile_canvas_tokens
of = second
values = 4096, 2374
why = as a test
"""
SERVER = "arrival_us,input_tokens,output_tokens,first_token_us,last_token_us\n" + "".join(
    f"{i * 100000},{40 + i},20,{i * 100000 + 30000},{i * 100000 + 400000}\n" for i in range(6))

with tarfile.open(os.path.join(ROOT, "tests/golden/allocations.tar.gz")) as archive:
    STREAM = archive.extractfile("llada-limited.csv").read().decode()

# What runs before, in a folder of its own: files that the commands read.
FILES = {"sweep.ini": SWEEP, "cards.ini": SWEEP.replace("l40s", "h100, rtx3090"), "figure.ini": FIGURE, "server.csv": SERVER, "sensitivity.ini": RANKING,
         "card.ini": open(os.path.join(ROOT, "sim/model/gpus/h100.ini")).read(),
         "stream.csv": STREAM,
         "prompts.jsonl": '{"prompt": "Tom has 3 apples and buys 4. How many?", "answer": "7"}\n'}
BEFORE = [
    ["run", *TINY, "--db", "r.db", "--levels", "steps", "--decode-out", "d.db"],
    ["run", *LIVE, "--model", "llada-tiny", "--db", "r.db", "--levels", "steps", "--decode-out", "l.db"],
    ["replay", "--db", "r.db", "--run", "2", "--backend", "cpu", "--steps", "steps.csv"],
    ["profile", "pack", f"{ROOT}/kernels/profiles/h100/llada-moe.csv", "--out", "moe.pack"],
]
MODELS = os.path.join(ROOT, "experiments/train/models")
COMMANDS = {
    "run": ["run", *TINY],
    "run --db": ["run", *TINY, "--db", "r.db", "--levels", "events"],
    "run, other files": ["run", *TINY, "--json", "--timeline", "t.json", "--decode-out", "o.db"],
    "run --decode": ["run", *TINY, "--json", "--decode", "d.db"],
    "run, a plug-in": ["run", *TINY, "--scheduler", f"{PLUGINS}/template_scheduler.so"],
    "run, a model's profile": ["run", *TINY, "--json", "--model", "dream-7b", "--gpu", "h200"],
    "run, transferred prices": ["run", *TINY, "--json", "--gpu", "h800", "--price-source", "measured"],
    "run, a checkpoint's model": ["run", *TINY, "--json", "--model",
                                  f"{MODELS}/llada-2m"],
    "run on the CPU": ["run", *LIVE, "--model", "llada-tiny", "--db", "r.db", "--levels", "steps"],
    "run on ranks": ["run", *LIVE, "--system", "sdar", "--model", "sdar-tiny", "--set",
                     "tensor_parallel=2"],
    "compare": ["compare", "--systems", "dllm-serve,fast-dllm", *TINY],
    "sweep, one source": ["sweep", "cards.ini", "--price-source", "one", "--json"],
    "sweep": ["sweep", "sweep.ini", "--db", "s.db", "-j", "1"],
    "explain": ["explain"],
    "plan": ["plan", "--system", "mosaic", "--model", "llada-tiny"],
    "plan lmax": ["plan", "lmax", "--model", "llada-tiny"],
    "plan latency": ["plan", "latency", "--model", "llada-tiny"],
    "plan allocator": ["plan", "allocator", "--stream", "stream.csv"],
    "profile check": ["profile", "check", "rtx4090"],
    "list": ["list", "--json"],
    "report": ["report", "r.db", "--out", "r.html"],
    "plot": ["plot", "r.db", "-x", "run", "-y", "latency_s.p99,tpf", "--by", "system", "--out", "p.svg"],
    "plot --cdf": ["plot", "r.db", "--cdf", "latency_s,ttft_s", "--by", "run", "--out", "p.csv"],
    "plot --over-time": ["plot", "r.db", "--over-time", "batch,running", "--json"],
    "replay": ["replay", "--db", "r.db", "--run", "1"],
    "replay, live": ["replay", "--db", "r.db", "--run", "2", "--backend", "cpu"],
    "figure": ["figure", "figure.ini", "--out", "."],
    "fit": ["fit"],
    "fit decode": ["fit", "decode", "--from", "l.db", "--judge", "l.db", "--out", "decode.ini"],
    "capacity": ["capacity", "--slo", "p99 latency<30s", "--systems", "dllm-serve,fast-dllm",
                 "--requests", "3", "--input-tokens", "24", "--output-tokens", "32", "--within", "20", "--out", "."],
    "bound": ["bound", *TINY],
    "run --bound": ["run", "--bound", *TINY, "--json"],
    "trace info": ["trace", "info", "server.csv", "--columns",
                   "time=arrival_us:us,input=input_tokens,output=output_tokens"],
    "trace convert": ["trace", "convert", "burst", "--requests", "9", "--to", "mooncake", "--out", "t.jsonl"],
    "profile accuracy": ["profile", "accuracy", "--steps", "steps.csv", "--model", "llada-tiny", "--gpu", "cpu"],
    "list gpus": ["list", "gpus"],
    "list profiles": ["list", "profiles"],
    "profile transfer": ["profile", "transfer", "--from", "l40s", "--to", "a100-80g", "--out", "p.csv"],
    "profile pack": ["profile", "pack", f"{ROOT}/kernels/profiles/h100/llada-moe.csv", "--out", "p.pack"],
    "profile add": ["profile", "add", "moe.pack", "--gpu", "./card.ini", "--replace"],
    "calibrate --describe": ["calibrate", "--describe", "--backend", "cpu", "--out", "d.ini"],
    "sensitivity": ["sensitivity", "--file", "sensitivity.ini"],
    "validate": ["validate", "--measured", "server.csv", "--json"],
    "generate": ["generate", "--backend", "cpu", "--model", "llada-tiny", "--ids", "1,2,3",
                 "--output-tokens", "16"],
    "generate, texts": ["generate", "--backend", "cpu", "--weights", f"{MODELS}/llada-2m",
                        "--prompts", "prompts.jsonl", "--output-tokens", "8"],
    "check-plugin": ["check-plugin", f"{PLUGINS}/template_cache.so"],
    "calibrate": ["calibrate", "--backend", "cpu", "--model", "llada-tiny", "--out", "c.csv", "--quick",
                  "--max-tokens", "64", "--minutes", "0.02"],
}
SOME = {"io": ["once", "on", "kill", "power"], "write": ["short", "full", "torn"]}


def prepare():
    folder = tempfile.mkdtemp(prefix="torture-each-")
    for name, text in FILES.items():
        open(os.path.join(folder, name), "w").write(text)
    for args in BEFORE:
        run = Run(args, folder)
        assert run.status == 0, run.err
    return folder


def spread(n, most):
    return range(1, n + 1) if most == 0 or n <= most else sorted(
        {1 + i * (n - 1) // max(most - 1, 1) for i in range(most)})


def one(args, base, fault, whole):
    """The verdict of one run, and what to say about it."""
    with tempfile.TemporaryDirectory(prefix="torture-each-") as parent:
        folder = os.path.join(parent, "run")
        shutil.copytree(base, folder)
        run = Run(args, folder, fault)
        complaints = run.complaints()
        if complaints:
            return "broken", complaints[0]
        if run.status < 0:
            return "killed", ""
        if fault.startswith("alloc") and run.fired and run.status > 0 and \
                not program.memory_is_named(run):
            return "blames", run.sentence()
        if run.status > 0:
            return "status 1", ""
        if whole is not None and not program.same(run.out, whole):
            return "other", f"status 0, {run.fired}, {len(run.out)} bytes instead of {len(whole)}"
        return "same", ""


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--most", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--kinds", default="alloc,file,device,io,write")
    parser.add_argument("commands", nargs="*")
    asked = parser.parse_args()
    base = prepare()
    verdicts = ["status 1", "same", "killed", "blames", "other", "broken"]
    print("| command | fault | chances | tried |", " | ".join(verdicts), "|")
    print("|---|---|--:|--:|" + "--:|" * len(verdicts), flush=True)
    said, total = collections.OrderedDict(), collections.Counter()
    pool = concurrent.futures.ThreadPoolExecutor(asked.jobs)
    for name in asked.commands or COMMANDS:
        args = COMMANDS[name]
        with tempfile.TemporaryDirectory(prefix="torture-each-") as parent:
            folder = os.path.join(parent, "run")
            shutil.copytree(base, folder)
            whole = Run(args, folder)
        if whole.status != 0 or whole.complaints():
            print(f"{name}: not even without a fault: status {whole.status} {whole.err}", flush=True)
            total["broken"] += 1
            continue
        is_measured = "calibrate" in args or "latency" in args or "cpu" in args and "generate" not in args
        for kind in asked.kinds.split(","):
            faults = [f"{kind}:{n}:{how}" for how in SOME.get(kind, ["once"])
                      for n in spread(whole.chances[kind], asked.most)]
            done = pool.map(lambda fault: (fault, *one(args, base, fault,
                                                       None if is_measured else whole.out)), faults)
            counts = collections.Counter()
            for fault, verdict, text in done:
                counts[verdict] += 1
                if verdict in ("broken", "other", "blames"):
                    said.setdefault(f"{verdict}: {text}", []).append((fault, name))
            total.update(counts)
            if faults:
                print(f"| {name} | {kind} | {whole.chances[kind]} | {len(faults)} |",
                      " | ".join(str(counts[v]) for v in verdicts), "|", flush=True)
    print("| all | | |", sum(total.values()), "|", " | ".join(str(total[v]) for v in verdicts), "|")
    for text, cases in sorted(said.items(), key=lambda item: -len(item[1])):
        print(f"{len(cases)} times {text}\n    UNMASK_FAULT={cases[0][0]} {cases[0][1]}")
    shutil.rmtree(base)
    return int(total["broken"] + total["other"] > 0)


if __name__ == "__main__":
    sys.exit(main())
