"""Are the checks able to fail? Breaks the program at random places, one at a time, and sees which breaks the tests notice.

  mutate.py [--each 5] [--seed 1] [--module PREFIX] [--budget 60]   draws and tries so many mutants of each module
  mutate.py --again [--module PREFIX] [--file REGEX]                tries those again that survived
  mutate.py --table                                                 what was found so far, by module

A mutant is one changed token or statement of one function: a comparison, an operator, a constant, a condition, a call left out,
two arguments exchanged. One whose object is the same is dropped.

Mutants are tried in a copy of the tree under build/mutants. Its library is a shared one there: a mutant costs one compilation and
one link, whatever number of programs runs it. Each test was run once before, alone, with a library that says which lines it runs:
a mutant is tried by the tests that run its line, the quick ones first, until one is red, in --budget seconds of CPU time at most
(default: 60). A test that takes ten seconds and four times longer than it should is red.

What was found is kept in build/mutants/found.jsonl; survivors that were judged to change nothing that a test could see stand,
with the reason, in tests/mutants-judged."""

import argparse
import bisect
import concurrent.futures
import glob
import json
import os
import random
import re
import resource
import subprocess
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HOME = f"{ROOT}/build/mutants"
COPY = f"{HOME}/tree"
FOUND = f"{HOME}/found.jsonl"
JUDGED = f"{ROOT}/tests/mutants-judged"
MODULES = {
    "sim/serve": ["sim/serve"],
    "sim policies": ["sim/scheduler", "sim/cache", "sim/decoder", "sim/router", "sim/policy", "sim/check"],
    "sim/cost": ["sim/cost", "sim/cost/profile", "sim/bound"],
    "sim/memory": ["sim/memory", "sim/planner"],
    "sim/decode, graph, op": ["sim/decode", "sim/graph", "sim/op"],
    "sim/model, system, input": ["sim/model", "sim/system", "sim/input", "sim/base"],
    "traces": ["traces", "traces/format"],
    "analysis": ["analysis", "analysis/*"],
    "engine": ["engine", "engine/*"],
    "kernels/ref": ["kernels/ref", "kernels/device"],
    "experiments": ["experiments/*"],
}
DEFINES = ["-I.", "-D_GNU_SOURCE", f'-DUNMASK_DATA_DIR="{COPY}"']
FLAGS = ["-std=c11", "-O2", "-fPIC", "-ffp-contract=off", "-fno-fast-math", "-Werror=int-conversion",
         "-Werror=incompatible-pointer-types", *DEFINES]
LIBS = os.environ.get("LIBS", "").split()  # of the Makefile, which runs this

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


def library_sources(cache=[]):
    if not cache:
        printed = subprocess.run(["make", "-s", "--eval=print:;@echo $(LIB_SRCS)", "print"], cwd=COPY, check=True, capture_output=True)
        cache.extend(printed.stdout.decode().split())
    return cache


def sources_of(module):
    """Those of the library; programs and separate libraries have sources of their own beside them."""
    paths = {p for folder in MODULES[module] for p in glob.glob(f"{folder}/*.c", root_dir=COPY)}
    return sorted(paths & set(library_sources()))


def draw(rng, module, cache={}):
    if module not in cache:
        cache[module] = {}
        for path in sources_of(module):
            for place in candidates(f"{COPY}/{path}"):
                cache[module].setdefault(place[0], []).append((path, place))
    operator = rng.choice(sorted(cache[module]))
    path, place = rng.choice(cache[module][operator])
    return Mutant(module, path, place)

# ---- building ----

def make(build, flags, *targets):
    subprocess.run(["make", "-s", "-j2", f"BUILD=build/{build}", "WARN=", *flags, *targets], cwd=COPY, check=True)


def link(out, objects, *more):
    """Whether the objects became a shared library."""
    with open(f"{out}.objects", "w") as file:
        file.write("\n".join(objects))
    return run(["gcc", "-shared", "-o", out, f"@{out}.objects", *more, *LIBS])[0] == 0


def library(build):
    """The objects of the library of a build."""
    found = library_sources()
    assert sorted(found) == sorted(p for module in MODULES for p in sources_of(module)), "MODULES are not all folders"
    return [f"build/{build}/{source[:-2]}.o" for source in found]


def suites():
    return sorted(p[len("tests/"):-2] for p in glob.glob("tests/*/test_*.c", root_dir=COPY) if "/gpu/" not in p)


