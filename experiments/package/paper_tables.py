#!/usr/bin/env python3
"""paper_tables.py PROGRAM DRAWN: puts the tables that `unmask figure --all --out DRAWN` wrote into the pages of docs/papers,
each below the heading that is its figure's title, and the score and its causes into their README."""

import json
import pathlib
import re
import subprocess
import sys

program, drawn = sys.argv[1], pathlib.Path(sys.argv[2])
listed = json.loads(subprocess.run([program, "list", "experiments", "--json"], capture_output=True, check=True).stdout)
names = {row["title"]: row["name"] for row in listed["experiments"]["rows"]}
for page in sorted(pathlib.Path("docs/papers").glob("*.md")):
    parts = re.split(r"^(##+ .*)\n", page.read_text(), flags=re.M)
    for i in range(1, len(parts), 2):
        title = parts[i].lstrip("# ")
        of_all = {"Score": "scores.md", "Causes": "causes.md"}.get(title.split(":")[0])
        made = drawn / (of_all or f"{names.get(title)}-paper.md")
        if made.exists():
            parts[i + 1] = "\n" + made.read_text().strip() + "\n\n"
    lines = "".join(part + ("\n" if i % 2 else "") for i, part in enumerate(parts))
    page.write_text(lines.rstrip("\n") + "\n")
