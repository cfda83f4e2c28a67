"""What aup.sh measured: a line a run, and the area under each curve of accuracy over tokens a pass (AUP; hao-ai-lab/d3LLM).

    aup.py passes RUN.json TRACE.db      one run's line: tokens a pass, right answers, passes by kind
    aup.py table FOLDER                  all runs and all areas, to read
    aup.py csv FOLDER                    a line a run, with its curve's area: what `unmask figure aup aup-curves` draws

Of a curve's points in order of tokens a pass, (r1, y1) is the model's own at one token a pass, or at a threshold of 0.95 where
that was not run, with y in percent; points below y1 - 5 are left out; the area is r1 y1 and, of each two neighbours, (r2 - r1) times the mean of y W(y), W(y) being
exp(-3 (1 - y / most)) and `most` the best accuracy of any decoder on that task. A pass commits something, or replaces tokens and
commits nothing, or does neither: one that finds that all is done, one that stores a block, and all of a canvas of random
tokens but its last.
"""
import glob
import json
import math
import os
import re
import sqlite3
import sys

RUN = re.compile(r"(?P<model>.+?)-(?P<task>easy|hops|lookup|gsm)-(?P<decoder>[a-z0-9-]+)@(?P<setting>.+)\.json")
KINDS = ("committing", "replacing", "other")


def passes(run, trace):
    with open(run) as text:
        r = json.load(text)
    with sqlite3.connect(trace) as db:
        kinds = db.execute("select sum(committed > 0), sum(committed = 0 and ifnull(revisions, 0) > 0), "
                           "sum(committed = 0 and ifnull(revisions, 0) = 0), sum(ifnull(revisions, 0)) from pass").fetchone()
    q = r["quality"]
    print(json.dumps(dict(zip(KINDS + ("replaced",), kinds), tokens_a_pass=r["tpf_answer"], judged=q["judged"], right=q["right"],
                          low=q["accuracy_low"], high=q["accuracy_high"], tokens_processed=r["tokens_processed"])))


def area(points, most):
    """points: (tokens a pass, percent right), in order; the first is where others begin."""
    r1, y1 = points[0]
    kept = [p for p in points if p[1] >= y1 - 5]

    def weighed(y):
        return y * min(math.exp(-3 * (1 - y / most)), 1)
    return r1 * y1 + sum((b[0] - a[0]) * (weighed(a[1]) + weighed(b[1])) / 2 for a, b in zip(kept, kept[1:]))


def curves(runs):
    """By model, task and decoder its points, the first of which all curves of a model share."""
    of = {}
    for (model, task, decoder, _), r in runs.items():
        of.setdefault((model, task, decoder), []).append((r["tokens_a_pass"], 100 * r["right"] / r["judged"]))
    for (model, task, _), points in of.items():
        one = runs.get((model, task, "threshold", "one")) or runs.get((model, task, "threshold", "0.95"))
        if one:
            first = (one["tokens_a_pass"], 100 * one["right"] / one["judged"])
            points[:] = [first] + sorted(p for p in points if p[0] > first[0])
        points.sort()
    return of


def best_of(of):
    best = {}
    for (_, task, _), points in of.items():
        best[task] = max([best.get(task, 0)] + [y for _, y in points])
    return best


def near(points):
    """The most tokens a pass within five points of the first one."""
    return max(r for r, y in points if y >= points[0][1] - 5)


def table(runs):
    print("| model | task | decoder | setting | tokens a pass | right % | committing, replacing, other passes an answer |")
    print("|---|---|---|---|--:|--:|--:|")
    for key, r in sorted(runs.items()):
        kinds = ", ".join(f"{r[k] / r['judged']:.2f}" for k in KINDS)
        print(f"| {' | '.join(key)} | {r['tokens_a_pass']:.2f} | {100 * r['right'] / r['judged']:.1f} | {kinds} |")
    of = curves(runs)
    best = best_of(of)
    print("\n| task | model | decoder | AUP | most tokens a pass within 5 points |")
    print("|---|---|---|--:|--:|")
    for (model, task, decoder), points in sorted(of.items(), key=lambda e: (e[0][1], -area(e[1], best[e[0][1]]))):
        print(f"| {task} | {model} | {decoder} | {area(points, best[task]):.0f} | {near(points):.2f} |")


def csv(runs):
    of = curves(runs)
    best = best_of(of)
    print("model,task,decoder,setting,tokens_a_pass,right,judged,low,high,committing,replacing,other,replaced,area,near,first")
    for (model, task, decoder, setting), r in sorted(runs.items()):
        points = of[model, task, decoder]
        numbers = [f"{r['tokens_a_pass']:.4f}", r["right"], r["judged"], f"{r['low']:.4f}", f"{r['high']:.4f}",
                   *(r[k] for k in KINDS), r["replaced"], f"{area(points, best[task]):.0f}", f"{near(points):.4f}",
                   f"{points[0][0]:.4f}"]
        print(",".join([model, task, decoder, setting.replace(",", "/"), *map(str, numbers)]))


def main():
    if sys.argv[1] == "passes":
        return passes(sys.argv[2], sys.argv[3])
    runs = {}
    for file in sorted(glob.glob(os.path.join(sys.argv[2], "*@*.json"))):
        with open(file) as text:
            runs[tuple(RUN.fullmatch(os.path.basename(file)).groupdict().values())] = json.load(text)
    (csv if sys.argv[1] == "csv" else table)(runs)


if __name__ == "__main__":
    main()
