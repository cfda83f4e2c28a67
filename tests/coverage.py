"""coverage.py BUILD: what the tests of a build with --coverage reached, by folder: lines, and branches taken at least once."""

import glob
import json
import os
import subprocess
import sys


def main():
    build = sys.argv[1].rstrip("/")
    folders = {}
    for notes in sorted(glob.glob(f"{build}/**/*.gcno", recursive=True)):
        source = os.path.relpath(notes, build)[:-5] + ".c"
        if source.startswith("tests/"):
            continue
        said = subprocess.run(["gcov", "-b", "--json-format", "--stdout", notes], capture_output=True, check=True).stdout
        for file in json.loads(said)["files"]:
            if file["file"] != source:
                continue
            sums = folders.setdefault(os.path.dirname(source), [0, 0, 0, 0])
            for line in file["lines"]:
                sums[0] += line["count"] > 0
                sums[1] += 1
                sums[2] += sum(branch["count"] > 0 for branch in line["branches"])
                sums[3] += len(line["branches"])
    print(f"{'folder':28}{'lines':>8}{'reached':>9}{'branches':>10}{'taken':>8}")
    total = [sum(sums[i] for sums in folders.values()) for i in range(4)]
    for name, sums in [*sorted(folders.items()), ("all", total)]:
        print(f"{name:28}{sums[1]:8}{100 * sums[0] / max(sums[1], 1):8.1f}%{sums[3]:10}{100 * sums[2] / max(sums[3], 1):7.1f}%")


main()
