#!/usr/bin/env python3
"""The Python part of tests/freeze.sh.

    freeze.py texts DIR            rewrite what a store holds as text that two builds can share:
                                   JSON without identities, databases and decode traces as rows
    freeze.py compare DIR DIR      list the files whose bytes differ; status 1 if any do
    freeze.py numbers DIR DIR      the same for keys and numbers: words and the order of keys may differ
    freeze.py self-test            change a store on purpose and see what each comparison notices
"""
import concurrent.futures
import contextlib
import io
import json
import pathlib
import re
import sqlite3
import sys
import tempfile

MOST_PLACES = 5  # that are named of one file
DATA_FOLDER = re.compile(r"/[^\s'\"]*/(?=(?:experiments|kernels|sim|traces)/)")
NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def without_identity(value):
    """A copy without `identity`, which says which build made the value."""
    if isinstance(value, dict):
        return {k: without_identity(v) for k, v in value.items() if k != "identity"}
    if isinstance(value, list):
        return [without_identity(v) for v in value]
    return value


def output_text(text):
    """A command's output and status line: JSON is indented; lines of identity and the folder of the data go."""
    text = DATA_FOLDER.sub("", text)
    body, status = text.rstrip("\n").rpartition("\n")[::2]
    try:
        body = json.dumps(without_identity(json.loads(body)), indent=1)
    except ValueError:
        body = "\n".join(line for line in body.split("\n") if not line.startswith("identity"))
    return body + "\n" + status + "\n"


def decode_trace_text(db):
    """A decode trace: what stands about it, and what each pass ran and committed."""
    lines = ["# unmask decode trace"]
    lines += [f"# {k}: {v}" for k, v in db.execute("SELECT key, value FROM about ORDER BY rowid")]
    answers = db.execute("SELECT max(answer_tokens) FROM request").fetchone()[0]
    lines += ["request,committed,processed,kept,reach,passes" + (",answer" if answers else "")]
    rows = []
    for row in db.execute("SELECT request, committed, processed, kept, reach, passes FROM pass ORDER BY request, rowid"):
        if rows and rows[-1][:5] == row[:5]:
            row = (*row[:5], rows.pop()[5] + row[5])
        rows.append(row)
    if answers:
        of = dict(db.execute("SELECT id, coalesce(answer_tokens, "
                             "(SELECT sum(passes * committed) FROM pass WHERE request = id)) FROM request"))
        rows = [(*row, of[row[0]]) for row in rows]
    return "\n".join(lines + [",".join(map(str, row)) for row in rows]) + "\n"


def database_text(db):
    """Recorded runs: every table's rows as JSON, one a line, without the columns of identity."""
    db.row_factory = sqlite3.Row
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    lines = []
    for table in tables:
        for row in sorted(db.execute(f"SELECT * FROM {table}"), key=lambda row: tuple(row)[:2]):
            row = {k: row[k] for k in row.keys() if k != "identity" and not k.endswith("sha256")}
            row = {k: v.hex() if isinstance(v, bytes) else v for k, v in row.items()}
            if row.get("summary"):
                row["summary"] = without_identity(json.loads(row["summary"]))
            lines.append(json.dumps({table: row}))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def make_text(path):
    data = path.read_bytes()
    if data.startswith(b"SQLite"):
        db = sqlite3.connect(path)
        about = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'about'").fetchone()
        text = decode_trace_text(db) if about else database_text(db)
        db.close()
    elif path.suffix == ".out":
        text = output_text(data.decode())
        if path.name.startswith(("live-", "generate-")):  # their times are the machine's
            text = text.rstrip("\n").rpartition("\n")[2] + "\n"
    else:
        return
    path.write_text(text)


def texts(folder):
    files = [path for path in pathlib.Path(folder).iterdir() if path.is_file()]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        list(pool.map(make_text, files, chunksize=64))


def parsed(data):
    """JSON, with or without a status line after it, or None; and that line."""
    text = data.decode("utf-8", "replace")
    body, status = text.rstrip("\n").rpartition("\n")[::2]
    for body, status in ((text, ""), (body, status)):
        try:
            return json.loads(body), status
        except ValueError:
            pass
    return None, text


