#!/usr/bin/env python3
"""Random configurations, workloads, plug-ins and faults; whatever comes, the program keeps its word.

    python3 tests/torture/torture.py [--seed S] [--count N] [--seconds T] [--jobs J] [--replays] [--library LIBRARY]

Seed S, S + 1, ... each draw a run, one under overload or a sweep (draw.py), run it without a fault, again with one, and
then look at what is left:

    it ended with status 0, 1 or 2, or by the signal that was asked for; with a sentence where it
    is not 0, without a sanitizer's report, an internal error (the audit at the end of every run is
    one) or a hang; status 0 means what a run without a fault says, byte by byte
    the database opens, quick_check finds nothing, every run in it is whole or marked, what was in
    it before is as it was; `report` reads it, `replay` agrees with every run that holds its steps
    a sweep that is given again completes, with the same output

With --library (libunmask_cuda.so; UNMASK names the program, which need not be one with faults) all runs are live on a GPU, some next
to another one, and some get a signal from outside instead of a fault.

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


class Case:
    """A folder in which commands run one after the other."""

    def __init__(self, name):
        self.folder, self.story = tempfile.mkdtemp(prefix=f"torture-{name}-"), []
        self.path = os.path.join(self.folder, "r.db")

    def run(self, args, what, fault=None, sent=None):
        self.story.append((f"UNMASK_FAULT={fault} " if fault else "") + shlex.join(args) +
                          (" # SIG%s after %.2f s" % (sent[0].upper(), sent[1]) if sent else ""))
        run = Run(args, self.folder, fault, sent=sent)
        if run.complaints():
            raise Failure(f"{what}: {run.complaints()[0]}")
        return run

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


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


def has_identity(path, run):
    db = sqlite3.connect(path, timeout=30)
    found = db.execute("SELECT identity NOT NULL FROM runs WHERE run = ?", [run]).fetchone()[0]
    db.close()
    return bool(found)


def with_steps(path):
    db = sqlite3.connect(path, timeout=30)
    found = db.execute("SELECT run FROM runs WHERE summary NOT NULL AND (n_steps > 0 OR "
                       "json_extract(summary, '$.submissions') = 0)").fetchall()
    db.close()
    return [run for run, in found]


def look_at_database(case, before, recorded, lied):
    """After a run: `before` is what the database held, `recorded` how many runs it must have more
    (None: who knows). Who says that syncs were done when they were not may damage it."""
    if not os.path.exists(case.path):
        if before or recorded:
            raise Failure("the database is gone")
        return
    report = case.run(["report", "r.db", "--out", "r.html"], "report")
    if lied:
        return
    now = look(case.path)
    if report.status != 0 and now:
        raise Failure(f"report: {report.sentence()}")
    for run in before:
        if now.get(run) != before[run]:
            raise Failure(f"run {run}, which was there before, has changed")
    if recorded == 0:
        # a run whose files could not be read twice has no identity: nobody knows that it is on record
        now = {run: rows for run, rows in now.items() if run in before or has_identity(case.path, run)}
    if recorded is not None and len(now) != len(before) + recorded:
        raise Failure(f"{len(now)} runs are in the database, not {len(before)} + {recorded}")


def replay_all(case):
    for run in with_steps(case.path):
        replay = case.run(["replay", "--db", "r.db", "--allow-plugin", "--run", str(run)], "replay")
        if replay.status != 0 and not replay.slow:
            raise Failure(f"replay of run {run}: {replay.sentence()}")


def neighbour(lists, rng, case):
    """The same machine's other program: a live run of its own, meanwhile. Returns what waits for it."""
    other = Case("neighbour")
    args, _ = draw.run(lists, rng, other.folder, live=1)
    case.story.append("beside it: " + shlex.join(args))
    pool = concurrent.futures.ThreadPoolExecutor(1)
    running = pool.submit(other.run, args, "beside another run")

    def wait():
        try:
            running.result()
        finally:
            pool.shutdown()
            other.close()
    return wait


def torture_run(lists, rng, case, tally, replays=False):
    args, is_live = draw.run(lists, rng, case.folder)
    if replays or rng.random() < 0.6:
        args += ["--db", "r.db", "--levels", rng.choice(["steps", "events"] if replays else
                                                        ["requests", "steps", "steps", "events"])]
    if rng.random() < 0.1:
        args += ["--timeline", "t.json"]
    if rng.random() < 0.1:
        args += ["--decode-out", "o.db"]
    wait = neighbour(lists, rng, case) if is_live and rng.random() < 0.25 else None
    try:
        whole = case.run(args, "without a fault")
    finally:
        if wait:
            wait()
            tally["beside another"] += 1
    tally[f"status {whole.status}" if not whole.slow else "slow"] += 1
    before = {}
    if os.path.exists(case.path):
        look_at_database(case, {}, 1 if whole.status == 0 else None, False)
        before = look(case.path)
        if whole.status == 0 and (replays or rng.random() < 0.7):
            replay_all(case)
            tally["replayed"] += 1
    if replays:
        return
    fault = draw.fault(rng, whole.chances)
    if whole.slow or fault is None or (whole.status != 0 and rng.random() < 0.8):
        return
    if before and rng.random() < 0.3:
        os.unlink(case.path)
        before = {}
    run = case.run(args, "with a fault", fault)
    tally["fired" if run.fired else "did not fire"] += 1
    if run.status == 0 and whole.status == 0 and not is_live and not program.same(run.out, whole.out):
        raise Failure(f"status 0, and another output than without a fault ({run.fired})")
    lied = run.how == "lie" and run.fired
    if "--db" in args:
        # what is on record already is not recorded again, but for what a device measures
        added = 0 if before and not is_live else 1
        look_at_database(case, before, added if run.status == 0 else None, lied)
    if run.fired and whole.status == 0 and rng.random() < 0.3 and not lied:
        again = case.run(args, "once more")
        if again.status != 0:
            raise Failure(f"once more, without a fault: {again.sentence()}")
        if "--db" in args:
            look_at_database(case, {}, None, False)
            replay_all(case)


