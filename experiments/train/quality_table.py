"""What quality.sh measured as one table: a line a run.

    quality_table.py OUT.csv RUNS.jsonl.gz FOLDER...     packs the folders' NAME.json first, if any are named
    quality_table.py pairs RUNS.jsonl.gz FOLDER NAME NAME ...   McNemar's exact test of neighbours: which one has right what

Each run keeps its folder's name: `alone` ran one at a time; the seconds of others, which shared the GPU, are not to be compared.
`p_one` is McNemar's exact probability that the run and its reference, one token a pass without a cache, are right equally often.
"""
import csv
import glob
import gzip
import json
import math
import os
import re
import sys

POLICY = re.compile(r"(?P<model>(?:sdar|llada2?)-\d+m)-(?P<task>[a-z0-9]+)-(?P<policy>.+)")
FIELDS = ("judged right accuracy accuracy_low accuracy_high compared agreement agreement_low agreement_high "
          "tokens_run_per_right").split()


def mcnemar(ours, theirs):
    """(gained, lost, p) of two strings of marks over the same prompts."""
    gained = sum(a == "1" and b == "0" for a, b in zip(ours, theirs))
    lost = sum(a == "0" and b == "1" for a, b in zip(ours, theirs))
    n, k = gained + lost, min(gained, lost)
    return gained, lost, min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n) if n else 1.0


def pack(path, folders):
    with gzip.GzipFile(path, "wb", mtime=0) as out:
        for folder in folders:
            for file in sorted(glob.glob(os.path.join(folder, "*.json"))):
                run = {"folder": os.path.basename(folder.rstrip("/")), "name": os.path.basename(file)[:-5]}
                with open(file) as text:
                    run.update(json.load(text))
                out.write((json.dumps(run) + "\n").encode())


def print_pairs(path, folder, names):
    with gzip.open(path, "rt") as file:
        runs = {r["name"]: r for r in map(json.loads, file) if r["folder"] == folder}
    for a, b in zip(names[::2], names[1::2]):
        gained, lost, p = mcnemar(runs[a]["quality"]["marks"], runs[b]["quality"]["marks"])
        print(f"{folder} {a} {100 * runs[a]['quality']['accuracy']:.1f} % {b} {100 * runs[b]['quality']['accuracy']:.1f} % "
              f"first alone right {gained}, second alone right {lost}, p {p:.2g}")


def main():
    if sys.argv[1] == "pairs":
        return print_pairs(sys.argv[2], sys.argv[3], sys.argv[4:])
    if sys.argv[3:]:
        pack(sys.argv[2], sys.argv[3:])
    with gzip.open(sys.argv[2], "rt") as file:
        runs = [json.loads(line) for line in file]
    marks = {(r["folder"], r["name"]): r["quality"]["marks"] for r in runs}
    with open(sys.argv[1], "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow("gpu folder model task policy system".split() + FIELDS +
                       "gained_on_one lost_on_one p_one passes tpf tpf_answer tokens_run seconds seconds_per_right".split())
        for r in runs:
            of, q = POLICY.fullmatch(r["name"]).groupdict(), r["quality"]
            one = marks.get((r["folder"], f"{of['model']}-{of['task']}-one"))
            pair = mcnemar(q["marks"], one) if one and of["policy"] != "one" else ("", "", "")
            table.writerow([r["gpu"], r["folder"], of["model"], of["task"], of["policy"], r["system"]] +
                           ["" if q[k] is None else q[k] for k in FIELDS] + list(pair) +
                           [r["request_steps"], r["tpf"], r["tpf_answer"], r["tokens_processed"], r["makespan_s"],
                            r["makespan_s"] / q["right"] if q["right"] else ""])


if __name__ == "__main__":
    main()
