"""What aup.sh measured: a line a run, and the area under each curve of accuracy over tokens a pass (AUP; hao-ai-lab/d3LLM).

    aup.py passes RUN.json TRACE.db      one run's line: tokens a pass, right answers, passes by kind
    aup.py table FOLDER                  all runs and all areas, to read
    aup.py csv FOLDER|FILE...            a line a run, with its curve's area: what `unmask figure aup aup-curves` draws; FILE: such lines

Of a curve's points in order of tokens a pass, (r1, y1) is the model's own at one token a pass, or at a threshold of 0.95 where
that was not run, with y in percent; points below y1 - 5 are left out; the area is r1 y1 and, of each two neighbours, (r2 - r1) times the mean of y W(y), W(y) being
exp(-3 (1 - y / most)) and `most` the best accuracy of any decoder on that task. A pass commits something, or replaces tokens and
commits nothing, or does neither: one that finds that all is done, one that stores a block, and all of a canvas of random
tokens but its last.

An area's interval (95 %) is of the same rule on shares of right answers drawn anew for all runs at once, each from a beta distribution of its right and
wrong answers and half of one more of either (Jeffreys). Runs are drawn independently, though all judge the same problems: differences of areas
are surer than the intervals say.
"""
import csv as lines
import glob
import json
import math
import os
import random
import re
import sqlite3
import sys

RUN = re.compile(r"(?P<model>.+?)-(?P<task>easy|hops|lookup|gsm)-(?P<decoder>[a-z0-9-]+)@(?P<setting>.+)\.json")
KINDS = ("committing", "replacing", "other")
DRAWS = 2000


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


def curves(runs, share=lambda key, r: r["right"] / r["judged"]):
    """By model, task and decoder its points, the first of which all curves of a model share. share: of right answers, of a run."""
    shares, of = {key: 100 * share(key, r) for key, r in runs.items()}, {}
    for (model, task, decoder, setting), r in runs.items():
        of.setdefault((model, task, decoder), []).append((r["tokens_a_pass"], shares[model, task, decoder, setting]))
    for (model, task, _), points in of.items():
        one = next((key for key in ((model, task, "threshold", "one"), (model, task, "threshold", "0.95")) if key in runs), None)
        if one:
            first = (runs[one]["tokens_a_pass"], shares[one])
            points[:] = [first] + sorted(p for p in points if p[0] > first[0])
        points.sort()
    return of


def best_of(of):
    best = {}
    for (_, task, _), points in of.items():
        best[task] = max([best.get(task, 0)] + [y for _, y in points])
    return best


def areas(of):
    best = best_of(of)
    return {key: area(points, best[key[1]]) for key, points in of.items()}


def intervals(runs, n=DRAWS):
    """Of each area: the 2.5th and the 97.5th percentile of n draws, or itself where all of a run's answers are right and draws are lower."""
    draws = {key: random.Random("/".join(key)) for key in runs}  # each run's own, whatever others there are

    def share(key, r):
        return draws[key].betavariate(r["right"] + 0.5, r["judged"] - r["right"] + 0.5)
    drawn = [areas(curves(runs, share)) for _ in range(n)]
    found = {}
    for key, at in areas(curves(runs)).items():
        of = sorted(d[key] for d in drawn)
        found[key] = min(of[round(0.025 * (n - 1))], at), max(of[round(0.975 * (n - 1))], at)
    return found


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
    found, within = areas(of), intervals(runs)
    print("\n| task | model | decoder | AUP | 95 % | most tokens a pass within 5 points |")
    print("|---|---|---|--:|--:|--:|")
    for key, points in sorted(of.items(), key=lambda e: (e[0][1], -found[e[0]])):
        low, high = within[key]
        print(f"| {key[1]} | {key[0]} | {key[2]} | {found[key]:.0f} | {low:.0f} to {high:.0f} | {near(points):.2f} |")


def csv(runs):
    of = curves(runs)
    found, within = areas(of), intervals(runs)
    print("model,task,decoder,setting,tokens_a_pass,right,judged,low,high,committing,replacing,other,replaced,area,near,first,"
          "area_low,area_high")
    for (model, task, decoder, setting), r in sorted(runs.items()):
        points = of[model, task, decoder]
        numbers = [f"{r['tokens_a_pass']:.4f}", r["right"], r["judged"], f"{r['low']:.4f}", f"{r['high']:.4f}",
                   *(r[k] for k in KINDS), r["replaced"], f"{found[model, task, decoder]:.0f}", f"{near(points):.4f}",
                   f"{points[0][0]:.4f}", *(f"{a:.0f}" for a in within[model, task, decoder])]
        print(",".join([model, task, decoder, setting, *map(str, numbers)]))


def read_lines(path):
    runs = {}
    with open(path, newline="") as text:
        for line in lines.DictReader(text):
            key = tuple(line.pop(k) for k in ("model", "task", "decoder", "setting"))
            runs[key] = {k: float(v) if k in ("tokens_a_pass", "low", "high") else int(float(v)) for k, v in line.items()}
    return runs


def main():
    if sys.argv[1] == "passes":
        return passes(sys.argv[2], sys.argv[3])
    runs = {}
    for path in sys.argv[2:]:
        runs.update(read_lines(path) if os.path.isfile(path) else {})
        for file in sorted(glob.glob(os.path.join(path, "*@*.json"))):
            with open(file) as text:
                key = tuple(RUN.fullmatch(os.path.basename(file)).groupdict().values())
                runs[*key[:3], key[3].replace(",", "/")] = json.load(text)
    (csv if sys.argv[1] == "csv" else table)(runs)


if __name__ == "__main__":
    main()
