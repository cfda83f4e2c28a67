#!/usr/bin/env python3
"""What decisions.sh measured and simulated: errors, ranks, regret, distances of latency.

Usage: decisions_table.py OUT

Of each part, run by run: the live value and the simulations' errors; those of the live batches at the
shipped profile's prices (batches): what is left is the prices' doing; and what a second live run
differs by (again), below which no simulation can be told from the GPU. Then, over its configurations,
Kendall's tau (b: a simulation that serves two configurations alike is neither right nor wrong about
them), the live gap of the widest pair in the wrong order, and the regret: how much worse the
configuration that the simulation chooses really is than the best one. The distance is that of
Kolmogorov and Smirnov between the distributions of latency, live and simulated. Apart are the requests
that were admitted with others than live: where a batch waits for the one before, a request that arrives
a millisecond before or after its end decides what all later ones hold. Where that was so of more than
an eighth of the requests, errors are also given without those configurations.
"""
import glob
import json
import os
import sqlite3
import sys

PARTS = ("grid", "idle", "twice", "pressure", "sdar-pressure", "sdar", "mini", "features")
BASES = ("live", "exact")  # what the others are held against, as the first of them is called below
KINDS = ("shipped", "fresh", "batches", "again", "quicker", "slower")
# heading: where a summary has it, whether more is better
FIELDS = {"makespan": (("makespan_s",), False), "throughput": (("throughput_tok_s",), True),
          "mean": (("latency_s", "mean"), False), "p99": (("latency_s", "p99"), False),
          "first block": (("ttfb_s", "mean"), False),
          "J/token": (("energy", "joules_per_answer_token"), False)}
RANKED = ("throughput", "mean", "p99", "first block", "J/token")


def in_live_batches(replayed, live):
    """A replay's predictions as a summary: latencies in the recorded batches."""
    totals = {row["time"]: row["predicted"] for row in replayed["accuracy"]["totals"]}
    throughput = live["throughput_tok_s"] * live["makespan_s"] / totals["makespan"]
    return {"makespan_s": totals["makespan"], "throughput_tok_s": throughput,
            "latency_s": {"mean": totals["mean latency"], "p99": totals["p99 latency"]},
            "ttfb_s": {"mean": totals["first block"]}}


def field(run, heading):
    for key in FIELDS[heading][0]:
        run = run.get(key) if isinstance(run, dict) else None
    return run


def latencies(path):
    if not os.path.exists(path):
        return []
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        return sorted(ns for ns, in db.execute("SELECT finished_ns - arrival_ns FROM requests "
                                               "WHERE finished_ns >= 0"))


def companions(path):
    """{request: those admitted at the same moment}."""
    if not os.path.exists(path):
        return {}
    at = {}
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        for number, ns in db.execute("SELECT id, admitted_ns FROM requests WHERE admitted_ns >= 0"):
            at.setdefault(ns, set()).add(number)
    return {number: frozenset(group) for group in at.values() for number in group}


def apart(a, b):
    return sum(b.get(number) != group for number, group in a.items())


def took_same_batches(found, kind):
    live, other = found["live"]["companions"], found[kind]["companions"]
    return 8 * apart(live, other) <= len(live)


def distance(a, b):
    """The largest vertical distance of two empirical distributions."""
    most = i = k = 0
    for at in sorted(set(a + b)):
        while i < len(a) and a[i] <= at:
            i += 1
        while k < len(b) and b[k] <= at:
            k += 1
        most = max(most, abs(i / len(a) - k / len(b)))
    return most


def ranks(pairs):
    """Kendall's tau (b) and the widest live gap, in percent, of a pair in the wrong order."""
    agree = live_differs = sim_differs = 0
    widest = 0.0
    for i, (live_a, sim_a) in enumerate(pairs):
        for live_b, sim_b in pairs[:i]:
            product = (live_a - live_b) * (sim_a - sim_b)
            agree += (product > 0) - (product < 0)
            live_differs += live_a != live_b
            sim_differs += sim_a != sim_b
            if product < 0:
                widest = max(widest, 100 * (max(live_a, live_b) / min(live_a, live_b) - 1))
    differ = live_differs * sim_differs
    return agree / differ ** 0.5 if differ else 1.0, widest


