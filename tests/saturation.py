#!/usr/bin/env python3
"""How often the verdict on saturation is right: `make saturation`, or tests/saturation.py PROGRAM [options].

Of each system, arrival process, number of requests and seed the capacity is found first: the rate at which the same requests are served when
all wait. They then come at 0.8, 1.2 and 1.7 times that rate, which is met exactly: what a process offers is a multiple of the rate asked for,
read from the run in which all wait. A seed of burst-replay is a starting row of BurstGPT's slice, which wraps around.

Each cell counts the seeds whose verdict is right (steady at 0.8, saturated at 1.2 and 1.7); "2?" after it are seeds of which the run cannot
tell. Wanted of 20 seeds: at most one saturated at 0.8, at most one that is not at 1.2 and none at 1.7, and from 2,000 requests on at most two
that cannot tell. "!" marks what misses that, and the status is then 1."""
import argparse
import concurrent.futures
import csv
import json
import os
import subprocess
import sys
import tempfile

TRACES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../traces")
SAMPLE = os.path.join(TRACES, "samples/burstgpt_head400.csv")
WORKLOAD = os.path.join(TRACES, "workloads/burst-replay.ini")
AT_ONCE = 1e6  # requests a second
LOADS = {0.8: "steady", 1.2: "saturated", 1.7: "saturated"}
SYSTEMS = {
    "dllm-serve": ["--system", "dllm-serve"],
    "static": ["--system", "fast-dllm"],
    "M/D/1": ["--system", "vanilla", "--set", "max_requests=1", "--input-tokens", "64", "--output-tokens", "64"],
}
ARRIVALS = ["poisson", "gamma-3", "gamma-5", "bursts", "burst-replay"]
# More of the same kinds, for --systems and --arrivals.
OTHER_SYSTEMS = {
    "static-h200": ["--system", "fast-dllm", "--gpu", "h200"],
    "static-64": ["--system", "vanilla", "--gpu", "h200", "--set", "max_requests=64"],
    "dllm-serve-h200": ["--system", "dllm-serve", "--gpu", "h200"],
    "replicas-4": ["--system", "dllm-serve", "--replicas", "4"],
    "shortest-left": ["--system", "dllm-serve", "--scheduler", "shortest-left"],
    "look-ahead": ["--system", "dllm-serve", "--scheduler", "look-ahead"],
    "sparse-dllm": ["--system", "sparse-dllm", "--gpu", "rtx4090"],
    "vllm-ar-h200": ["--system", "vllm-ar", "--gpu", "h200"],
    "sdar-h100": ["--system", "sdar", "--gpu", "h100"],
}


