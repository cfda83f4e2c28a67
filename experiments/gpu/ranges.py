#!/usr/bin/env python3
"""The widest errors over several of again.sh's tables: what docs/validation.md says of many cards.

Usage: ranges.py KIND TABLE[:PART]...

KIND is shipped, fresh, batches or again; a PART (grid, idle, twice, pressure, sdar, sdar-pressure, mini;
default: grid) is one of a table's. In brackets the runs with the live batches alone, where others are
left out; then the range of Kendall's tau and the widest pair out of order.
"""
import re
import sys

HEADINGS = ("makespan", "throughput", "mean", "p99", "first block", "J/token")
LINE = re.compile(r"(\w+) +(makespan|throughput|mean|p99|first block|J/token) +errors +([-+.\d]+) to +([-+.\d]+) %, "
                  r"mean +[-+.\d]+ %(?: \((\d+) with the live batches ([-+.\d]+) to ([-+.\d]+) %\))?"
                  r"(?:; tau ([.\d-]+), widest pair out of order ([.\d]+) %)?")


def main(kind, tables):
    found = {heading: [] for heading in HEADINGS}
    n_runs = 0
    for table in tables:
        path, _, part = table.partition(":")
        now = None
        with open(path, encoding="ascii") as file:
            for line in file:
                title = re.match(r"([a-z-]+): (\d+) configurations", line)
                match = LINE.match(line)
                if title:
                    now = title.group(1)
                elif match and now == (part or "grid") and match.group(1) == kind:
                    found[match.group(2)].append(match.groups()[2:])
                elif now == (part or "grid") and re.match(r"[a-z].* [-+\d.]+%", line):
                    n_runs += 1
    print(f"{kind}: {len(found['makespan'])} tables, {n_runs} runs")
    for heading, rows in found.items():
        if not rows:
            continue
        text = f"  {heading:12} {min(float(r[0]) for r in rows):+.1f} to {max(float(r[1]) for r in rows):+.1f} %"
        if any(r[2] for r in rows):
            least = min(float(r[3] if r[2] else r[0]) for r in rows)
            most = max(float(r[4] if r[2] else r[1]) for r in rows)
            text += f" ({least:+.1f} to {most:+.1f} %)"
        taus = [float(r[5]) for r in rows if r[5]]
        if taus:
            text += f"; tau {min(taus):.2f} to {max(taus):.2f}, pair {max(float(r[6]) for r in rows if r[6]):.1f} %"
        print(text)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
