"""Are the checks able to fail? Breaks the program at random places, one at a time, and sees which breaks the tests notice.

  mutate.py [--each 5] [--seed 1] [--module PREFIX] [--budget 60]   draws and tries so many mutants of each module
  mutate.py --again [--module PREFIX]                               tries those again that survived
  mutate.py --table                                                 what was found so far, by module

Mutants are tried in a copy of the tree under build/mutants, whose libraries, program and suites `make` builds first. A mutant is
one changed token or statement of one function: a comparison, an operator, a constant, a condition, a call left out, two arguments
exchanged. One whose object is the same is dropped. The suites run in the order of their time, those earlier that include a header of
the mutant's folder or stand in the tests of its part of the tree; together they have --budget seconds of CPU time (default: 60), so that the slow live suites come last or not at
all.
What was found is kept in build/mutants/found.jsonl; survivors that were judged to change nothing that a test could see stand,
with the reason, in tests/mutants-judged."""

import argparse
import glob
import json
import os
import random
import re
import resource
import subprocess
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COPY = f"{ROOT}/build/mutants/tree"
FOUND = f"{ROOT}/build/mutants/found.jsonl"
JUDGED = f"{ROOT}/tests/mutants-judged"
MODULES = {
    "sim/serve": ["sim/serve"],
    "sim policies": ["sim/scheduler", "sim/cache", "sim/decoder", "sim/router", "sim/policy", "sim/check"],
    "sim/cost": ["sim/cost"],
    "sim/memory": ["sim/memory", "sim/planner"],
    "sim/decode, graph, op": ["sim/decode", "sim/graph", "sim/op"],
    "sim/model, system, input": ["sim/model", "sim/system", "sim/input", "sim/base"],
    "traces": ["traces"],
    "analysis": ["analysis", "analysis/paper", "analysis/plot", "analysis/store"],
    "engine": ["engine", "engine/*"],
    "kernels/ref": ["kernels/ref", "kernels/device"],
    "experiments": ["experiments/run", "experiments/steps", "experiments/study", "experiments/jobs", "experiments/sweep",
                    "experiments/server", "experiments/cli", "experiments/command"],
}
FLAGS = ["-std=c11", "-O1", "-Werror=int-conversion", "-Werror=incompatible-pointer-types", "-ffp-contract=off", "-fno-fast-math", "-I.", "-D_GNU_SOURCE", f'-DUNMASK_DATA_DIR="{COPY}"']
LIBS = ("-lcheck -lsubunit -lrt -lsqlite3 -lpcre2-8 -lutf8proc -ljansson -linih -lgsl -lgslcblas -lopenblas -ldl "
        "-lpthread -lm").split()

# ---- where and how to break ----

TOKENS = [("<=", "<"), (">=", ">"), ("<", "<="), (">", ">="), ("==", "!="), ("!=", "=="), ("+", "-"), ("-", "+"), ("*", "/"),
          ("/", "*"), ("&&", "||"), ("||", "&&"), ("+=", "-="), ("-=", "+=")]
WHICH = {"<=": "relation", ">=": "relation", "<": "relation", ">": "relation", "==": "equality", "!=": "equality", "+": "arithmetic",
         "-": "arithmetic", "*": "arithmetic", "/": "arithmetic", "&&": "logic", "||": "logic", "+=": "arithmetic",
         "-=": "arithmetic"}
SILENT = re.compile(r"\b(err_\w+|ASSERT|fprintf|printf|static_assert|snprintf|perror|param_\w+_bad|csv_bad|field_bad)\s*\(")