class Trial:
    """One system, process, number of requests and seed."""

    def __init__(self, program, folder, system, arrivals, requests, seed):
        self.program, self.folder, self.seed = program, folder, seed
        self.system, self.arrivals, self.requests = system, arrivals, requests

    def process(self, rate):
        """Options of the arrivals; bursts are 40 mean gaps of 160 requests, and 160 gaps of quiet."""
        name, _, cv = self.arrivals.partition("-")
        if self.arrivals == "burst-replay":
            return ["--workload", os.path.join(self.folder, f"replay-{first_row(self.seed)}.ini")]
        key = "--set", "workload.arrivals."
        if name == "gamma" or name == "weibull":
            return ["--arrivals", name, key[0], f"{key[1]}cv={cv}"]
        if name == "bursts":
            gap = 1e9 / rate
            times = {"on_ns": 40 * gap, "off_ns": 160 * gap, "burst": 4} if not cv else {
                "on_ns": float(cv) * gap, "off_ns": 3 * float(cv) * gap, "burst": 3}
            return ["--arrivals", name] + [x for k, v in times.items() for x in (key[0], f"{key[1]}{k}={v:.0f}")]
        return ["--arrivals", name]

    def run(self, rate):
        words = [self.program, "run", "--json", *SYSTEMS.get(self.system, OTHER_SYSTEMS.get(self.system)), *self.process(rate),
                 "--rate", f"{rate:.9g}", "--requests", str(self.requests), "--seed", str(self.seed)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def verdicts(self):
        once = self.run(AT_ONCE)
        capacity, met = once["throughput_req_s"], once["offered"]["rate_req_s"] / AT_ONCE
        return {load: self.run(load * capacity / met)["offered"] for load in LOADS}


def write_replays(folder, seeds):
    """INIs of burst-replay whose trace begins with another row."""
    head, *rows = csv.reader(open(SAMPLE))
    times = [float(row[0]) for row in rows]
    period = (times[-1] - times[0]) * len(rows) / (len(rows) - 1)
    ini = open(WORKLOAD).read()
    for start in {first_row(seed) for seed in seeds}:
        name = os.path.join(folder, f"replay-{start}")
        with open(name + ".csv", "w", newline="") as out:
            write = csv.writer(out)
            write.writerow(head)
            for i in (*range(start, len(rows)), *range(start)):
                write.writerow([f"{times[i] - times[start] + (period if i < start else 0):.3f}", *rows[i][1:]])
        with open(name + ".ini", "w") as out:
            out.write(ini.replace("../samples/burstgpt_head400.csv", name + ".csv"))


def first_row(seed):
    return 20 * seed % 400 + seed // 20 % 20


def count(pool, trials):
    """What was offered in each run, by number of requests and load, in the order of the trials."""
    offered = {}
    for trial, found in zip(trials, pool.map(Trial.verdicts, trials)):
        for load, verdict in found.items():
            offered.setdefault((trial.requests, load), []).append((trial, verdict))
    return offered


def judge(offered, n, load):
    """How many are right and cannot tell, and whether that is not as wanted."""
    states = [verdict["state"] for _, verdict in offered]
    right, unknown = states.count(LOADS[load]), states.count("cannot tell")
    wrong = len(states) - right - (unknown if load < 1 else 0)
    is_bad = wrong > (0 if load > 1.5 else len(states) // 20) or (n >= 2000 and unknown > len(states) // 10)
    return right, unknown, is_bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help=f"or of {', '.join(OTHER_SYSTEMS)}")
    parser.add_argument("--arrivals", default=",".join(ARRIVALS), help="also weibull-CV, bursts-GAPS and what `list arrivals` names")
    parser.add_argument("--requests", default="500,2000,20000")
    parser.add_argument("--seeds", default="101:121", help="from:to, without the last")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true", help="print every verdict that is not right")
    args = parser.parse_args()
    requests = [int(n) for n in args.requests.split(",")]
    seeds = range(*map(int, args.seeds.split(":")))
    columns = [(n, load) for n in requests for load in LOADS]
    print(f"right of {len(seeds)} seeds, from {seeds[0]} to {seeds[-1]}")
    print(f"{'system':<16}{'arrivals':<14}" + "".join(f"{f'{n} at {load}':>14}" for n, load in columns), flush=True)
    missed = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        write_replays(folder, seeds)
        for system in args.systems.split(","):
            for arrivals in args.arrivals.split(","):
                offered = count(pool, [Trial(args.program, folder, system, arrivals, n, seed) for n in requests for seed in seeds])
                line = f"{system:<16}{arrivals:<14}"
                for n, load in columns:
                    right, unknown, is_bad = judge(offered[n, load], n, load)
                    missed += is_bad
                    line += f"{f'{right}' + (f' {unknown}?' if unknown else '') + ('!' if is_bad else ' '):>14}"
                    for trial, verdict in offered[n, load]:
                        if args.verbose and verdict["state"] != LOADS[load]:
                            print(system, arrivals, n, load, "seed", trial.seed, verdict, file=sys.stderr, flush=True)
                print(line, flush=True)
    print(f"{missed} cells miss what is wanted" if missed else "every cell is as wanted")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
