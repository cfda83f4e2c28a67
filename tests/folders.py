#!/usr/bin/env python3
"""Refuses folders of C and CUDA that include each other, directly or around, and folders that docs/source.md does not name.

    folders.py             say what is wrong; status 1 if anything is
    folders.py --list      the folders from the lowest up, with what each includes
    folders.py --self-test judge sources whose cycles are known
"""
import os
import re
import subprocess
import sys

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
SOURCE = re.compile(r"\.(c|h|cu|cuh|def)$")
TOPS = ("sim", "engine", "kernels", "traces", "analysis", "experiments")
MAP = "docs/source.md"


def uses(files):
    """{folder: {other folder: (file, file that it includes)}} of {path: text}."""
    found = {}
    for path, text in files.items():
        own = os.path.dirname(path)
        found.setdefault(own, {})
        for other in INCLUDE.findall(text):
            if other in files and os.path.dirname(other) != own:
                found[own].setdefault(os.path.dirname(other), (path, other))
    return found


def reached(found, folder):
    seen, left = set(), [folder]
    while left:
        for other in found[left.pop()]:
            if other not in seen:
                seen.add(other)
                left.append(other)
    return seen


def around(found):
    """The folders from which an include leads back to them, with the includes among them."""
    reach = {folder: reached(found, folder) for folder in found}
    for folder in sorted(found):
        for other, (path, header) in sorted(found[folder].items()):
            if folder in reach[other]:
                yield f"{path} includes {header}, and {other} leads back to {folder}"


def unnamed(found, page):
    named = {name.rstrip("/") for name in re.findall(r"`([a-z0-9_/]+)`", page)}
    return [f"{MAP} does not name {folder}" for folder in sorted(found) if folder not in named and "python" not in folder]


def lowest_first(found):
    left, placed = dict(found), []
    while left:
        ready = sorted(folder for folder in left if all(other in placed for other in left[folder]))
        placed += ready or sorted(left)
        left = {folder: others for folder, others in left.items() if folder not in placed}
    return placed


def self_test():
    two = {"sim/a/x.h": '#include "sim/b/y.h"\n', "sim/b/y.h": "", "sim/b/y.c": '#include "sim/a/x.h"\n'}
    three = {"a/x.h": '#include "b/y.h"\n', "b/y.h": '#include "c/z.h"\n', "c/z.h": "", "c/z.c": '# include "a/x.h"\n'}
    none = {"a/x.c": '#include "b/y.h"\n#include "gone.h"\n#include <a/x.h>\n', "b/y.h": '#include "b/z.h"\n', "b/z.h": ""}
    assert len(list(around(uses(two)))) == 2
    assert len(list(around(uses(three)))) == 3
    assert not list(around(uses(none)))
    assert lowest_first(uses(none)) == ["b", "a"]
    assert unnamed(uses(none), "`a` and `b/`: two folders") == []
    assert unnamed(uses(none), "`b/x.h` and `ab`") == [f"{MAP} does not name a", f"{MAP} does not name b"]


def sources():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *TOPS], capture_output=True, text=True, check=True).stdout.split()
    files = {}
    for name in names:
        if SOURCE.search(name) and os.path.exists(name):
            with open(name, encoding="utf-8") as file:
                files[name] = file.read()
    return files


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    found = uses(sources())
    if sys.argv[1:] == ["--list"]:
        for folder in lowest_first(found):
            print(f"{folder:24} {' '.join(sorted(found[folder]))}")
        return 0
    with open(MAP, encoding="utf-8") as page:
        wrong = list(around(found)) + unnamed(found, page.read())
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
