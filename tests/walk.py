#!/usr/bin/env python3
"""The walk of a submission through the engine, from live.c's submit to a kernel launch.

    python3 tests/walk.py [TREE] [--list]
    python3 tests/walk.py [TREE] --circles    (of the whole tree, once it is built)
    python3 tests/walk.py [TREE] --price [--most FILES RETURNS] [--list]

gcc says who calls whom or takes whose address (-fdump-ipa-cgraph), file by file, before it inlines
anything; a function's parameters are read off its definition. A function is a station when it can
be reached from submit and is handed the batch in one of its forms. Printed are the stations and
their files, the functions from which a launch is still ahead, and circles of files by call.
--circles looks at all objects under build instead (nm): files that name functions of one another
round about, whether they call them or hand them on; tables of descriptors do not count.

--price is the walk of a reader who follows a submission in the simulator to what its step takes,
from executor_sim.c's submit on: into each function where it is first named, in the order of the
text, and through tables of functions. What is printed is how many files that takes and how often
one goes back to a file left before; with --most, more than that fails. By calls alone it was 16 and
42 at f2557502, where it was counted first. What no price is made of is left out: the tools in
sim/base and sim/base/input, and the search for chunks in sim/memory and sim/memory/planner.
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


def names_in(source):
    """What each function of a file calls or takes the address of, and what each table of it names:
    lists of names by name; and which of these are tables."""
    with tempfile.TemporaryDirectory() as folder:
        dump = os.path.join(folder, "dump")
        subprocess.run(["gcc", "-std=c11", "-I.", "-D_GNU_SOURCE", "-O0", "-w", "-c", source,
                        "-o", os.devnull, "-fdump-ipa-cgraph", "-dumpdir", dump + "."], check=True)
        text = open(glob.glob(dump + ".*cgraph")[0]).read()
    named, tables = {}, set()
    for block in re.split(r"\n(?=\S+/\d+ \()", text[text.find("Initial Symbol table"):]):
        name = re.match(r"(\w+)(?:\.\d+)?/\d+ \(", block)
        if name and re.search(r"\bdefinition\b", block):
            found = re.findall(r"(\w+)/\d+", (re.search(r"Calls:(.*)", block) or " ")[0])
            taken = re.search(r"References:(.*)", block)
            found += re.findall(r"(\w+)(?:\.\d+)?/\d+ \((?:addr|read)\)", taken[1] if taken else "")
            named[name[1]] = named.get(name[1], []) + found
            tables |= {name[1]} if re.search(r"\bvariable\b", block) else set()
    return named, tables


def read_tree():
    """Functions by (file, name) with their parameters, and whom each of them names."""
    sources = sorted(glob.glob("engine/*.c") + glob.glob("engine/*/*.c"))
    functions, exported, calls = {}, {}, collections.defaultdict(set)
    for source in sources:
        for static, name, parameters in DEFINITION.findall(open(source).read()):
            functions[source, name] = parameters
            if not static:
                exported[name] = source
    for source in sources:
        for name, others in names_in(source)[0].items():
            for other in others:
                known = (source if (source, other) in functions else exported.get(other), other)
                if (source, name) in functions and known in functions:
                    calls[source, name].add(known)
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


# Whose functions a price is not made of.
TOOLS = ("sim/base/", "sim/base/input/", "sim/memory/", "sim/memory/planner/")
PRICE_START = ("sim/serve/executor_sim.c", "submit")


def body_of(text, name, is_table):
    """The text of a function's or a table's definition."""
    begin = re.search(r"\b%s(?:\[[^\]]*\])+[^;={]* = \{" % name if is_table else
                      r"^(?=\w)[^\n;=]*\b%s\([^{};]*\) \{$" % name, text, re.M)
    if not begin:
        sys.exit(f"{name}: its definition is not written as this program reads it")
    return text[begin.end():text.find("\n};" if is_table else "\n}\n", begin.end())]


def price_walk(by_tables):
    """Functions as a reader comes to them, as pairs of (file, function)."""
    homes, texts, named, tables = {}, {}, {}, {}
    for source in sorted(glob.glob("sim/**/*.c", recursive=True)):
        texts[source] = open(source).read()
        for static, name, _ in DEFINITION.findall(texts[source]):
            homes[source, name] = source
            if not static:
                homes[name] = source
    path, seen = [], set()

    def visit(source, name):
        if (source, name) in seen:
            return
        seen.add((source, name))
        is_table = (source, name) not in homes
        if not is_table:
            path.append((source, name))
        if source not in named:
            named[source], tables[source] = names_in(source)
        body = body_of(texts[source], name, is_table)
        at = {other: re.search(r"\b%s\b" % other, body) for other in named[source].get(name, [])}
        for other in sorted((o for o in at if at[o]), key=lambda o: at[o].start()):
            is_known = (source, other) in homes or other in homes
            home = homes.get((source, other)) or homes.get(other)
            if not is_known and by_tables and other in tables[source] and named[source][other]:
                home = source
            if home and not home.startswith(TOOLS):
                visit(home, other)

    visit(*PRICE_START)
    return path


def count_price(by_tables):
    """The walk, in how many files it is, and how often it returns to one."""
    path = price_walk(by_tables)
    files = [file for i, (file, _) in enumerate(path) if i == 0 or path[i - 1][0] != file]
    return path, len(set(files)), len(files) - len(set(files))


def show_price(most):
    path, n_files, n_returns = count_price(True)
    print(f"from a submission to its price: {len(path)} functions in {n_files} files, "
          f"{n_returns} returns to a file left before")
    print("by calls alone, without tables of functions: %d files, %d returns" % count_price(False)[1:])
    if "--list" in sys.argv:
        for i, (file, name) in enumerate(path):
            print(f"{file + ':' if i == 0 or path[i - 1][0] != file else '':44} {name}")
    if most and (n_files > most[0] or n_returns > most[1]):
        sys.exit(f"at most {most[0]} files and {most[1]} returns are allowed: merge what belongs "
                 "together, or look up what is the same in every step when the model is opened")


def main():
    most = [int(word) for word in sys.argv[1:] if word.isdigit()]
    trees = [word for word in sys.argv[1:] if not word.startswith("--") and not word.isdigit()]
    os.chdir(trees[0] if trees else os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if "--circles" in sys.argv:
        found = circles(object_calls())
        for circle in found:
            print("circle:", " ".join(circle))
        sys.exit(len(found) > 0)
    if "--price" in sys.argv:
        show_price(most)
        return
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