def prepare():
    """The tree as it stands, its programs, and two libraries: one to be broken, one that says what it runs."""
    os.makedirs(COPY, exist_ok=True)
    subprocess.run("git ls-files -z | tar c --null -T - | tar x -C " + COPY, shell=True, cwd=ROOT, check=True)
    readers = [p[:-2] + ".o" for p in glob.glob("tests/fuzz/reader*.c", root_dir=COPY)]
    programs = ["experiments/cli/main", *(f"tests/{name}" for name in suites())]
    objects = [f"{program}.o" for program in programs] + readers
    make("whole", ["OPT=-O2", "SAN=-fPIC"], "build/whole/libunmask.a", "plugins", *(f"build/whole/{o}" for o in objects))
    if not os.path.exists(f"{COPY}/build/plugins"):
        os.symlink("whole/plugins", f"{COPY}/build/plugins")
    make("trace", ["OPT=-O1", "SAN=-fPIC -fsanitize-coverage=trace-pc"], "build/trace/libunmask.a")
    subprocess.run(["gcc", "-O2", "-fPIC", "-c", "tests/support/trace.c", "-o", "build/trace/trace.o"], cwd=COPY, check=True)
    for build, more in ("whole", []), ("trace", ["build/trace/trace.o"]):
        os.makedirs(f"{COPY}/build/lib-{build}", exist_ok=True)
        assert link(f"{COPY}/build/lib-{build}/libunmask.so", library(build) + more)
    for program in programs:
        of = [f"{program}.o", *(readers if program == "tests/fuzz/test_corpus" else [])]
        out = "unmask" if program == programs[0] else program
        os.makedirs(os.path.dirname(f"{COPY}/build/{out}"), exist_ok=True)
        subprocess.run(["gcc", "-Wl,-S", "-o", f"build/{out}", *(f"build/whole/{o}" for o in of), "-Lbuild/lib-whole", "-lunmask",
                        "-lcheck", "-lsubunit", "-lrt", *LIBS], cwd=COPY, check=True)


# ---- running ----

def worker():
    """A name for files of the thread that asks."""
    return f"{os.getpid()}-{threading.get_ident()}"


def run(command, seconds=60, library="lib-whole", trace=None):
    """(exit status, seconds of CPU) of a command. A broken program may run for ever, or ask for all memory or disk there is: it is
    bounded in `seconds` of CPU time of each process and five times that on the clock, and nothing that it started is left."""
    def bound():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 30, 16 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    env = dict(os.environ, UNMASK=f"{COPY}/build/unmask", UNMASK_PLUGINS=f"{COPY}/build/plugins",
               LD_LIBRARY_PATH=f"{COPY}/build/{library}", CK_TIMEOUT_MULTIPLIER="10", **({"UNMASK_TRACE": trace} if trace else {}))
    process = subprocess.Popen(command, cwd=COPY, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True, preexec_fn=bound, env=env)
    timer = threading.Timer(5 * seconds, os.killpg, (process.pid, 9))
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = status
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass
    return status, usage.ru_utime + usage.ru_stime


def tests_of(suite):
    """The arguments by which each test of a suite runs alone."""
    if suite == "live/test_matrix":
        said = subprocess.run([f"build/tests/{suite}", "--list"], cwd=COPY, capture_output=True, check=True,
                              env=dict(os.environ, LD_LIBRARY_PATH=f"{COPY}/build/lib-whole")).stdout.decode()
        return [[str(i), str(i + 1)] for i in range(len(said.split("\n")) - 1)]
    text = open(f"{COPY}/tests/{suite}.c").read()
    for header in re.findall(r'#include "(tests/support/\w+\.h)"', text):
        text += open(f"{COPY}/{header}").read() if header != "tests/support/suite.h" else ""
    return [[name] for name in re.findall(r"(?m)^TEST(?:_EACH)?\(\s*(\w+)", text)]