def torture_device(lists, rng, case, tally):
    """Live on a GPU: whole, next to another run, or with a signal from outside; then its replay."""
    args, _ = draw.run(lists, rng, case.folder, live=1)
    sent = (rng.choice(["int", "term", "hup", "kill", "stop"]), rng.uniform(0.2, 6)) if rng.random() < 0.3 else None
    args += ["--db", "r.db", "--levels", rng.choice(["requests", "steps", "events"])] if rng.random() < 0.6 else []
    wait = neighbour(lists, rng, case) if rng.random() < 0.25 else None
    try:
        run = case.run(args, "on a GPU", sent=sent)
    finally:
        if wait:
            wait()
            tally["beside another"] += 1
    tally["slow" if run.slow else f"SIG{sent[0].upper()}" if sent else f"status {run.status}"] += 1
    if os.path.exists(case.path):
        look_at_database(case, {}, 1 if run.status == 0 else None, False)
        replay_all(case)
        tally["replayed"] += 1


def torture_overload(lists, rng, case, tally):
    """Nothing starves, whatever waits."""
    args = draw.overloaded(lists, rng, case.folder)
    if rng.random() < 0.3:
        args += ["--db", "r.db", "--levels", "steps"]
    run = case.run(args, "overloaded")
    tally[f"overloaded, status {run.status}" if not run.slow else "slow"] += 1
    if "starves" in run.sentence() or "promise" in run.sentence():
        raise Failure(f"overloaded: {run.sentence()}")
    if run.status == 0 and "--db" in args:
        replay_all(case)


def torture_sweep(lists, rng, case, tally):
    args = draw.sweep(lists, rng, case.folder)
    whole = case.run([*args, "--db", "whole.db"], "without a fault")
    tally["sweeps"] += 1
    if whole.status != 0 or whole.slow:
        return
    points = len(look(os.path.join(case.folder, "whole.db")))
    args += ["--db", "r.db"]
    run = case.run(args, "with a fault", draw.fault(rng, whole.chances))
    lied = run.how == "lie" and run.fired
    look_at_database(case, {}, None, lied)
    if lied:
        return
    again = case.run(args, "resumed")
    if again.status != 0:
        raise Failure(f"resumed: {again.sentence()}")
    if json.loads(again.out) != json.loads(whole.out):
        raise Failure("resumed, it says something else than whole")
    # Points without an identity, whose files could not be read twice, are run again.
    exactly = not (run.fault or "").startswith("file")
    look_at_database(case, {}, points if exactly else None, False)


def torture(lists, seed, tally, replays):
    """One seed: None, or what went wrong."""
    case, rng = Case(seed), draw.seeded(seed)
    try:
        if lists.library:
            torture_device(lists, rng, case, tally)
        elif replays:
            torture_run(lists, rng, case, tally, True)
        else:
            kind = rng.random()
            (torture_sweep if kind < 0.15 else torture_overload if kind < 0.25 else torture_run)(
                lists, rng, case, tally)
    except Failure as failure:
        return "\n        ".join([str(failure), *case.story])
    finally:
        case.close()
    return None


def kept():
    """Commands with their faults that once went wrong: FAULT COMMAND..., - for no fault."""
    path = os.path.join(os.path.dirname(__file__), "kept")
    for line in open(path):
        words = shlex.split(line, comments=True)
        if words:
            yield line.strip(), None if words[0] == "-" else words[0], words[1:]


def repeat(fault, args):
    case = Case("kept")
    try:
        case.run([word.replace("PLUGINS", program.PLUGINS) for word in args], "kept", fault)
        look_at_database(case, {}, None, False)
    except Failure as failure:
        return str(failure)
    finally:
        case.close()
    return None


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--replays", action="store_true", help="record and replay alone, no faults")
    parser.add_argument("--library", type=os.path.abspath, help="all runs are live, on the GPU that this drives")
    asked = parser.parse_args()
    lists, tally, lock = draw.Lists(asked.library), collections.Counter(), threading.Lock()
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
            said(f"make torture SEED={seed} N=1", torture(lists, seed, tally, asked.replays))

    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        if asked.count != 1 and not asked.replays and not asked.library:
            for case in [pool.submit(lambda c: said(c[0], repeat(*c[1:])), case) for case in kept()]:
                case.result()
        for worker in [pool.submit(work) for _ in range(asked.jobs)]:
            worker.result()
    print(f"torture: {state['done']} cases from seed {asked.seed} on, {state['failed']} failed:",
          ", ".join(f"{count} {what}" for what, count in sorted(tally.items())))
    return int(state["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
