#!/usr/bin/env python3
"""The documentation against the program: `make docs` runs it.

Every command in a fenced block marked sh, and every command in inline code, is run in a folder of its own beside links to
the source tree, one folder a page, in the page's order; tests/docs/rules says which are not, and why. Pages that are made
from tables are compared with what the program makes of them now, and so are the measured profiles; the fields of JSON and
the columns of databases have to stand in their pages; links and paths have to lead somewhere, if only in the history that
the index of measurements names. Pages that people write are measured: lines, characters of cells, numbers of sentences.
"""

import concurrent.futures
import fnmatch
import glob
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
MOST_LINES = 200
MOST_CHARACTERS = 60  # of a table's cell
MOST_NUMBERS = 2  # of a sentence
SENTENCES_OVER = 0  # this many may have more; the number goes down, never up
COMMANDS = "docs/reference/commands"  # a made page for each group of commands
MADE = {"docs/reference/commands.md": "commands", "docs/reference/keys.md": "keys", "docs/reference/features.md": "features",
        "docs/reference/cautions.md": "cautions",
        "docs/reference/fields.md": "fields", "docs/reference/endpoints.md": "endpoints",
        "experiments/python/unmask/_options.py": "python"}
RESULTS = "experiments/gpu/results"
PAGES = ["README.md", "CONTRIBUTING.md", "experiments/study/studies/README.md", f"{RESULTS}/README.md", "tests/README.md",
         "kernels/lab/README.md"] + sorted(
    str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))
NAMED = (r"`[^`]*`|\]\([^)]*\)|20\d\d-\d\d-\d\d|"  # code, targets of links, dates; figures and papers; cards
         r"\b([Tt]able|[Ff]igure|[Ss]ection|[Rr]ow|arXiv|RTX|PRO)s? \d+(?:\.\d+)*(?:(?:,| to| and) \d+)*")
FORM = re.compile(r"\b(FILE|NAME|TRACE|OUT|WHAT|COMMAND|KEY|G|S|N|X|DIR|IN|MODEL)\b|\.\.\.|…")
WRAPPER = """#!/bin/sh
exec {program} "$@"
"""
failures = []


def fail(sentence):
    failures.append(sentence)
    print(f"docs: {sentence}", file=sys.stderr)


class Rules:
    def __init__(self):
        self.rows = []
        for line in (ROOT / "tests/docs/rules").read_text().splitlines():
            if line and not line.startswith("#"):
                self.rows.append((*line.split("\t"), [0]))

    def apply(self, command):
        """The command to run, or None and why not; what stands behind a # is no part of it."""
        command = re.sub(r"\s+# .*$", "", command)
        for action, pattern, text, used in self.rows:
            if not re.search(pattern, command):
                continue
            if action == "skip":
                used[0] += 1
                return None, text
            if action == "put":
                used[0] += 1
                command = re.sub(pattern, text, command)
            elif text.split()[0] not in command:
                used[0] += 1
                command = re.sub(pattern, lambda m: f"{m.group(0)}{text} ", command)
        return command, None


def commands_of(text):
    """(line, command) of a block: lines that go on, and here-documents, in one piece."""
    lines, i = text.split("\n"), 0
    while i < len(lines):
        start, command = i, lines[i]
        here = re.search(r"<<'?(\w+)'?", command)
        while command.endswith("\\") or (here and lines[i] != here.group(1)):
            i += 1
            command += "\n" + lines[i]
        if command.strip() and not command.startswith("#"):
            yield start, command
        i += 1


def found_in(page):
    """(line, command, is_inline) of a page, in order."""
    text, found = (ROOT / page).read_text(), []
    for block in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        line = text.count("\n", 0, block.start()) + 2
        if block.group(1) == "":
            fail(f"{page}:{line - 1}: the block does not say what it is (sh, text, ini, python)")
        if block.group(1) == "sh":
            found += [(line + at, command, False) for at, command in commands_of(block.group(2))]
    rest = re.sub(r"^```.*?^```$", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.M | re.S)
    for code in re.finditer(r"`((?:build/)?unmask [^`]+)`", rest):
        line = rest.count("\n", 0, code.start()) + 1
        found.append((line, " ".join(code.group(1).split()), True))
    return sorted(found)


def sandbox(folder):
    """Links to the source tree, and a program of the name that pages give it."""
    for entry in os.listdir(ROOT):
        if entry not in (BUILD.name, "out", ".git"):
            os.symlink(ROOT / entry, folder / entry)
    (folder / "build").mkdir()
    for name in ("build/unmask", "unmask"):
        path = folder / name
        path.write_text(WRAPPER.format(program=BUILD / "unmask"))
        path.chmod(0o755)
    subprocess.run(["sh", "-e", ROOT / "tests/docs/setup.sh"], cwd=folder, check=True)