def number_differences(a, b, place=""):
    """Where keys, lengths or numbers differ; strings are words and may."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            if key in a and key in b:
                yield from number_differences(a[key], b[key], f"{place}.{key}")
            else:
                yield f"{place}.{key} only in the {'first' if key in a else 'second'}"
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            yield f"{place}: {len(a)} entries, {len(b)}"
        for i, pair in enumerate(zip(a, b)):
            yield from number_differences(*pair, f"{place}[{i}]")
    elif isinstance(a, str) and isinstance(b, str):
        return
    elif type(a) is not type(b) or a != b:
        yield f"{place}: {a}, {b}"


def file_differences(a, b, numbers):
    if a == b:
        return []
    if not numbers or b"\0" in a + b:
        return ["bytes"]
    (one, text_one), (two, text_two) = parsed(a), parsed(b)
    places = list(number_differences(one, two))
    if NUMBER.findall(text_one) != NUMBER.findall(text_two):
        lines = list(zip(text_one.split("\n"), text_two.split("\n")))
        places += [f"{x.strip()}, {y.strip()}" for x, y in lines if NUMBER.findall(x) != NUMBER.findall(y)] or ["lines"]
    return places


def compare(a, b, numbers):
    a, b = pathlib.Path(a), pathlib.Path(b)
    files = [{p.relative_to(d) for p in d.rglob("*") if p.is_file()} for d in (a, b)]
    differ = 0
    for name in sorted(files[0] | files[1]):
        if name not in files[0] or name not in files[1]:
            places = ["only in " + str(a if name in files[0] else b)]
        else:
            places = file_differences((a / name).read_bytes(), (b / name).read_bytes(), numbers)
        if places:
            differ += 1
            more = [f"and {len(places) - MOST_PLACES} more"] if len(places) > MOST_PLACES else []
            print(f"{name}: " + "; ".join(places[:MOST_PLACES] + more))
    both = len(files[0] & files[1])
    print(f"{differ} of {len(files[0] | files[1])} files differ" if differ else f"nothing differs in {both} files")
    return 1 if differ or not both else 0


def self_test():
    """Each change with what the comparison by bytes and that by numbers must say of it."""
    def database(path, seed, digest):
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE runs(run INTEGER, seed INTEGER, summary TEXT, identity TEXT, sha256 TEXT)")
        db.execute("INSERT INTO runs VALUES(1, ?, '{\"identity\": \"x\", \"latency_s\": 2.5}', ?, ?)", (seed, digest, digest))
        db.commit()
        db.close()

    run = '{"latency_s": {"mean": 1.5, "p99": 2}, "warnings": [{"name": "host-assumed", "text": "a guess"}]}'
    table = "rate 0.5 p99\n  12 requests, p99 3.25 s\n"
    cases = [  # what, file, text before, text after, by bytes, by numbers
        ("nothing", "run.out", run + "\nstatus 0\n", run + "\nstatus 0\n", 0, 0),
        ("the identity alone", "run.out", run[:-1] + ', "identity": {"build": 1}}\nstatus 0\n',
         run[:-1] + ', "identity": {"build": 2}}\nstatus 0\n', 0, 0),
        ("a number", "run.out", run + "\nstatus 0\n", run.replace("1.5", "1.5000001") + "\nstatus 0\n", 1, 1),
        ("a word", "run.out", run + "\nstatus 0\n", run.replace("a guess", "an assumption") + "\nstatus 0\n", 1, 0),
        ("the order of keys", "run.out", '{"a": 1, "b": 2}\nstatus 0\n', '{"b": 2, "a": 1}\nstatus 0\n', 1, 0),
        ("a key", "run.out", run + "\nstatus 0\n", run.replace("p99", "p98") + "\nstatus 0\n", 1, 1),
        ("a warning less", "run.out", run + "\nstatus 0\n", re.sub(r"\[.*\]", "[]", run) + "\nstatus 0\n", 1, 1),
        ("the status", "run.out", run + "\nstatus 0\n", run + "\nstatus 1\n", 1, 1),
        ("where the data lie", "run.out", "unmask: /a/kernels/x.csv: bad\nstatus 1\n", "unmask: /b/7/kernels/x.csv: bad\nstatus 1\n", 0, 0),
        ("true", "run.out", '{"fits": true}\nstatus 0\n', '{"fits": false}\nstatus 0\n', 1, 1),
        ("a word of a table", "table.out", table + "status 0\n", table.replace("rate", "load") + "status 0\n", 1, 0),
        ("a number of a table", "table.out", table + "status 0\n", table.replace("3.25", "3.26") + "status 0\n", 1, 1),
        ("a row's number", "runs.db", (1, "d"), (2, "d"), 1, 1),
        ("a row's identity", "runs.db", (1, "d"), (1, "e"), 0, 0),
    ]
    failed = 0
    for what, name, before, after, *wanted in cases:
        with tempfile.TemporaryDirectory() as top:
            for folder, content in (("a", before), ("b", after)):
                path = pathlib.Path(top, folder, name)
                path.parent.mkdir()
                database(path, *content) if isinstance(content, tuple) else path.write_text(content)
                texts(path.parent)
            with contextlib.redirect_stdout(io.StringIO()):
                seen = [compare(f"{top}/a", f"{top}/b", numbers) for numbers in (False, True)]
        if seen != wanted:
            failed += 1
            print(f"{what}: by bytes and by numbers {seen}, not {wanted}")
    print(f"{len(cases) - failed} of {len(cases)} changes are noticed where they should be")
    return 1 if failed else 0


def main():
    command, folders = (sys.argv + [""])[1], sys.argv[2:]
    if command == "texts" and len(folders) == 1:
        return texts(*folders)
    if command in ("compare", "numbers") and len(folders) == 2:
        return compare(*folders, command == "numbers")
    if command == "self-test" and not folders:
        return self_test()
    sys.stderr.write(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