class Lines:
    """Which lines of the library each byte of its text that a block begins with stands for."""

    def __init__(self):
        path = "build/lib-trace/libunmask.so"
        calls = re.compile(r"^ *([0-9a-f]+):.*call.*<__sanitizer_cov_trace_pc(@plt)?>")
        code = subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", path], cwd=COPY, stdout=subprocess.PIPE, text=True)
        self.sites = []
        for line in code.stdout:
            match = calls.match(line)
            if match:
                self.sites.append(int(match.group(1), 16) + 5)
        self.sites.sort()
        self.of = {site: set() for site in self.sites}
        rows = subprocess.Popen(["readelf", "--debug-dump=decodedline", "-W", path], cwd=COPY, stdout=subprocess.PIPE, text=True)
        file = None
        for line in rows.stdout:
            match = re.match(r"(?:CU: )?(?:\./)?([\w/.-]+\.[ch]):", line)
            if match:
                file = match.group(1)
                continue
            match = re.match(r"\S+\s+(\d+)\s+0x([0-9a-f]+)", line)
            if match and file:
                at = bisect.bisect_right(self.sites, int(match.group(2), 16) + 5) - 1
                if at >= 0:
                    self.of[self.sites[at]].add((file, int(match.group(1))))

    def seen(self, path):
        """The lines of a trace."""
        data = open(path, "rb").read() if os.path.exists(path) else b""
        found = set()
        for match in re.finditer(rb"\x01+", data):
            for at in range(match.start(), match.end()):
                found |= self.of.get(at, set())
        return found


def traced(name, lines):
    """What a test costs, and the lines that it runs."""
    suite, *arguments = name.split(" ")
    path = f"{HOME}/trace-{worker()}"
    if os.path.exists(path):
        os.remove(path)
    status, spent = run([f"build/tests/{suite}", *arguments], 120, "lib-trace", path)
    by_file = {}
    for file, line in sorted(lines.seen(path)):
        by_file.setdefault(file, []).append(line)
    return {"seconds": round(spent, 2), "status": status, "lines": by_file}


class Tests:
    """The tests, each with what it costs and what it runs where nothing is broken."""

    def __init__(self):
        self.path = f"{HOME}/tests.json"
        self.known = json.load(open(self.path)) if os.path.exists(self.path) else {}
        self.runs = {}
        for name, test in self.known.items():
            self.learn(name, test)

    def learn(self, name, test):
        for file, lines in test["lines"].items():
            for line in lines:
                self.runs.setdefault((file, line), []).append(name)

    def trace(self, pattern, pool):
        """Runs those that are not known, or whose suite matches, and notes what they run."""
        names = [" ".join([suite, *arguments]) for suite in suites() for arguments in tests_of(suite)]
        wanted = [name for name in names if name not in self.known or self.known[name]["status"] != 0
                  or (pattern and re.search(pattern, name.split(" ")[0]))]
        if not wanted:
            return
        lines = Lines()
        self.known[""] = {"seconds": 0, "status": -1, "lines": {}}  # all lines that are code, run or not
        for file, line in sorted(set().union(*lines.of.values())):
            self.known[""]["lines"].setdefault(file, []).append(line)
        for n, (name, test) in enumerate(zip(wanted, pool.map(lambda name: traced(name, lines), wanted)), 1):
            self.known[name] = test
            print(f"{n}/{len(wanted)} {name}: {test['seconds']:.2f} s, {sum(map(len, test['lines'].values()))} lines, "
                  f"status {test['status']}", flush=True)
            if n % 20 == 0 or n == len(wanted):
                json.dump(self.known, open(self.path + ".new", "w"))
                os.replace(self.path + ".new", self.path)
        self.__init__()

    def of(self, path, line):
        """Batches of tests of one suite that run the line, or the nearest before that is code, by their time, which counts a sixth where
        the suite includes a header of the line's folder; what takes over a second is alone."""
        folder = f'"{os.path.dirname(path)}/'
        batches, near = {}, next((n for n in range(line, line - 60, -1) if (path, n) in self.runs), line)
        for name in self.runs.get((path, near), []):
            suite, *arguments = name.split(" ")
            test = self.known[name]
            if test["status"] == 0:
                alone = test["seconds"] > 1 or len(arguments) > 1
                batch = batches.setdefault(name if alone else suite, [suite, 0, []])
                batch[1] += test["seconds"]
                batch[2] += arguments
        return sorted(batches.values(), key=lambda batch: batch[1] / (6 if folder in suite_text(batch[0]) else 1))


def suite_text(suite, cache={}):
    if suite not in cache:
        cache[suite] = open(f"{COPY}/tests/{suite}.c").read()
    return cache[suite]


