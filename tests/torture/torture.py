#!/usr/bin/env python3
"""Random configurations, workloads, plug-ins and faults; whatever comes, the program keeps its word.

    python3 tests/torture/torture.py [--seed S] [--count N] [--seconds T] [--jobs J]

Seed S, S + 1, ... each draw a run or a sweep (draw.py), run it without a fault, again with one, and
then look at what is left:

    it ended with status 0, 1 or 2, or by the signal that was asked for; with a sentence where it
    is not 0, without a sanitizer's report, an internal error (the audit at the end of every run is
    one) or a hang; status 0 means what a run without a fault says, byte by byte
    the database opens, quick_check finds nothing, every run in it is whole or marked, what was in
    it before is as it was; `report` reads it, `replay` agrees with every run that holds its steps
    a sweep that is given again completes, with the same output

The first seeds are those of the file `kept`, one command a line, which once went wrong. A failure
prints the line that repeats it: make torture SEED=S N=1.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import shlex
import shutil
import sqlite3
import sys
import tempfile
import threading
import time

import draw
import program
from program import Run

TABLES = {"requests": "n_requests", "steps": "n_steps", "events": "n_events"}


class Failure(Exception):
    pass


def check(run, what):
    if run.complaints():
        raise Failure(f"{what}: {run.complaints()[0]}\n    {fault_of(run)}{shlex.join(run.args)}")


def fault_of(run):
    return f"UNMASK_FAULT={run.fault} " if run.fault else ""


def rows(db, table, number):
    order = "1, 2, 3"
    return hashlib.sha256(repr(db.execute(
        f"SELECT * FROM {table} WHERE run = ? ORDER BY {order}", [number]).fetchall()).encode()).digest()


def look(path):
    """What a database holds: by run, a digest of all of its rows. Fails where it is damaged or
    holds a part of a run."""
    db = sqlite3.connect(path, timeout=30)
    try:
        verdict = db.execute("PRAGMA quick_check").fetchone()[0]
        if verdict != "ok":
            raise Failure(f"quick_check of the database: {verdict}")
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone():
            return {}
        columns = [row[1] for row in db.execute("PRAGMA table_info(runs)")]
        found = {}
        for row in db.execute("SELECT * FROM runs").fetchall():
            run = dict(zip(columns, row))
            counts = {table: db.execute(f"SELECT count(*) FROM {table} WHERE run = ?",
                                        [run["run"]]).fetchone()[0] for table in TABLES}
            marked = run["summary"] is None or "incomplete" in run["summary"]
            for table, column in TABLES.items():
                if run[column] != counts[table] and not marked:
                    raise Failure(f"run {run['run']} says {run[column]} {table} and has "
                                  f"{counts[table]}")
            found[run["run"]] = (repr(row), *(rows(db, table, run["run"]) for table in TABLES))
        for table in TABLES:
            lost = db.execute(f"SELECT count(*) FROM {table} WHERE run NOT IN "
                              "(SELECT run FROM runs)").fetchone()[0]
            if lost:
                raise Failure(f"{lost} {table} of no run")
        return found
    except sqlite3.DatabaseError as error:
        raise Failure(f"the database: {error}") from error
    finally:
        db.close()


def with_steps(path):
    db = sqlite3.connect(path, timeout=30)
    found = db.execute("SELECT run, summary FROM runs WHERE n_steps > 0").fetchall()
    db.close()
    return [run for run, summary in found if summary and "incomplete" not in summary]


def look_at_database(folder, before, recorded, lied):
    """After a run: `before` is what the database held, `recorded` how many runs it must have more
    (None: who knows). Who says that syncs were done when they were not may damage it."""
    path = os.path.join(folder, "r.db")
    if not os.path.exists(path):
        if before or recorded:
            raise Failure("the database is gone")
        return
    report = Run(["report", "r.db", "--out", "r.html"], folder)
    check(report, "report")
    if lied:
        return
    now = look(path)
    if report.status != 0 and now:
        raise Failure(f"report: {report.sentence()}")
    for run in before:
        if now.get(run) != before[run]:
            raise Failure(f"run {run}, which was there before, has changed")
    if recorded is not None and len(now) != len(before) + recorded:
        raise Failure(f"{len(now)} runs are in the database, not {len(before)} + {recorded}")


def replay_all(folder, runs):
    for run in runs:
        args = ["replay", "--db", "r.db", "--run", str(run)]
        replay = Run(args, folder)
        check(replay, "replay")
        if replay.status != 0 and not replay.slow:
            raise Failure(f"replay of run {run}: {replay.sentence()}")


def torture_run(lists, rng, folder, tally):
    args, is_live = draw.run(lists, rng, folder)
    bare, recording = list(args), []
    if rng.random() < 0.6:
        recording = ["--db", "r.db", "--levels", rng.choice(["requests", "steps", "steps", "events"])]
    if rng.random() < 0.1:
        recording += ["--timeline", "t.json"]
    if rng.random() < 0.1:
        recording += ["--decode-out", "o.db"]
    args += recording
    whole = Run(args, folder)
    check(whole, "without a fault")
    tally[f"status {whole.status}" if not whole.slow else "slow"] += 1
    path, before = os.path.join(folder, "r.db"), {}
    if os.path.exists(path):
        look_at_database(folder, {}, 1 if whole.status == 0 else None, False)
        before = look(path)
        if whole.status == 0 and rng.random() < 0.7:
            replay_all(folder, with_steps(path))
            tally["replayed"] += 1
    if whole.slow or (whole.status != 0 and rng.random() < 0.8):
        return
    if before and rng.random() < 0.3:
        os.unlink(path)
        before = {}
    fault = draw.fault(rng, whole.chances)
    if fault is None:
        return
    run = Run(args, folder, fault)
    check(run, "with a fault")
    tally["fired" if run.fired else "did not fire"] += 1
    if run.status == 0 and whole.status == 0 and not is_live and run.out != whole.out:
        raise Failure(f"status 0, and another output than without a fault ({run.fired})\n"
                      f"    {fault_of(run)}{shlex.join(run.args)}")
    if "--db" in args:
        done = 1 if run.status == 0 else None
        look_at_database(folder, before, done, run.how == "lie" and run.fired)
    if run.fired and whole.status == 0 and rng.random() < 0.3 and run.how != "lie":
        again = Run(args, folder)
        check(again, "once more")
        if again.status != 0:
            raise Failure(f"without a fault again: {again.sentence()}\n    {shlex.join(bare)}")
        if "--db" in args:
            look_at_database(folder, {}, None, False)
            replay_all(folder, with_steps(path))


def torture_sweep(lists, rng, folder, tally):
    args = draw.sweep(lists, rng, folder)
    whole = Run([*args, "--db", "whole.db"], folder)
    check(whole, "without a fault")
    tally["sweeps"] += 1
    if whole.status != 0 or whole.slow:
        return
    args += ["--db", "r.db"]
    chances = dict(whole.chances)
    fault = draw.fault(rng, chances)
    run = Run(args, folder, fault)
    check(run, "with a fault")
    lied = run.how == "lie" and run.fired
    look_at_database(folder, {}, None, lied)
    if lied:
        return
    again = Run(args, folder)
    check(again, "resumed")
    if again.status != 0:
        raise Failure(f"resumed: {again.sentence()}\n    {fault_of(run)}{shlex.join(args)}")
    if json.loads(again.out) != json.loads(whole.out):
        raise Failure(f"resumed, it says something else\n    {fault_of(run)}{shlex.join(args)}")
    points = len(look(os.path.join(folder, "whole.db")))
    look_at_database(folder, {}, points, False)


def torture(lists, seed, tally):
    """One seed: None, or what went wrong."""
    folder = tempfile.mkdtemp(prefix=f"torture-{seed}-")
    rng = draw.seeded(seed)
    try:
        (torture_sweep if rng.random() < 0.15 else torture_run)(lists, rng, folder, tally)
    except Failure as failure:
        return str(failure)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None


def kept():
    """Commands with their faults that once went wrong: FAULT COMMAND..., - for no fault."""
    path = os.path.join(os.path.dirname(__file__), "kept")
    for line in open(path):
        words = shlex.split(line, comments=True)
        if words:
            yield line.strip(), None if words[0] == "-" else words[0], words[1:]


def repeat(fault, args):
    folder = tempfile.mkdtemp(prefix="torture-kept-")
    try:
        check(Run([word.replace("PLUGINS", program.PLUGINS) for word in args], folder, fault), "kept")
        look_at_database(folder, {}, None, False)
    except Failure as failure:
        return str(failure)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    lists, tally, lock = draw.Lists(), collections.Counter(), threading.Lock()
    end = time.monotonic() + asked.seconds
    state = {"next": asked.seed, "failed": 0, "done": 0}

    def said(line, trouble):
        with lock:
            state["done"] += 1
            if trouble:
                state["failed"] += 1
                print(f"FAILED {line}\n    {trouble}", flush=True)

    def work():
        while time.monotonic() < end or asked.count:
            with lock:
                seed = state["next"]
                state["next"] += 1
            if asked.count and seed >= asked.seed + asked.count:
                return
            said(f"make torture SEED={seed} N=1", torture(lists, seed, tally))

    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        if asked.count != 1:
            for case in [pool.submit(lambda c: said(c[0], repeat(*c[1:])), case) for case in kept()]:
                case.result()
        for worker in [pool.submit(work) for _ in range(asked.jobs)]:
            worker.result()
    print(f"torture: {state['done']} cases from seed {asked.seed} on, {state['failed']} failed:",
          ", ".join(f"{count} {what}" for what, count in sorted(tally.items())))
    return int(state["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
