#!/usr/bin/env python3
"""The walk of a submission through the engine, from live.c's submit to a kernel launch.

    python3 tests/walk.py [TREE] [--list]
    python3 tests/walk.py [TREE] --circles    (of the whole tree, once it is built)

gcc says who calls whom or takes whose address (-fdump-ipa-cgraph), file by file, before it inlines
anything; a function's parameters are read off its definition. A function is a station when it can
be reached from submit and is handed the batch in one of its forms. Printed are the stations and
their files, the functions from which a launch is still ahead, and circles of files by call.
--circles looks at all objects under build instead (nm): files that name functions of one another
round about, whether they call them or hand them on; tables of descriptors do not count.
"""
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

# What a batch is on its way. Of a tree that has other names for these, those that it has count.
FORMS = ("submission planned_step members part_arrays rest session_rest step step_part decision "
         "eviction step_result packed filling instance launch issue").split()
START, LAUNCH = ("engine/live.c", "submit"), ("engine/op/issue.c", "issue_instance")
DEFINITION = re.compile(r"^(static )?(?:inline )?[a-z][\w ]*?[ *]+(\w+)\(([^{};]*?)\) \{$", re.M)


def read_tree():
    """Functions by (file, name) with their parameters, and whom each of them names."""
    sources = sorted(glob.glob("engine/*.c") + glob.glob("engine/*/*.c"))
    functions, exported, calls = {}, {}, collections.defaultdict(set)
    for source in sources:
        for static, name, parameters in DEFINITION.findall(open(source).read()):
            functions[source, name] = parameters
            if not static:
                exported[name] = source
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            dump = os.path.join(folder, source.replace("/", "+"))
            subprocess.run(["gcc", "-std=c11", "-I.", "-D_GNU_SOURCE", "-O0", "-w", "-c", source,
                            "-o", os.devnull, "-fdump-ipa-cgraph", "-dumpdir", dump + "."],
                           check=True)
            text = open(glob.glob(dump + ".*cgraph")[0]).read()
            for block in re.split(r"\n(?=\S+/\d+ \()", text[text.find("Initial Symbol table"):]):
                name = re.match(r"(\w+)/\d+ \(", block)
                if not name or (source, name[1]) not in functions:
                    continue
                named = re.findall(r"(\w+)/\d+", (re.search(r"Calls:(.*)", block) or " ")[0])
                taken = re.search(r"References:(.*)", block)
                named += re.findall(r"(\w+)/\d+ \(addr\)", taken[1] if taken else "")
                for other in named:
                    known = (source if (source, other) in functions else exported.get(other), other)
                    if known in functions:
                        calls[source, name[1]].add(known)
    return functions, calls


def reach(calls, start):
    seen, ahead = {start}, [start]
    while ahead:
        for other in calls[ahead.pop()] - seen:
            seen.add(other)
            ahead.append(other)
    return seen


def circles(calls):
    """Sets of files that call one another round about."""
    files = collections.defaultdict(set)
    for one, others in list(calls.items()):
        files[one[0]] |= {other[0] for other in others} - {one[0]}
    found = {frozenset(f for f in reach(files, file) if file in reach(files, f))
             for file in list(files)}
    return sorted(sorted(circle) for circle in found if len(circle) > 1)


def object_calls():
    """Whom each file's object names, as pairs of (file, function)."""
    homes, wanted, calls = {}, [], collections.defaultdict(set)
    for file in sorted(glob.glob("*/**/*.c", recursive=True)):
        made = os.path.join("build", file[:-2] + ".o")
        if file.startswith(("tests/", "build/")) or not os.path.exists(made):
            continue
        for line in subprocess.run(["nm", made], capture_output=True, text=True).stdout.split("\n"):
            kind, name = line.split()[-2:] if line else ("", "")
            if kind == "T":
                homes[name] = file
            elif kind == "U":
                wanted.append((file, name))
    for file, name in wanted:
        if name in homes:
            calls[file, ""].add((homes[name], ""))
    return calls


def main():
    trees = [word for word in sys.argv[1:] if not word.startswith("--")]
    os.chdir(trees[0] if trees else os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if "--circles" in sys.argv:
        found = circles(object_calls())
        for circle in found:
            print("circle:", " ".join(circle))
        sys.exit(len(found) > 0)
    functions, calls = read_tree()
    handed = re.compile(r"struct (%s) \*?\w" % "|".join(FORMS))
    reached = reach(calls, START)
    stations = sorted(f for f in reached if handed.search(functions[f]))
    leading = [f for f in reached if LAUNCH in reach(calls, f)]
    print(f"{len(stations)} stations in {len({f[0] for f in stations})} files are handed the batch,"
          f" of {len(reached)} functions reached; {len(leading)} have a launch ahead of them")
    for circle in circles(calls):
        print("circle by call:", " ".join(circle))
    if "--list" in sys.argv:
        for file in sorted({f[0] for f in reached}):
            marked = [f[1] + "*" * (f in leading) for f in stations if f[0] == file]
            print(f"{file}: {' '.join(marked) or '-'}")


if __name__ == "__main__":
    main()