def compiled(path, text):
    """The bytes of the object of a text that stands for the file, b"" where it is no C."""
    out = f"{COPY}/build/mutant-{worker()}.o"
    source = f'#line 1 "{path}"\n{text}'
    done = subprocess.run(["gcc", *FLAGS, "-x", "c", "-c", "-", "-o", out], cwd=COPY, input=source.encode(), capture_output=True)
    return open(out, "rb").read() if done.returncode == 0 else b""


def try_mutant(mutant, tests, budget, originals={}):
    """What came of it; None where there is nothing to try."""
    if mutant.path not in originals:
        originals[mutant.path] = compiled(mutant.path, open(f"{COPY}/{mutant.path}").read())
    if compiled(mutant.path, mutant.text) in (b"", originals[mutant.path]):
        return None
    own = f"lib-mutant-{worker()}"
    os.makedirs(f"{COPY}/build/{own}", exist_ok=True)
    others = [o for o in library_objects() if o != f"build/whole/{mutant.path[:-2]}.o"]
    if not link(f"{COPY}/build/{own}/libunmask.so", [*others, f"build/mutant-{worker()}.o"]):
        return None
    spent, batches = 0, tests.of(mutant.path, mutant.line)
    for suite, seconds, arguments in batches:
        if spent + seconds > budget and spent > 0:
            return {"verdict": "survived", "spent": round(spent), "left": len(batches)}
        status, used = run([f"build/tests/{suite}", *arguments], int(10 + 4 * seconds), own)
        spent += used
        if status != 0:
            return {"verdict": "caught", "by": suite, "status": status, "spent": round(spent, 1)}
    return {"verdict": "survived", "spent": round(spent, 1), "ran": sum(len(b[2]) for b in batches)}


def library_objects(cache=[]):
    if not cache:
        cache.extend(library("whole"))
    return cache

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


NOTING = threading.Lock()


def note(mutant, outcome, seed):
    found = dict(outcome, seed=seed, **mutant.facts())
    with NOTING, open(FOUND, "a") as file:
        file.write(json.dumps(found) + "\n")
    print(f"{found['verdict']:9} {found.get('by', ''):28} {mutant.path}:{mutant.line}: {mutant.was}  ->  {mutant.becomes}", flush=True)


def again(found, tests, budget):
    places = [place for place in candidates(f"{COPY}/{found['file']}") if place[0] == found["operator"]]
    for place in places:
        mutant = Mutant(found["module"], found["file"], place)
        if key(mutant.facts()) == key(found):
            outcome = try_mutant(mutant, tests, budget)
            if outcome is not None:
                note(mutant, outcome, found["seed"])
            return
    print(f"{found['file']} has changed: {found['was']}")


def print_table(seed):
    known, all_found = judged(), [f for f in load() if seed in (None, f["seed"])]
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--seed", type=int, help="default: 1; of --again and --table: all")
    parser.add_argument("--module", default="")
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests and mutants that run at once")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--file", default="", help="of --again: only files in whose path this regular expression is found")
    parser.add_argument("--trace", default="", help="runs the tests anew whose suite matches, and notes what they run")
    parser.add_argument("--built", action="store_true", help="the copy as it stands")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        print_table(asked.seed)
        return
    if not asked.built:
        prepare()
    tests, known, done = Tests(), judged(), {key(f) for f in load()}
    pool = concurrent.futures.ThreadPoolExecutor(asked.jobs)
    library_objects()
    tests.trace(asked.trace, pool)
    if asked.again:
        for found in load():
            wanted = found["module"].startswith(asked.module) and re.search(asked.file, found["file"]) and asked.seed in (None, found["seed"])
            if wanted and found["verdict"] == "survived" and key(found) not in known:
                again(found, tests, asked.budget)
    seed, modules = asked.seed or 1, [m for m in MODULES if m.startswith(asked.module) and not asked.again]
    draws = {module: random.Random(f"{seed} {module}") for module in modules}
    turns = {module: threading.Lock() for module in modules}

    def next_of(module):
        with turns[module]:  # what is drawn does not depend on who is first
            outcome = None
            while outcome is None:
                mutant = draw(draws[module], module)
                if key(mutant.facts()) in done:
                    return
                outcome = try_mutant(mutant, tests, asked.budget)
            note(mutant, outcome, seed)
            done.add(key(mutant.facts()))

    list(pool.map(next_of, modules * asked.each))
    print_table(asked.seed)


main()