def inline_form(command):
    """What is run of a command in a sentence: of bare words their help."""
    words = command.replace("build/unmask", "unmask", 1).split()[1:]
    if all(re.fullmatch(r"[a-z-]+", w) and not w.startswith("-") for w in words) and (
            len(words) == 1 or words[0] not in ("figure", "list", "explain")):
        return command + " --help"
    return command


def run_page(page, rules):
    report = []
    with tempfile.TemporaryDirectory(prefix="docs-") as name:
        folder = pathlib.Path(name)
        sandbox(folder)
        environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
        state = ""
        for line, command, is_inline in found_in(page):
            if is_inline and FORM.search(command):
                report.append((page, line, command, "a form, not a command", None))
                continue
            run, reason = rules.apply(inline_form(command) if is_inline else command)
            if run is None:
                report.append((page, line, command, reason, None))
                continue
            if not is_inline and re.match(r"\w+=", run):  # a variable for the lines that follow
                state += run + "\n"
                continue
            timed = f"TIMEFORMAT='@%U'; time {{ {state + run}\n}}"
            done = subprocess.run(["timeout", "600", "bash", "-e", "-c", timed], cwd=folder, env=environment,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
            said, _, seconds = done.stderr.strip().rpartition("@")
            if done.returncode != 0:
                fail(f"{page}:{line}: status {done.returncode} of: {run}\n    {done.stderr.strip()[-300:]}")
            report.append((page, line, run, None, float(seconds) if said or seconds.replace(".", "").isdigit() else 0.0))
    return report


def check_commands():
    rules = Rules()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        rows = [row for report in pool.map(lambda page: run_page(page, rules), [p for p in PAGES if not is_made(p)])
                for row in report]
    ran = [row for row in rows if row[3] is None]
    for page, line, command, reason, _ in rows:
        if reason is not None and reason != "a form, not a command":
            print(f"not run: {page}:{line}: {command.splitlines()[0][:100]}: {reason}")
    for page, line, command, _, seconds in sorted(ran, key=lambda row: -row[4])[:5]:
        print(f"slowest: {seconds:5.1f} s of CPU time: {page}:{line}: {command.splitlines()[0][:100]}")
    for action, pattern, _, used in rules.rows:
        if used[0] == 0:
            fail(f"tests/docs/rules: nothing fits '{action} {pattern}'")
    if len(ran) < 40:
        fail(f"only {len(ran)} commands were found")
    print(f"docs: {len(ran)} commands run in {sum(row[4] for row in ran):.0f} s of CPU time, {len(rows) - len(ran)} not")


def is_made(page):
    return page in MADE or page.startswith(f"{COMMANDS}/")


def manual(*words):
    return subprocess.run([BUILD / "manual", *words], capture_output=True, text=True, check=True).stdout


def check_made():
    groups = {f"{COMMANDS}/{group}.md": manual("group", group) for group in manual("groups").split()}
    for page, made in {**{page: manual(what) for page, what in MADE.items()}, **groups}.items():
        if not (ROOT / page).is_file() or (ROOT / page).read_text() != made:
            fail(f"{page} is not what the program's tables say now; run make reference")
    for page in (page for page in PAGES if page.startswith(f"{COMMANDS}/")):
        if page not in groups:
            fail(f"{page} is of no command; run make reference")
        if (lines := (ROOT / page).read_text().count("\n")) > MOST_LINES:
            fail(f"{page}: {lines} lines, at most {MOST_LINES}")


def check_profiles():
    with tempfile.TemporaryDirectory(prefix="profiles-") as folder:
        done = subprocess.run([sys.executable, ROOT / "experiments/gpu/profiles.py", BUILD, folder],
                              capture_output=True, text=True)
        if done.returncode != 0:
            fail(f"profiles that are shipped are not those of their calibrations:\n{done.stdout}{done.stderr}")
        elif len(done.stdout.splitlines()) != len(list((ROOT / "kernels/profiles").glob("*/*.csv"))):
            fail(f"experiments/gpu/calibrations and kernels/profiles have not the same models:\n{done.stdout}")


# Weights of 2, 32, 64 MiB; those of 32 and more from memory in 5 us and 1 TB/s. With 16 MiB of L2 six times 2 MiB are warm:
# 2 MiB take 2.1 us, and a start of 5 us or what the warm row took in all. 512 rows take longer all the same.
WARM_TABLE = "# weights_in_turn: gemm 6\ngemm,1,1024,1024,1.5\ngemm,8,1024,1024,6\ngemm,512,1024,1024,30\n" + "".join(
    f"gemm,{m},{n},4096,{us}\n" for n, us in ((4096, 38.554), (8192, 72.109)) for m in (1, 2, 4, 8))
WARM_TIMES = {"gemm,1,1024,1024": 3.597, "gemm,8,1024,1024": 7.096}


def raised(gpu, path, text):
    """`text` as experiments/import/cold.py leaves it."""
    path.write_text(text)
    subprocess.run([sys.executable, ROOT / "experiments/import/cold.py", gpu, path], check=True, capture_output=True)
    return path.read_text()


def check_raised():
    """Shipped rows that were timed on a warm cache are as the import raises what was timed."""
    with tempfile.TemporaryDirectory(prefix="raised-") as folder:
        table, gpu = pathlib.Path(folder, "t.csv"), pathlib.Path(folder, "gpu.ini")
        gpu.write_text("[gpu]\nl2 = 16 MiB\npeak_bandwidth = 1e12\n")
        found = dict(re.findall(r"^(.*),warm=.*,(.*)$", raised(gpu, table, WARM_TABLE), re.MULTILINE))
        if {row: round(float(us), 3) for row, us in found.items()} != WARM_TIMES:
            fail(f"experiments/import/cold.py raises {found}, expected {WARM_TIMES}")
        for shipped in (ROOT / "kernels/profiles").glob("*.csv"):
            text = shipped.read_text()
            timed = re.sub(r",warm=([^,]*),.*$", r",\1", text, flags=re.MULTILINE)
            if timed == text and "\n# weights_in_turn: " not in text:
                continue
            if raised(ROOT / f"sim/model/gpus/{shipped.stem}.ini", table, timed) != text:
                fail(f"{shipped} is not what experiments/import/cold.py makes of what was timed")


def fields(value, prefix=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from fields(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from fields(inner)


def unmask(*words):
    return subprocess.run([BUILD / "unmask", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def check_json():
    page = (ROOT / "docs/reference/fields.md").read_text()
    known = set(re.findall(r"`([^`]+)`", page))
    tiny = ["--requests", "2", "--input-tokens", "32", "--output-tokens", "32"]
    for words in (["--requests", "20", "--slo-latency", "30s"], ["--requests", "20", "--bound"],
                  ["--requests", "4", "--system", "dinfer-published", "--gpu", "h800"],
                  ["--requests", "4", "--system", "focus", "--gpu", "a100-80g"],
                  ["--backend", "cpu", "--model", "llada-tiny", "--clock", "virtual", *tiny]):
        summary = json.loads(unmask("run", "--json", *words))
        for key, value in summary.items():
            if key not in known and not any(name.startswith(key + ".") for name in known):
                fail(f"docs/reference/fields.md does not have the field '{key}' of run --json")
            skips = ("bound", "engine", "identity", "constants", "rejected_by_reason", "steps_by_phase", "price_lookups",
                     "price_time_shares")
            for inner in fields(value) if key not in skips else ():
                if inner not in known and f"{key}.{inner}" not in known:
                    fail(f"docs/reference/fields.md does not have '{inner}' of '{key}'")


def check_database():
    page = (ROOT / "docs/reference/database.md").read_text()
    known = {table: set(re.findall(r"`(\w+)`", columns))
             for table, columns in re.findall(r"^## \w+ `(\w+)`(.*?)(?=^## |\Z)", page, re.M | re.S)}
    known["requests"] |= set(re.findall(r"^\| `(\w+)` \| schema", (ROOT / "docs/reference/fields.md").read_text(), re.M))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "r.db")
        unmask("run", "--requests", "2", "--db", path)
        db = sqlite3.connect(path)
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall():
            for column in db.execute(f"SELECT name FROM pragma_table_info('{table}')"):
                if column[0] not in known.get(table, ()):
                    fail(f"docs/reference/database.md does not have {table}.{column[0]}")


def index_of_measurements():
    """(commit, name) of every line of the index; the name may be a pattern."""
    page = f"{RESULTS}/README.md"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in (ROOT / page).read_text().splitlines()
            if re.match(r"\| 20\d\d-", line)]
    for row in rows:
        if len(row) != 5 or len(row[3]) > 60 or not re.fullmatch(r"`[0-9a-f]{8}:[^`]+`", row[4]):
            fail(f"{page}: not date, card, question, an answer of at most 60 characters and `COMMIT:NAME`: {row}")
    return [row[4].strip("`").split(":") for row in rows if ":" in row[-1]]


def is_measurement(path, index):
    """Whether a path below experiments/gpu/results is of one that the index knows."""
    name = path.removeprefix(f"{RESULTS}/").split("/")[0]
    return path.startswith(f"{RESULTS}/") and any(fnmatch.fnmatch(name, known) for _, known in index)


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)


def check_index():
    """Lines of the index lead into this history, and every path of a measurement that is gone to a line."""
    index = index_of_measurements()
    if git("rev-parse", "--is-shallow-repository").stdout.strip() == "false":
        for commit, name in index:
            held = git("ls-tree", "--name-only", commit, f"{RESULTS}/").stdout.split()
            if not fnmatch.filter(held, f"{RESULTS}/{name}"):
                fail(f"{RESULTS}/README.md: {commit} has no {name}")
            elif git("merge-base", "--is-ancestor", commit, "HEAD").returncode != 0:
                fail(f"{RESULTS}/README.md: {commit} is not in this history")
    scripts = set(re.findall(r"^\| `([\w./]+)` \|", (ROOT / RESULTS / "README.md").read_text(), re.M))
    paths = r"experiments/gpu/[A-Za-z0-9_./-]*\.(sh|py|c)\b|" + RESULTS + r"/[A-Za-z0-9_./-]*[A-Za-z0-9]"
    for line in sorted(set(git("grep", "-IohE", paths).stdout.splitlines())):
        if not (list(ROOT.glob(line + "*")) or is_measurement(line, index) or FORM.search(line)
                or line.removeprefix("experiments/gpu/") in scripts):
            fail(f"{line} is neither in the tree nor in {RESULTS}/README.md")


def anchors_of(page):
    """As GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.M)}


def blanked(text, pattern):
    """Without what fits a pattern, in as many lines."""
    return re.sub(pattern, lambda m: "\n" * m.group(0).count("\n"), text, flags=re.M | re.S)


def cells_of(text):
    """(line, cell) of the tables, as a reader sees them: of links their text, no marks of code or emphasis."""
    for n, line in enumerate(blanked(text, r"^```.*?^```$").split("\n"), 1):
        for cell in re.split(r"(?<!\\)\|", line.strip("|")) if line.startswith("|") else ():
            yield n, re.sub(r"[`*]", "", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", cell)).strip()


def sentences_of(text):
    """The sentences of paragraphs and lists; what is NAMED has no number of its own."""
    text = blanked(text, r"^```.*?^```$|^[|#].*?$")
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:- |\d+\. ))", re.sub(NAMED, "x", text)):
        line = re.sub(r"^\s*(- |\d+\. )", "", " ".join(paragraph.split()))
        yield from re.split(r"(?<=[.!?])\)?\**\s+(?=[\W_]*[A-Z0-9x])", line)


def numbers_of(sentence):
    return re.findall(r"(?<![\w.,/-])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)", sentence)


def check_pages():
    """Pages that people write are for people to read."""
    over = {}
    for page in PAGES:
        text = (ROOT / page).read_text()
        if is_made(page) or not (page.startswith("docs/") or page == "README.md"):
            continue
        if text.count("\n") > MOST_LINES:
            fail(f"{page}: {text.count(chr(10))} lines, at most {MOST_LINES}")
        for n, cell in cells_of(text):
            if len(cell) > MOST_CHARACTERS:
                fail(f"{page}:{n}: a cell of {len(cell)} characters, at most {MOST_CHARACTERS}: {cell}")
        if not page.endswith("-numbers.md"):  # paper_tables.py writes their sentences
            over[page] = [s for s in sentences_of(text) if len(numbers_of(s)) > MOST_NUMBERS]
    count = sum(map(len, over.values()))
    print(f"docs: {count} sentences have more than {MOST_NUMBERS} numbers:",
          ", ".join(f"{page} {len(s)}" for page, s in sorted(over.items(), key=lambda row: -len(row[1])) if s))
    if count > SENTENCES_OVER:
        fail(f"{count} sentences have more than {MOST_NUMBERS} numbers, at most {SENTENCES_OVER} may: write a table or less")


def check_links():
    index = index_of_measurements()
    tops = {p.name for p in ROOT.iterdir() if p.is_dir()} - {BUILD.name, "out", ".git"}
    for page in PAGES:
        text = (ROOT / page).read_text()
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
            if "://" not in link and not (ROOT / page).parent.joinpath(link).exists():
                fail(f"{page}: the link to {link} leads nowhere")
        for link, anchor in re.findall(r"\]\(([\w./-]*)#([^)]+)\)", text):
            other = os.path.normpath(os.path.join(os.path.dirname(page), link)) if link else page
            if (ROOT / other).is_file() and other.endswith(".md") and anchor not in anchors_of(other):
                fail(f"{page}: {other} has no #{anchor}")
        for code in re.findall(r"`([\w./*-]+/[\w./*-]+)`", text) if not is_made(page) else ():
            if code.split("/")[0] in tops and not (glob.glob(str(ROOT / code) + "*") or FORM.search(code) or
                                                   is_measurement(code, index)):
                fail(f"{page}: there is no {code}")


if __name__ == "__main__":
    check_made()
    check_profiles()
    check_raised()
    check_index()
    check_links()
    check_pages()
    check_json()
    check_database()
    check_commands()
    sys.exit(1 if failures else 0)
