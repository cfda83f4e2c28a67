#!/usr/bin/env python3
"""paper_tables.py PROGRAM DRAWN: puts the tables that `unmask figure --all --out DRAWN` wrote into the pages of docs/papers,
each below the heading that is its figure's title, and the score and its causes into their README."""

import json
import os
import pathlib
import re
import subprocess
import sys

COLUMNS = ["source", "row", "paper", "ours", "ours/paper", "role", "within 15 %"]


def named(row):
    """(where, quantity, reading) of a row's name: "GPU, model, quantity (reading)", whose reading may have brackets."""
    at, depth = len(row), 0
    while row.endswith(")") and (at == len(row) or depth):
        at -= 1
        depth += {")": 1, "(": -1}.get(row[at], 0)
    where = row[:at].strip().split(", ")
    return where[:-1], where[-1], row[at + 1:-1]


def line(cells):
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def told(table):
    """A table with one thing a cell: what all rows share is said before it, and a reading has its column."""
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    if len(rows) < 3 or rows[0] != COLUMNS:
        return table
    names = [named(row[1]) for row in rows[2:]]
    start = os.path.commonprefix([where[:-1] for where, _, _ in names]) if len(names) > 1 else []
    ends = {reading.rpartition(", ")[2] for _, _, reading in names if reading}
    end = ends.pop() if len(ends) == 1 and len(names) > 1 and all(", " in reading for _, _, reading in names) else ""
    has_reading = any(reading for _, _, reading in names)
    head = ["source", "row", "quantity", *(["reading"] if has_reading else []), *COLUMNS[2:]]
    lines = [line(head), "|---|---|---|" + "---|" * has_reading + "--:|--:|--:|---|---|"]
    for row, (where, quantity, reading) in zip(rows[2:], names):
        reading = reading.removesuffix(f", {end}") if end else reading
        lines.append(line([row[0], ", ".join(where[len(start):]), quantity, *([reading] if has_reading else []), *row[2:]]))
    shared = ", ".join(start + ([end] if end else []))
    return (f"Every row: {shared}.\n\n" if shared else "") + "\n".join(lines)


def short(made):
    """What a figure wrote, its tables told."""
    return re.sub(r"^\|.*\|$(\n^\|.*\|$)*", lambda m: told(m.group(0)), made, flags=re.M)


def main(program, drawn):
    listed = json.loads(subprocess.run([program, "list", "experiments", "--json"], capture_output=True, check=True).stdout)
    names = {row["title"]: row["name"] for row in listed["experiments"]["rows"]}
    for page in sorted(pathlib.Path("docs/papers").glob("*.md")):
        parts = re.split(r"^(##+ .*)\n", page.read_text(), flags=re.M)
        for i in range(1, len(parts), 2):
            title = parts[i].lstrip("# ")
            of_all = {"Score": "scores.md", "Causes": "causes.md"}.get(title.split(":")[0])
            made = drawn / (of_all or f"{names.get(title)}-paper.md")
            if made.exists():
                parts[i + 1] = "\n" + short(made.read_text().strip()) + "\n\n"
        lines = "".join(part + ("\n" if i % 2 else "") for i, part in enumerate(parts))
        page.write_text(lines.rstrip("\n") + "\n")


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
