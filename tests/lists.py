#!/usr/bin/env python3
"""Refuses a second list of kernels, operators or passes: kernels/kernels.def and sim/step/ops.def have the only ones.

    lists.py             say where others are; status 1 if anywhere
    lists.py --self-test judge texts whose lists are known

A list is MOST names or more, each the first word of its line (as an entry of a table, a declaration, a macro's
argument) or one of the words of a literal that follow each other with commas between, and no two alike.
"""
import os
import re
import subprocess
import sys

MOST = 4
LISTS = {"kernels/kernels.def": r"^(?:RANK_)?KERNEL\((\w+),", "sim/step/ops.def": r'^(?:OP|PASS)\(\w+,.*?"([\w-]+)"\)'}
SOURCE = re.compile(r"\.(c|h|cu|cuh|def|py|sh|mk)$|^Makefile$")
TOPS = ("sim", "engine", "kernels", "analysis", "experiments", "Makefile")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
FIRST = re.compile(r"""^\s*(?:\w+\(|(?:int|void)\s+|\[\w+\]\s*=\s*|\{|\.)?["']?(?:kernel_|ref_|call_)?([\w-]+)["']?\s*(?:[,(=]|$)""")
QUOTED = re.compile(r"""(?:["'][\w-]+["']\s*,\s*){3,}["'][\w-]+["']""")


def blanked(text):
    """Without comments, line for line."""
    return COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)


def runs(text, names):
    """(line, names) of every list of these in a text."""
    found, run, start = [], [], 0
    for at, line in enumerate([*blanked(text).split("\n"), ""], 1):
        word = FIRST.match(line)
        if word and word[1] in names and word[1] not in run:
            start = start if run else at
            run.append(word[1])
        elif line.strip() and not line.startswith(" " * 8) or not line.strip():
            found += [(start, run)] if len(run) >= MOST else []
            run = []
    for literal in QUOTED.finditer(text):
        words = [word for word in re.findall(r"[\w-]+", literal[0]) if word in names]
        if len(set(words)) >= MOST:
            found.append((text.count("\n", 0, literal.start()) + 1, words))
    return found


def self_test():
    names = {"add", "rope", "norm", "embed", "gate-up"}
    table = 'static x[] = {\n    {"add", 1},\n    {"rope", 2},\n    {"norm", 3},\n    {"embed", 4},\n};\n'
    assert runs(table, names) == [(2, ["add", "rope", "norm", "embed"])]
    assert runs("int kernel_add(int);\nint kernel_rope(int);\nint kernel_norm(int);\nint kernel_embed(int);\n", names)
    assert runs("X(add, 1)\nX(rope, 1)\nX(norm, 1)\nX(embed, 1)\n", names)
    assert runs('x = ["add", "rope", "gate-up", "norm"]', names)
    assert not runs('x = ["add", "rope", "gate-up"]', names)
    assert not runs("/* add,\nrope,\nnorm,\nembed */\n", names)
    assert not runs("add(1);\nadd(2);\nadd(3);\nadd(4);\n", names)


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    names = set()
    for path, entry in LISTS.items():
        with open(path, encoding="utf-8") as file:
            names |= set(re.findall(entry, file.read(), re.MULTILINE))
    if len(names) < 60:
        sys.exit(f"lists.py reads {len(names)} names of kernels, operators and passes")
    wrong = []
    for path in subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *TOPS], capture_output=True, text=True,
                               check=True).stdout.split():
        if SOURCE.search(path) and path not in LISTS and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                wrong += [f"{path}:{line}: a second list, of {', '.join(run[:6])}" for line, run in runs(file.read(), names)]
    print("\n".join(dict.fromkeys(wrong)), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
