"""Are the checks able to fail? Breaks the program at random places, one at a time, and sees which breaks the tests notice.

  mutate.py [--each 5] [--seed 1] [--module PREFIX] [--budget 60]   draws and tries so many mutants of each module
  mutate.py --since COMMIT [--draws 60] [--seed 1] [--module PREFIX] the same of lines that are new since a commit
  mutate.py --again [--module PREFIX] [--file REGEX]                tries those again that survived
  mutate.py --table                                                 what was found so far, by module
  mutate.py ... --suites REGEX                                      builds, traces and asks only the suites whose path matches

A mutant is one changed token or statement of one function: a comparison, an operator, a constant, a condition, a call left out,
two arguments exchanged. One whose object is the same is dropped.

Mutants are tried in a copy of the tree under build/mutants. Its library is a shared one there: a mutant costs one compilation and
one link, whatever number of programs runs it. Each test was run once before, alone, with a library that says which lines it runs:
a mutant is tried by the tests that run its line, the quick ones first, until one is red, in --budget seconds of CPU time at most
(default: 60). A test that takes ten seconds and four times longer than it should is red. The lines are those that a test ran when it
was last traced; of a file that has changed since, its tests are those that ran any of its lines, and of the module in Python all of its
own.

A break that only some suites were asked of (--suites '^(sim|traces)/') and that survived may be seen by the others: what is noticed of
these is the least that all notice.

With --since each line is as likely as the other of those that git diff calls new and that did not stand elsewhere before; the module in
Python counts, too, and is tried by its own tests. Ctrl-C ends it with what was found so far; the same command goes on from there.

What was found is kept in build/mutants/found.jsonl; survivors that were judged to change nothing that a test could see stand,
with the reason, in tests/mutants-judged."""