def regret(pairs, more_is_better):
    best = max if more_is_better else min
    chosen = best(pairs, key=lambda pair: pair[1])[0]
    return 100 * abs(chosen / best(live for live, _ in pairs) - 1)


def read(out):
    """{(part, name): {kind: summary}}, of runs that ended."""
    runs = {}
    bases = [(base, path) for base in BASES for path in sorted(glob.glob(f"{out}/*-{base}.json"))]
    for base, path in bases:
        stem = path[:-len(f"-{base}.json")]
        part = next((p for p in PARTS if os.path.basename(stem).startswith(p + "-")), None)
        if part is None:
            continue
        found = {}
        for kind in ("live",) + KINDS:
            name = f"{stem}-{base if kind == 'live' else kind}"
            if os.path.exists(f"{name}.json"):
                with open(f"{name}.json", encoding="utf-8") as file:
                    found[kind] = json.load(file)
                if kind == "batches":
                    found[kind] = in_live_batches(found[kind], found["live"])
                found[kind]["latencies"] = latencies(f"{name}.db")
                found[kind]["companions"] = companions(f"{name}.db")
        runs[part, os.path.basename(stem)[len(part) + 1:]] = found
    return runs


def print_runs(rows):
    shown = [kind for kind in KINDS if any(kind in found for _, found in rows)]
    width = 10 + 9 * len(shown)
    print(f"{'simulated ' + ', '.join(shown):<29}" + "".join(f"{h:>{width}}" for h in FIELDS)
          + "  distance" + "    apart")
    for name, found in rows:
        cells = ""
        for heading in FIELDS:
            live = field(found["live"], heading)
            text = "-" if live is None else f"{live:.3f}"
            for kind in shown:
                sim = field(found.get(kind, {}), heading)
                text += "        -" if live is None or sim is None else f" {100 * (sim / live - 1):+6.1f}%"
            cells += f"{text:>{width}}"
        for kind in shown:
            both = found["live"]["latencies"], found.get(kind, {}).get("latencies")
            cells += f"  {distance(*both):.2f}" if both[0] and both[1] else "     -"
        for kind in shown:
            both = found["live"]["companions"], found.get(kind, {}).get("companions")
            cells += f"  {apart(*both):3d}" if both[0] and both[1] else "    -"
        print(f"{name:<29}{cells}")


def print_ranks(rows):
    for kind in KINDS:
        for heading, (_, more_is_better) in FIELDS.items():
            known = [found for _, found in rows if field(found["live"], heading) is not None
                     and field(found.get(kind, {}), heading) is not None]
            if not known:
                continue
            pairs = [(field(found["live"], heading), field(found[kind], heading)) for found in known]
            errors = [100 * (sim / live - 1) for live, sim in pairs]
            line = (f"{kind:<8} {heading:<12} errors {min(errors):+5.1f} to {max(errors):+5.1f} %, "
                    f"mean {sum(errors) / len(errors):+5.1f} %")
            same = [error for found, error in zip(known, errors) if took_same_batches(found, kind)]
            if 0 < len(same) < len(errors):
                line += f" ({len(same)} with the live batches {min(same):+.1f} to {max(same):+.1f} %)"
            if heading in RANKED and len(pairs) > 1:
                tau, widest = ranks(pairs)
                line += (f"; tau {tau:.2f}, widest pair out of order {widest:.1f} %, "
                         f"regret {regret(pairs, more_is_better):.1f} %")
            print(line)


def main():
    runs = read(sys.argv[1])
    for part in PARTS:
        rows = [(name, found) for (of, name), found in runs.items() if of == part]
        if rows:
            print(f"\n{part}: {len(rows)} configurations")
            print_runs(rows)
            print_ranks(rows)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