def masked(text):
    """The text with comments, strings and characters blanked, so that places stay."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', blank, text, flags=re.S)


def bodies(code):
    """(begin, end) of the bodies of functions: what a line that begins with a word and ends with ') {' opens."""
    for match in re.finditer(r"(?m)^[a-zA-Z_][^\n;={]*(?:\n[^\n;={}]*)*?\) \{\n", code):
        end = code.find("\n}", match.end())
        yield match.end(), end if end > 0 else len(code)


def candidates(path):
    """(operator, begin, end, new text) of every mutant of a file."""
    code = masked(open(path).read())
    for begin, end in bodies(code):
        for statement in re.finditer(r"[^;{}]*[;{}]", code[begin:end]):
            text, at = statement.group(0), begin + statement.start()
            if SILENT.search(text) or "#" in text:
                continue
            for old, new in TOKENS:
                for match in re.finditer(r"(?<= )" + re.escape(old) + r"(?= )", text):
                    yield WHICH[old], at + match.start(), at + match.end(), new
            for match in re.finditer(r"(?<![\w.])(\d+)(?![\w.])", text):
                number = int(match.group(1))
                for new in {number + 1, max(number - 1, 0)} - {number}:
                    yield "constant", at + match.start(), at + match.end(), str(new)
            for match in re.finditer(r"\b(true|false)\b", text):
                yield "constant", at + match.start(), at + match.end(), "false" if match.group(1) == "true" else "true"
            for match in re.finditer(r"\b(if|while) \((.*)\)(?= \{)", text, re.S):
                yield "condition", at + match.start(2), at + match.end(2), f"!({code[at + match.start(2):at + match.end(2)]})"
            body = text.lstrip()
            if re.match(r"(\w[\w.\[\]]*(->\w+(\[[^\]]*\])?|\.\w+)*( [-+*/|&]?= |\()|\*?\w+(\[.*\])? = )", body) and body.endswith(";"):
                if not body.startswith(("return", "sizeof", "goto", "va_", "free(")):
                    start = at + len(text) - len(body)
                    yield "statement", start, at + len(text), ";"
            for match in re.finditer(r"\w+\((\w+(?:->\w+)?), (\w+(?:->\w+)?)\)", text):
                if match.group(1) != match.group(2):
                    yield "arguments", at + match.start(1), at + match.end(2), f"{match.group(2)}, {match.group(1)}"


class Mutant:
    def __init__(self, module, path, place):
        self.module, self.path = module, path
        self.operator, self.begin, self.end, self.new = place
        source = open(f"{COPY}/{path}").read()
        self.text = source[:self.begin] + self.new + source[self.end:]
        self.line = source.count("\n", 0, self.begin) + 1
        old, new = source.split("\n"), self.text.split("\n")
        self.was, self.becomes = old[self.line - 1].strip(), new[self.line - 1].strip()

    def facts(self):
        return {"module": self.module, "file": self.path, "line": self.line, "was": self.was, "becomes": self.becomes,
                "operator": self.operator}


def draw(rng, module, cache={}):
    if module not in cache:
        paths = sorted(p for folder in MODULES[module] for p in glob.glob(f"{folder}/*.c", root_dir=COPY))
        cache[module] = {}
        for path in paths:
            for place in candidates(f"{COPY}/{path}"):
                cache[module].setdefault(place[0], []).append((path, place))
    operator = rng.choice(sorted(cache[module]))
    path, place = rng.choice(cache[module][operator])
    return Mutant(module, path, place)


# ---- trying ----

def run(command, seconds=60, env=None):
    """(exit status, seconds of CPU) of a command. A broken program may run for ever, or ask for all memory or disk there is: it is
    bounded in `seconds` of CPU time of each process and twenty times that on the clock, and nothing that it started is left."""
    def bound():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    process = subprocess.Popen(command, cwd=COPY, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True, preexec_fn=bound, env=env)
    timer = threading.Timer(20 * seconds, os.killpg, (process.pid, 9))
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = status
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass
    return status, usage.ru_utime + usage.ru_stime


def environment(program):
    return dict(os.environ, UNMASK=program, UNMASK_PLUGINS=f"{COPY}/build/plugins", UNMASK_DATA=COPY, CK_TIMEOUT_MULTIPLIER="10")


class Suites:
    """The suites, what each includes, and how long it takes where nothing is broken."""

    def __init__(self, budget, pattern):
        self.pattern = re.compile(pattern)
        self.names = sorted(p[len("tests/"):-2] for p in glob.glob("tests/*/test_*.c", root_dir=COPY) if "/gpu/" not in p)
        self.text = {}
        for name in self.names:
            source = open(f"{COPY}/tests/{name}.c").read()
            for header in re.findall(r'#include "(tests/support/\w+\.h)"', source):
                source += open(f"{COPY}/{header}").read()
            self.text[name] = source
        path = f"{ROOT}/build/mutants/seconds.json"
        self.seconds = json.load(open(path)) if os.path.exists(path) else {}
        for name in self.names:
            if name not in self.seconds:
                status, spent = run([f"build/tests/{name}"], budget, environment(f"{COPY}/build/unmask"))
                self.seconds[name] = round(spent, 2) if status == 0 else None
                print(f"{name}: {self.seconds[name]}", flush=True)
                json.dump(self.seconds, open(path, "w"))

    def order(self, path):
        folder, top = os.path.dirname(path), path.split("/")[0]

        def cost(name):
            return self.seconds[name] / (6 if f'"{folder}/' in self.text[name] else 3 if name.startswith(f"{top}/") else 1)
        return sorted((name for name in self.names if self.seconds[name] is not None and self.pattern.search(name)), key=cost)


def link(name):
    """Links a program of the copy with the mutant's object before the library's; its path, or None."""
    out = f"{COPY}/build/mutant-{os.getpid()}-{os.path.basename(name)}"
    more = glob.glob(f"{COPY}/build/tests/fuzz/reader*.o") if name == "tests/fuzz/test_corpus" else []
    status, _ = run(["gcc", "-Wl,-S", "-o", out, f"build/{name}.o", *more, f"build/mutant-{os.getpid()}.o", "build/libunmask.a", *LIBS])
    return out if status == 0 else None


def compiled(path, text):
    """The bytes of the object of a text that stands for the file, b"" where it is no C."""
    out = f"{COPY}/build/mutant-{os.getpid()}.o"
    source = f'#line 1 "{path}"\n{text}'
    done = subprocess.run(["gcc", *FLAGS, "-x", "c", "-c", "-", "-o", out], cwd=COPY, input=source.encode(), capture_output=True)
    return open(out, "rb").read() if done.returncode == 0 else b""


def try_mutant(mutant, suites, budget):
    """What came of it; None where there is nothing to try."""
    original = compiled(mutant.path, open(f"{COPY}/{mutant.path}").read())
    broken = compiled(mutant.path, mutant.text)
    if broken in (b"", original):
        return None
    spent, program = 0, link("experiments/cli/main")
    for name in suites.order(mutant.path):
        seconds = suites.seconds[name]
        if spent + seconds > budget:
            break
        suite = link(f"tests/{name}")
        if suite is None:  # it has a stand-in of its own for something of this file
            continue
        status, _ = run([suite], int(10 + 4 * seconds), environment(program))
        os.remove(suite)
        spent += seconds
        if status != 0:
            return {"verdict": "caught", "by": name, "status": status}
    return {"verdict": "survived", "spent": round(spent)}


# ---- what was found ----

def key(found):
    return (found["file"], found["was"], found["becomes"])


def judged():
    lines = open(JUDGED).read().split("\n") if os.path.exists(JUDGED) else []
    parts = [[part.strip() for part in line.split(" @@ ")] for line in lines if line and line[0] != "#"]
    return {(file, was, becomes): why for file, was, becomes, why in parts}


def load():
    lines = open(FOUND).read().split("\n") if os.path.exists(FOUND) else []
    latest = {}
    for line in lines:
        if line:
            found = json.loads(line)
            latest[key(found)] = found
    return list(latest.values())


def note(mutant, outcome, seed):
    found = dict(outcome, seed=seed, **mutant.facts())
    with open(FOUND, "a") as file:
        file.write(json.dumps(found) + "\n")
    print(f"{found['verdict']:9} {found.get('by', ''):28} {mutant.path}:{mutant.line}: {mutant.was}  ->  {mutant.becomes}", flush=True)


def again(found, suites, budget):
    places = [place for place in candidates(f"{COPY}/{found['file']}") if place[0] == found["operator"]]
    for place in places:
        mutant = Mutant(found["module"], found["file"], place)
        if key(mutant.facts()) == key(found):
            outcome = try_mutant(mutant, suites, budget)
            if outcome is not None:
                note(mutant, outcome, found["seed"])
            return
    print(f"{found['file']} has changed: {found['was']}")


def print_table():
    known, all_found = judged(), load()
    survivors = [f for f in all_found if f["verdict"] == "survived"]
    print(f"{'module':28}{'tried':>7}{'caught':>8}{'judged equal':>14}{'survived':>10}{'score':>8}")
    for module in [*MODULES, "all"]:
        of = [f for f in all_found if module in ("all", f["module"])]
        caught = sum(f["verdict"] == "caught" for f in of)
        equal = sum(f["verdict"] == "survived" and key(f) in known for f in of)
        score = f"{100 * caught / (len(of) - equal):.0f} %" if len(of) > equal else "-"
        print(f"{module:28}{len(of):7}{caught:8}{equal:14}{len(of) - caught - equal:10}{score:>8}")
    print(f"seeds {sorted({f['seed'] for f in all_found})}")
    for f in survivors:
        why = known.get(key(f))
        print(f"{'equal   ' if why else 'SURVIVED'} {f['file']}:{f['line']}: {f['was']}  ->  {f['becomes']}{'  (' + why + ')' if why else ''}")


def prepare():
    os.makedirs(COPY, exist_ok=True)
    subprocess.run("git ls-files -z | tar c --null -T - | tar x -C " + COPY, shell=True, cwd=ROOT, check=True)
    suites = [f"build/{p[:-2]}" for p in sorted(glob.glob("tests/*/test_*.c", root_dir=COPY)) if "/gpu/" not in p]
    subprocess.run(["make", "-s", "-j2", "build/unmask", "plugins", *suites], cwd=COPY, check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", default="")
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--suites", default="", help="only suites in whose name this regular expression is found")
    parser.add_argument("--file", default="", help="of --again: only files in whose path this one is found")
    parser.add_argument("--built", action="store_true", help="the copy as it stands")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        print_table()
        return
    if not asked.built:
        prepare()
    suites, known, done = Suites(asked.budget, asked.suites), judged(), {key(f) for f in load()}
    for module in [m for m in MODULES if m.startswith(asked.module)]:
        if asked.again:
            for found in load():
                if found["module"] == module and re.search(asked.file, found["file"]) and found["verdict"] == "survived" and key(found) not in known:
                    again(found, suites, asked.budget)
            continue
        rng, n = random.Random(f"{asked.seed} {module}"), 0
        while n < asked.each:
            mutant = draw(rng, module)
            n += key(mutant.facts()) in done
            outcome = try_mutant(mutant, suites, asked.budget) if key(mutant.facts()) not in done else None
            if outcome is not None:
                note(mutant, outcome, asked.seed)
                done.add(key(mutant.facts()))
                n += 1
    print_table()


main()