import argparse
import bisect
import collections
import concurrent.futures
import glob
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import mutate_python

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HOME = f"{ROOT}/build/mutants"
COPY = f"{HOME}/tree"
FOUND = f"{HOME}/found.jsonl"
JUDGED = f"{ROOT}/tests/mutants-judged"
MODULES = {
    "sim/serve": ["sim/serve"],
    "sim policies": ["sim/policy/scheduler", "sim/policy/cache", "sim/policy/decoder", "sim/policy/router", "sim/policy", "sim/policy/plugin",
                     "sim/policy/check"],
    "sim/price": ["sim/price", "sim/price/profile", "sim/bound"],
    "sim/memory": ["sim/memory", "sim/memory/planner"],
    "sim/decode, step": ["sim/decode", "sim/step"],
    "sim/model, system, input": ["sim/model", "sim/system", "sim/base/input", "sim/base"],
    "traces": ["traces", "traces/format"],
    "analysis": ["analysis", "analysis/*"],
    "engine": ["engine", "engine/*"],
    "kernels/ref": ["kernels/ref", "kernels/device"],
    "experiments": ["experiments/*", "experiments/run/*"],
    "python": ["experiments/python/unmask"],
}
PYTHON = MODULES["python"][0]
# What no suite on a CPU can run, of what --since draws from.
NOT_DRAWN = {
    "needs a GPU": r"^(kernels/(?!ref/|device/)|experiments/gpu/)",
    "only make docs and make package-test run it": r"^experiments/package/",
    "nothing but people run it": r"^experiments/(train|import)/.*\.py$",
    "only make wheel and make mpi run it": r"^experiments/(python/wheel|run/ranks/link_mpi)",
    "programs and not the library": r"^experiments/(command/main|python/(test_|tutorial))",
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
TRACED_S = 60  # of CPU time: a test that takes more where it is traced, five times slower, is not asked
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
    whole = open(path).read()
    code = masked(whole)
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
                yield "condition", at + match.start(2), at + match.end(2), f"!({whole[at + match.start(2):at + match.end(2)]})"
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


def new_lines(commit):
    """{file: its lines} that are new since a commit. A line that was taken away elsewhere has only moved."""
    diff = subprocess.run(["git", "-c", "core.quotePath=false", "diff", "-U0", "--no-color", "--no-ext-diff", "-M", commit, "--",
                           "*.c", "*.py", ":!tests"], cwd=ROOT, check=True, capture_output=True, text=True, errors="replace").stdout
    gone, found, path, at = collections.Counter(), {}, None, 0
    for line in diff.split("\n"):
        if line.startswith("-") and not line.startswith("--- "):
            gone[line[1:].strip()] += 1
    for line in diff.split("\n"):
        if line.startswith("+++ "):
            path = line[len("+++ b/"):]
        elif line.startswith("@@ "):
            at = int(re.match(r"@@ \S+ \+(\d+)", line).group(1))
        elif line.startswith("+"):
            text = line[1:].strip()
            if gone[text] > 0:
                gone[text] -= 1
            else:
                found.setdefault(path, set()).add(at)
            at += 1
    return found


def places_in(path):
    text = open(f"{COPY}/{path}").read()
    return mutate_python.candidates(text) if path.endswith(".py") else candidates(f"{COPY}/{path}")


def module_of(path):
    known = [module for module in MODULES if path.startswith(PYTHON) == (module == "python") and path in
             {p for folder in MODULES[module] for ext in ("c", "py") for p in glob.glob(f"{folder}/*.{ext}", root_dir=COPY)}]
    return known[0] if known else None


def drawn_from(commit, prefix):
    """{(file, line): the breaks that begin there} of the lines that are new, and {why they are left out: how many lines}."""
    spots, left_out = {}, collections.Counter()
    for path, lines in sorted(new_lines(commit).items()):
        why = next((why for why, pattern in NOT_DRAWN.items() if re.search(pattern, path)), None)
        module = module_of(path) if why is None else None
        if module is None:
            left_out[why or "of no module"] += len(lines)
        elif module.startswith(prefix):
            text = open(f"{COPY}/{path}").read()
            ends = [match.start() for match in re.finditer("\n", text)]
            for place in places_in(path):
                line = bisect.bisect_left(ends, place[1]) + 1
                if line in lines:
                    spots.setdefault((module, path, line), []).append(place)
    return spots, left_out


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


def suites(pattern=""):
    """Those in C by their paths in tests/, and python/NAME for those of the module where pandas is."""
    found = sorted(p[len("tests/"):-2] for p in glob.glob("tests/*/test_*.c", root_dir=COPY) if "/gpu/" not in p)
    own = sorted(f"python/{p[:-3]}" for p in glob.glob("test_*.py", root_dir=f"{COPY}/experiments/python"))
    return [suite for suite in found + own if re.search(pattern, suite) and (suite in found or interpreter())]


def source_of(suite):
    return f"{COPY}/experiments/{suite}.py" if suite.startswith("python/") else f"{COPY}/tests/{suite}.c"


def interpreter(cache=[]):
    """A Python that has pandas, installed beside the copy where there is none; None: there is none."""
    if not cache:
        own = f"{HOME}/venv/bin/python"
        for python in sys.executable, own, None:
            if python == own and not os.path.exists(own) and subprocess.run(
                    [sys.executable, "-m", "venv", f"{HOME}/venv"], stdout=subprocess.DEVNULL).returncode == 0:
                subprocess.run([own, "-m", "pip", "install", "-q", "--disable-pip-version-check", "pandas>=2.0"])
            if python is None or (os.path.exists(python) and subprocess.run(
                    [python, "-c", "import pandas"], capture_output=True).returncode == 0):
                cache.append(python)
                break
    return cache[0]


def copy():
    """The tree as it stands, and nothing of what stood there before."""
    os.makedirs(COPY, exist_ok=True)
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    names = {name for name in names if os.path.lexists(f"{ROOT}/{name}") and name}
    for folder, _, files in os.walk(COPY):
        for file in files:
            path = os.path.relpath(os.path.join(folder, file), COPY)
            if path not in names and not path.startswith("build/"):
                os.remove(f"{COPY}/{path}")
    subprocess.run(["tar", "c", "--null", "-T", "-", "-f", f"{HOME}/tree.tar"], cwd=ROOT, check=True, text=True,
                   input="\0".join(sorted(names)))
    subprocess.run(["tar", "xf", f"{HOME}/tree.tar", "-C", COPY], check=True)
    os.remove(f"{HOME}/tree.tar")


def package(folder, **changed):
    """The module in Python as it is installed, with other texts for some of its files; whether its parts in C compile."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(f"{COPY}/{PYTHON}", f"{folder}/unmask")
    for name in "bin", "lib":
        os.mkdir(f"{folder}/unmask/{name}")
    os.symlink(f"{COPY}/build/unmask", f"{folder}/unmask/bin/unmask")
    os.makedirs(f"{folder}/include/{os.path.dirname(PYTHON)}", exist_ok=True)
    if not os.path.lexists(f"{folder}/include/{PYTHON}"):
        os.symlink(f"{folder}/unmask", f"{folder}/include/{PYTHON}")
    for path, text in changed.items():
        with open(f"{folder}/unmask/{path}", "w") as file:
            file.write(text)
    shim = ["gcc", "-std=c11", f"-I{folder}/include", f"-I{COPY}", "-O2", "-shared", "-fPIC", f"{folder}/unmask/shim.c", "-o"]
    kinds = {"scheduler": [], **{kind: [f"-DSHIM_{kind.upper()}"] for kind in ("cache", "decoder", "router")}}
    return all(run([*shim, f"{folder}/unmask/lib/{kind}.so", *defined])[0] == 0 for kind, defined in kinds.items())


def prepare(pattern):
    """The copy, its programs, and two libraries: one to be broken, one that says what it runs."""
    progress("building: the program and every suite, and once more to see which lines each test runs")
    copy()
    assert package(f"{COPY}/build/python")
    readers = [p[:-2] + ".o" for p in glob.glob("tests/fuzz/reader*.c", root_dir=COPY)]
    programs = ["experiments/command/main", *(f"tests/{name}" for name in suites(pattern) if not name.startswith("python/"))]
    objects = [f"{program}.o" for program in programs] + readers
    make("whole", ["OPT=-O2", "SAN=-fPIC"], "build/whole/libunmask.a", "plugins", *(f"build/whole/{o}" for o in objects))
    if not os.path.exists(f"{COPY}/build/plugins"):
        os.symlink("whole/plugins", f"{COPY}/build/plugins")
    if shutil.which("mpicc"):
        make("whole", ["OPT=-O2", "SAN=-fPIC"], "build/whole/libunmask_mpi.so")
        shutil.copy(f"{COPY}/build/whole/libunmask_mpi.so", f"{COPY}/build/libunmask_mpi.so")
    make("trace", ["OPT=-O1", "SAN=-fPIC -fsanitize-coverage=trace-pc"], "build/trace/libunmask.a")
    subprocess.run(["gcc", "-O2", "-fPIC", "-c", "tests/support/trace.c", "-o", "build/trace/trace.o"], cwd=COPY, check=True)
    for build, more in ("whole", []), ("trace", ["build/trace/trace.o"]):
        os.makedirs(f"{COPY}/build/lib-{build}", exist_ok=True)
        assert link(f"{COPY}/build/lib-{build}/libunmask.so", library(build) + more)
    os.makedirs(f"{COPY}/build/lib-base", exist_ok=True)
    if not os.path.exists(f"{COPY}/build/lib-base/libunmask_whole.so"):
        os.symlink("../lib-whole/libunmask.so", f"{COPY}/build/lib-base/libunmask_whole.so")
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


class Stopped(Exception):
    """Ctrl-C."""


STOP, RUNNING = threading.Event(), set()


def stop():
    """Ends what runs; nothing that was running counts."""
    STOP.set()
    for group in list(RUNNING):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass


def progress(text=""):
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def run(command, seconds=60, library="lib-whole", trace=None, module="build/python"):
    """(exit status, seconds of CPU) of a command. A broken program may run for ever, or ask for all memory or disk there is: it is
    bounded in `seconds` of CPU time of each process and five times that on the clock, and nothing that it started is left."""
    def bound():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 30, 16 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    env = dict(os.environ, UNMASK=f"{COPY}/build/unmask", UNMASK_PLUGINS=f"{COPY}/build/plugins",
               LD_LIBRARY_PATH=f"{COPY}/build/{library}:{COPY}/build/lib-base", PYTHONPATH=f"{COPY}/{module}",
               UNMASK_PROGRAM=f"{COPY}/build/unmask", PYTHONDONTWRITEBYTECODE="1", CK_TIMEOUT_MULTIPLIER="10", **({"UNMASK_TRACE": trace} if trace else {}))
    process = subprocess.Popen(command, cwd=COPY, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True, preexec_fn=bound, env=env)
    RUNNING.add(process.pid)
    timer = threading.Timer(5 * seconds, os.killpg, (process.pid, 9))
    timer.start()
    if STOP.is_set():
        os.killpg(process.pid, 9)
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    RUNNING.discard(process.pid)
    process.returncode = status
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass
    if STOP.is_set():
        raise Stopped
    return status, usage.ru_utime + usage.ru_stime


def command(suite, arguments):
    if suite.startswith("python/"):  # -c: the suite's folder, in which the module's sources are, is not looked at
        program = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
        return [interpreter(), "-c", program, source_of(suite), "-f", *arguments]
    return [f"build/tests/{suite}", *arguments]


def tests_of(suite):
    """The arguments by which each test of a suite runs alone."""
    if suite == "live/test_matrix":
        said = subprocess.run([f"build/tests/{suite}", "--list"], cwd=COPY, capture_output=True, check=True,
                              env=dict(os.environ, LD_LIBRARY_PATH=f"{COPY}/build/lib-whole")).stdout.decode()
        return [[str(i), str(i + 1)] for i in range(len(said.split("\n")) - 1)]
    text = open(source_of(suite)).read()
    if suite.startswith("python/"):
        return [[name] for name in mutate_python.tests_of(text)]
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
    if suite.startswith("python/"):
        status, spent = run(command(suite, arguments), TRACED_S)
        return {"seconds": round(spent, 2), "status": status, "lines": {}}
    status, spent = run(command(suite, arguments), TRACED_S, "lib-trace", path)
    by_file = {}
    for file, line in sorted(lines.seen(path)):
        by_file.setdefault(file, []).append(line)
    return {"seconds": round(spent, 2), "status": status, "lines": by_file}


def digest_of(*texts):
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


class Tests:
    """The tests, each with what it costs and what it runs where nothing is broken. Those of suites that match are asked."""

    def __init__(self, pattern):
        self.path, self.pattern = f"{HOME}/tests.json", pattern
        kept = json.load(open(self.path)) if os.path.exists(self.path) else {}
        self.known, self.files, self.runs = kept.get("tests", {}), kept.get("files", {}), {}
        for name, test in self.known.items():
            for file, lines in test["lines"].items():
                for line in lines:
                    self.runs.setdefault((file, line), []).append(name)

    def keep(self):
        json.dump({"files": self.files, "tests": self.known}, open(self.path + ".new", "w"))
        os.replace(self.path + ".new", self.path)

    def trace(self, pattern, pool):
        """Runs those that are not known, whose suite has changed, or matches, and notes what they run."""
        now = {suite: digest_of(suite_text(suite)) for suite in suites(self.pattern)}
        names = [" ".join([suite, *arguments]) for suite in now for arguments in tests_of(suite)]
        self.known = {name: test for name, test in self.known.items() if name in ["", *names] or not self.asks(name)}
        wanted = [name for name in names if name not in self.known or (pattern and re.search(pattern, name.split(" ")[0]))
                  or self.known[name]["suite"] != now[name.split(" ")[0]]]
        is_first = all(name in wanted for name in self.known if name)
        # Slow ones last: what is stopped goes on there.
        wanted.sort(key=lambda name: name.startswith("experiments/") + 2 * name.startswith(("engine/", "live/", "kernels/")))
        if is_first:
            self.files = {path: digest_of(open(f"{COPY}/{path}").read()) for path in library_sources()}
        lines, begun = Lines() if wanted else None, time.monotonic()
        if is_first and wanted:  # all lines that are code, run or not
            code = {}
            for file, line in sorted(set().union(*lines.of.values())):
                code.setdefault(file, []).append(line)
            self.known[""] = {"seconds": 0, "status": -1, "lines": code}
        for n, (name, test) in enumerate(zip(wanted, pool.map(lambda name: traced(name, lines), wanted)), 1):
            self.known[name] = dict(test, suite=now[name.split(" ")[0]])
            left_s = (time.monotonic() - begun) / n * (len(wanted) - n)
            progress(f"which lines each test runs: {n} of {len(wanted)} tests, about {left_s / 60:.0f} min left")
            if n % 20 == 0 or n == len(wanted):
                self.keep()
        progress()
        self.__init__(self.pattern)

    def asks(self, name):
        return bool(re.search(self.pattern, name.split(" ")[0]))

    def that_run(self, path, line):
        """The names of tests that run the line, or the nearest before that is code; of a file that is not what was traced, any line."""
        if path.startswith(PYTHON):
            return [name for name in self.known if name.startswith("python/")]
        if self.files.get(path) != digest_of(open(f"{COPY}/{path}").read()):
            return [name for name in self.known if path in self.known[name]["lines"]]
        near = next((n for n in range(line, line - 60, -1) if (path, n) in self.runs), line)
        return self.runs.get((path, near), [])

    def of(self, path, line):
        """Batches of tests of one suite that run a line, by their time, which counts a sixth where the suite includes a header of the
        line's folder; what takes over a second is alone."""
        folder, batches = f'"{os.path.dirname(path)}/', {}
        for name in self.that_run(path, line):
            suite, *arguments = name.split(" ")
            test = self.known[name]
            if test["status"] == 0 and self.asks(name):
                alone = test["seconds"] > 1 or len(arguments) > 1
                batch = batches.setdefault(name if alone else suite, [suite, 0, []])
                batch[1] += test["seconds"]
                batch[2] += arguments
        return sorted(batches.values(), key=lambda batch: batch[1] / (6 if folder in suite_text(batch[0]) else 1))


def python_sources():
    return sorted(f"{PYTHON}/{name}" for name in glob.glob("*.py", root_dir=f"{COPY}/{PYTHON}"))


def suite_text(suite, cache={}):
    if suite not in cache:
        text = cache[suite] = open(source_of(suite)).read()
        for header in re.findall(r'#include "(tests/support/(?!suite)\w+\.h)"', text):
            cache[suite] += open(f"{COPY}/{header}").read()
    return cache[suite]


def compiled(path, text):
    """The bytes of the object of a text that stands for the file, b"" where it is no C."""
    out = f"{COPY}/build/mutant-{worker()}.o"
    source = f'#line 1 "{path}"\n{text}'
    done = subprocess.run(["gcc", *FLAGS, "-x", "c", "-c", "-", "-o", out], cwd=COPY, input=source.encode(), capture_output=True)
    return open(out, "rb").read() if done.returncode == 0 else b""


def broken(mutant, originals={}):
    """What is built of a break, for run(): {} where it is what it was, None where it cannot be built."""
    own = worker()
    if mutant.module == "python":
        name, is_python = os.path.basename(mutant.path), mutant.path.endswith(".py")
        if is_python and not mutate_python.compiles(mutant.text):
            return None
        folder = f"{HOME}/python-{own}"
        return {"module": os.path.relpath(folder, COPY)} if package(folder, **{name: mutant.text}) else None
    if mutant.path not in originals:
        originals[mutant.path] = compiled(mutant.path, open(f"{COPY}/{mutant.path}").read())
    made = compiled(mutant.path, mutant.text)
    if made in (b"", originals[mutant.path]):
        return None if made == b"" else {}
    os.makedirs(f"{COPY}/build/lib-mutant-{own}", exist_ok=True)
    # In front of the whole library, whose calls find what is defined here first.
    is_linked = run(["gcc", "-shared", "-o", f"build/lib-mutant-{own}/libunmask.so", f"build/mutant-{own}.o", "-Wl,--no-as-needed",
                     "-Lbuild/lib-base", "-lunmask_whole"])[0] == 0
    return {"library": f"lib-mutant-{own}"} if is_linked else None


def try_mutant(mutant, tests, budget):
    """What came of it."""
    own = broken(mutant)
    if not own:
        return {"verdict": "same object" if own == {} else "does not build"}
    spent, asked, batches = 0, set(), tests.of(mutant.path, mutant.line)
    for n, (suite, seconds, arguments) in enumerate(batches):
        if spent + seconds > budget and spent > 0:
            return {"verdict": "survived", "spent": round(spent, 1), "asked": sorted(asked), "left": len(batches) - n}
        status, used = run(command(suite, arguments), int(10 + 4 * seconds), **own)
        spent += used
        asked.add(suite)
        if status != 0:
            return {"verdict": "caught", "by": suite, "status": status, "spent": round(spent, 1), "asked": sorted(asked)}
    return {"verdict": "survived", "spent": round(spent, 1), "asked": sorted(asked), "left": 0}


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
    progress()
    print(f"{found['verdict']:9} {found.get('by', ''):28} {mutant.path}:{mutant.line}: {mutant.was}  ->  {mutant.becomes}", flush=True)
    return found


def again(found, tests, budget):
    places = [place for place in places_in(found["file"]) if place[0] == found["operator"]]
    for place in places:
        mutant = Mutant(found["module"], found["file"], place)
        if key(mutant.facts()) == key(found):
            note(mutant, try_mutant(mutant, tests, budget), found["seed"])
            return
    print(f"{found['file']} has changed: {found['was']}")


def wilson(n, of):
    """The 95 % interval of a share."""
    z, share = 1.96, n / of
    middle, half = share + z * z / (2 * of), z * (share * (1 - share) / of + z * z / (4 * of * of)) ** 0.5
    return (middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of)


def print_table(found):
    known, tried = judged(), [f for f in found if f["verdict"] in ("caught", "survived")]
    print(f"{'module':28}{'tried':>7}{'noticed':>9}{'judged equal':>14}{'survived':>10}{'score':>8}   95 %")
    for module in [*MODULES, "all"]:
        of = [f for f in tried if module in ("all", f["module"])]
        caught = sum(f["verdict"] == "caught" for f in of)
        equal = sum(f["verdict"] == "survived" and key(f) in known for f in of)
        rest = len(of) - equal
        low, high = wilson(caught, rest) if rest else (0, 1)
        score = f"{100 * caught / rest:6.0f} %   {100 * low:.0f} to {100 * high:.0f} %" if rest else ""
        if of:
            print(f"{module:28}{len(of):7}{caught:9}{equal:14}{rest - caught:10}{score}")
    for f in tried:
        if f["verdict"] == "survived":
            why = known.get(key(f))
            left = f", {f['left']} more not asked for want of time" if f.get("left") else ""
            by = f"[asked: {', '.join(f['asked'])}{left}]" if f.get("asked") else "[no test runs the line]"
            print(f"{'equal   ' if why else 'SURVIVED'} {f['file']}:{f['line']}: {f['was']}  ->  {f['becomes']}  "
                  f"{f'({why})' if why else by}")


def by_module(asked, tests, pool):
    """Draws --each breaks of each module, all operators alike."""
    done, seed = {key(f) for f in load()}, asked.seed or 1
    modules = [m for m in MODULES if m.startswith(asked.module) and m != "python"]
    draws = {module: random.Random(f"{seed} {module}") for module in modules}
    turns = {module: threading.Lock() for module in modules}

    def next_of(module):
        with turns[module]:  # what is drawn does not depend on who is first
            while True:
                mutant = draw(draws[module], module)
                if key(mutant.facts()) in done:
                    return
                outcome = try_mutant(mutant, tests, asked.budget)
                if outcome["verdict"] in ("caught", "survived"):
                    break
            note(mutant, outcome, seed)
            done.add(key(mutant.facts()))

    list(pool.map(next_of, modules * asked.each))
    print_table([f for f in load() if asked.seed in (None, f["seed"])])


def since(asked, tests, pool):
    """Draws --draws breaks of new lines, each line alike, then each operator that the line has, then each place."""
    commit = subprocess.run(["git", "rev-parse", "--verify", "--quiet", asked.since + "^{commit}"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.strip()
    spots, left_out = drawn_from(commit, asked.module)
    is_python_left_out = any(spot[0] == "python" for spot in spots) and interpreter() is None
    if is_python_left_out:
        spots = {spot: places for spot, places in spots.items() if spot[0] != "python"}
    if not spots:
        sys.exit(f"mutate: no line that can be broken is new since {asked.since}{' in ' * bool(asked.module)}{asked.module}")
    seed, files = f"{asked.seed or 1} since {commit[:12]}", [*library_sources(), *python_sources(), *(f"{PYTHON}/shim{part}" for part in (".c", "_line.h"))]
    state = digest_of(*map(suite_text, suites(tests.pattern)), *(open(f"{COPY}/{path}").read() for path in files))
    rng, order = random.Random(seed), sorted(spots)
    rng.shuffle(order)
    kept = {key(f): f for f in load() if f["seed"] == seed and f.get("state") == state}
    found, begun = [], time.monotonic()
    print(f"{len(order)} lines that can be broken are new since {commit[:12]}; seed {asked.seed or 1}")
    for why, n in sorted(left_out.items()):
        print(f"not drawn from: {n} new lines ({why})")

    def attempt(mutant):
        f = kept.get(key(mutant.facts()))
        if f is None:
            f = note(mutant, dict(try_mutant(mutant, tests, asked.budget), state=state), seed)
        found.append(f)
        n = sum(f["verdict"] in ("caught", "survived") for f in found)
        left_s = (time.monotonic() - begun) / max(n, 1) * (asked.draws - n)
        progress(f"{n} of {asked.draws} breaks tried, about {left_s / 60:.0f} min left")

    def summary():
        progress()
        tally = collections.Counter(f["verdict"] for f in found)
        print_table(sorted(found, key=lambda f: (f["file"], f["line"])))
        slow = sorted(name for name, test in tests.known.items() if name and test["status"] != 0 and tests.asks(name))
        print(f"{tally['caught'] + tally['survived']} of {asked.draws} breaks tried; {tally['does not build']} more did not build, "
              f"{tally['same object']} changed nothing that is compiled")
        print(f"asked of each: the tests of {len(suites(tests.pattern))} suites that run its line, quickest first, until one is red or {asked.budget} s "
              f"are spent{'; the Python module was not drawn from: there is no pandas' if is_python_left_out else ''}")
        if slow:
            print(f"not asked, for they were red or took {TRACED_S} s where nothing was broken: {', '.join(slow)}")

    try:
        while order and sum(f["verdict"] in ("caught", "survived") for f in found) < asked.draws:
            wanted = asked.draws - sum(f["verdict"] in ("caught", "survived") for f in found)
            mutants = []
            for module, path, line in order[:wanted]:
                places = spots[module, path, line]
                operator = rng.choice(sorted({place[0] for place in places}))
                mutants.append(Mutant(module, path, rng.choice([place for place in places if place[0] == operator])))
            del order[:wanted]
            list(pool.map(attempt, mutants))
    except KeyboardInterrupt:
        stop()
        summary()
        raise
    summary()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--draws", type=int, default=60, help="of --since")
    parser.add_argument("--seed", type=int, help="default: 1; of --again and --table: all")
    parser.add_argument("--module", default="")
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests and mutants that run at once")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--file", default="", help="of --again: only files in whose path this regular expression is found")
    parser.add_argument("--trace", default="", help="runs the tests anew whose suite matches, and notes what they run")
    parser.add_argument("--suites", default="", metavar="REGEX", help="builds, traces and asks only the suites whose path matches")
    parser.add_argument("--built", action="store_true", help="the copy as it stands")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.since and subprocess.run(["git", "rev-parse", "--verify", "--quiet", asked.since + "^{commit}"], cwd=ROOT,
                                      stdout=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"mutate: there is no commit '{asked.since}' in this clone; one that is shallow has only the newest")
    if asked.table:
        print_table([f for f in load() if asked.seed in (None, f["seed"])])
        return
    pool = concurrent.futures.ThreadPoolExecutor(asked.jobs)
    try:
        if not asked.built:
            prepare(asked.suites)
        tests = Tests(asked.suites)
        tests.trace(asked.trace, pool)
        if asked.again:
            known = judged()
            list(pool.map(lambda found: again(found, tests, asked.budget), [
                f for f in load() if f["module"].startswith(asked.module) and re.search(asked.file, f["file"]) and
                f["verdict"] == "survived" and key(f) not in known and str(f["seed"]).startswith(str(asked.seed or ""))]))
            print_table([f for f in load() if str(f["seed"]).startswith(str(asked.seed or ""))])
        elif asked.since:
            since(asked, tests, pool)
        else:
            by_module(asked, tests, pool)
    except KeyboardInterrupt:
        stop()
        pool.shutdown(cancel_futures=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
