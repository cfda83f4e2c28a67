#!/usr/bin/env python3
"""Kills programs while they record, and looks at what is left: tests/kills.py PROGRAM [KILLS]

Every other program is a live run on the CPU, killed 1.2 to 3.1 s after its start, and a sweep,
killed 0.02 to 0.9 s after its start, all on one database, at times that a fixed rule gives. After
each kill the database must be sound for whoever reads it next, no run may be lost, and each run is
whole or says that it is incomplete. At the end the sweep is resumed, its output compared with that
of one without a database, every live run is played as far as it goes, and a report is written."""
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

LIVE = ("run --backend cpu --clock virtual --system dllm-serve --model llada-tiny --gpu cpu"
        " --requests 200 --rate 20 --input-tokens 32 --output-tokens 32 --levels events --db").split()
SWEEP = "[sweep]\nsystems = dllm-serve, vanilla\nrequests = 300\nrates = 0.5, 1, 2\nseeds = 1, 2, 3\n"


def is_hot(journal):
    """Whether it undoes anything: one that was not written to the disk so far begins with zeros."""
    try:
        with open(journal, "rb") as file:
            return file.read(1) not in (b"", b"\0")
    except FileNotFoundError:
        return False


def runs_of(db):
    connection = sqlite3.connect(f"file:{db}?mode=ro", uri=True)
    rows = connection.execute("SELECT run, backend, summary, incomplete, n_requests, sha256,"
                              " (SELECT count(*) FROM requests r"
                              "  WHERE r.run = runs.run AND number >= 0), n_steps"
                              " FROM runs ORDER BY run").fetchall()
    connection.close()
    return rows


def main():
    program, kills = os.path.realpath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 40
    folder = tempfile.mkdtemp(prefix="unmask-kills-")
    db, ini, page = f"{folder}/r.db", f"{folder}/sweep.ini", f"{folder}/r.html"
    with open(ini, "w") as out:
        out.write(SWEEP)
    seen, journals, kept = {}, 0, 0
    for kill in range(kills):
        live = kill % 2 == 0
        delay = 1.2 + 0.1 * (kill * 7 % 20) if live else 0.02 + 0.0463 * (kill * 5 % 20)
        words = [program, *LIVE, db] if live else [program, "sweep", ini, "--db", db, "-j", "2"]
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        child.kill()
        child.wait()
        if not os.path.exists(db):
            continue
        journals += is_hot(db + "-journal")
        subprocess.run([program, "report", db, "--out", page], check=True,
                       capture_output=True) if os.path.getsize(db) else None
        assert not is_hot(db + "-journal"), "a reader leaves a hot journal"
        rows = runs_of(db)
        for run, backend, summary, incomplete, n_requests, sha256, n_rows, _ in rows:
            assert sha256, f"run {run} has no checksum"
            assert json.loads(summary)["incomplete"] == incomplete
            assert n_requests == n_rows, f"run {run} says {n_requests} requests and has {n_rows}"
            assert (backend == "cpu") == (incomplete is not None), f"run {run}: {incomplete}"
        assert set(seen) <= {row[0] for row in rows}, "a run is gone"
        kept += live and len(rows) > len(seen)
        seen = {row[0]: row[4] for row in rows}
    fresh = subprocess.run([program, "sweep", ini], check=True, capture_output=True, text=True)
    resumed = subprocess.run([program, "sweep", ini, "--db", db], check=True, capture_output=True,
                             text=True)
    assert resumed.stdout == fresh.stdout
    subprocess.run([program, "report", db, "--out", page], check=True, capture_output=True)
    played = 0
    for run, _, _, incomplete, _, _, _, n_steps in runs_of(db):
        if incomplete and n_steps:
            replay = subprocess.run([program, "replay", "--db", db, "--run", str(run), "--json"],
                                    check=True, capture_output=True, text=True)
            out = json.loads(replay.stdout)
            assert out["incomplete"] == incomplete and out["submissions"] == n_steps
            played += 1
    left = set(os.listdir(folder)) - {"r.db", "r.html", "sweep.ini", "r.db-journal"}
    assert not left, left
    print(f"{kills} kills, {journals} of them in a commit; {kept} of {(kills + 1) // 2} live runs"
          f" kept, {played} played as far as they go, {sum(seen.values())} requests; {len(seen)} runs sound")


main()
