#!/usr/bin/env python3
"""Several programs on one database, by force: tests/crowd.py PROGRAM [ROUNDS] [KIND...]

Each round starts programs at once on a new database, by one name or several, and at random moments (from a fixed
seed) takes locks from outside, kills, stops and continues them, or lets the disk fill. All must end within a limit, every
point be on record once, and what sweeps print be what one alone prints. ROUNDS (default: 200) are of each kind."""
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

GRID = "[sweep]\nsystems = dllm-serve\nrequests = 20\nrates = 0.5, 1\nseeds = 1, 2, 3\n"
POINTS, LIMIT_S = 6, 120
folder, program, alone = None, None, None


class Wrong(Exception):
    pass


def start(*words, user=None):
    return subprocess.Popen([program, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            **({"user": user, "group": 0, "extra_groups": [], "umask": 0o022} if user else {}))


def sweep(db, **more):
    return start("sweep", "grid.ini", "--db", db, "-j", "1", **more)


def end(children, statuses=(0,), prints=True):
    until = time.time() + LIMIT_S
    for child in children:
        try:
            out, err = child.communicate(timeout=max(until - time.time(), .1))
        except subprocess.TimeoutExpired:
            raise Wrong(f"{child.args[1:]} has not ended within {LIMIT_S} s") from None
        if child.returncode not in statuses:
            raise Wrong(f"{child.args[1:]} has status {child.returncode}: {err}")
        if prints and child.args[1] == "sweep" and child.returncode == 0 and out != alone:
            raise Wrong(f"{child.args[1:]} does not print what it prints alone")


def count(db, sql):
    file = sqlite3.connect(f"file:{folder}/{db}?mode=ro", uri=True, timeout=60)
    try:
        return file.execute(sql).fetchone()
    finally:
        file.close()


def check(db, at_least=POINTS):
    n, distinct = count(db, "SELECT count(*), count(DISTINCT identity) FROM runs")
    if n != distinct or n < at_least:
        raise Wrong(f"{n} runs in {db}, {distinct} of them different, not {at_least}")
    if count(db, "PRAGMA integrity_check")[0] != "ok":
        raise Wrong(f"{db} is damaged")


def begun(db="d.db"):
    """A database with its tables, so that it has other names from the start."""
    end([start("run", "--requests", "2", "--db", db)])
    file = sqlite3.connect(f"{folder}/{db}")
    with file:
        for table in ("requests", "runs"):
            file.execute(f"DELETE FROM {table}")
    file.close()


def lock(db, draw):
    """From outside, of one of three kinds, for a while."""
    time.sleep(draw.uniform(0, .3))
    file = sqlite3.connect(f"{folder}/{db}", timeout=30, isolation_level=None)
    kind = draw.choice(["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "BEGIN"])
    try:
        file.execute(kind)
        file.execute("SELECT count(*) FROM sqlite_master").fetchone()
        time.sleep(draw.uniform(.05, .4))
    except sqlite3.OperationalError:
        pass
    file.close()


def sweeps(n):
    def round_of(draw):
        end([sweep("d.db") for _ in range(n)])
        check("d.db")
    return round_of


def names(draw):
    begun()
    os.link(f"{folder}/d.db", f"{folder}/hard.db")
    os.symlink("d.db", f"{folder}/soft.db")
    end([sweep(draw.choice(["d.db", "hard.db", "soft.db", "./d.db"])) for _ in range(4)])
    check("d.db")


def locked(draw):
    children = [sweep("d.db") for _ in range(3)]
    for _ in range(3):
        lock("d.db", draw)
    end(children)
    check("d.db")


def halves():
    end([start("sweep", "grid.ini", "--db", f"{part}.db", "--shard", f"{i}/2") for i, part in ((1, "x"), (2, "y"))],
        prints=False)


def merges(draw):
    halves()
    end([start("merge", "x.db", "y.db"), start("merge", "y.db", "x.db")] +
        [start("merge", *draw.sample(["x.db", "y.db"], 2))])
    check("x.db")
    check("y.db")


def merge_beside(draw):
    halves()
    children = [start("merge", "z.db", "x.db", "y.db"), sweep("z.db"), start("merge", "z.db", "y.db", "x.db")]
    if draw.random() < .5:
        children.append(start("merge", "x.db", "z.db") if os.path.exists(f"{folder}/z.db") else sweep("z.db"))
    end(children)
    check("z.db")
    check("x.db", POINTS // 2)


def killed(draw):
    children = [sweep("d.db") for _ in range(3)]
    time.sleep(draw.uniform(0, .4))
    children[0].send_signal(draw.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
    children[1].send_signal(signal.SIGSTOP)
    time.sleep(draw.uniform(0, .3))
    children[1].send_signal(signal.SIGCONT)
    end(children[:1], (0, 1, -9, -15, -2, 130, 143), prints=False)
    end(children[1:])
    check("d.db")


def full(draw):
    """On a file system of its own that has no room for all, later for all."""
    if os.geteuid() != 0:
        return "it takes root to mount a small tmpfs"
    os.mkdir(f"{folder}/small")
    size = draw.choice([72, 84, 96, 112])
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", f"{folder}/small"],
                      capture_output=True).returncode != 0:
        return "no tmpfs can be mounted here"
    try:
        end([sweep("small/d.db") for _ in range(2)], (0, 1), prints=False)
        subprocess.run(["mount", "-o", "remount,size=64m", f"{folder}/small"], check=True)
        end([sweep("small/d.db") for _ in range(2)])
        check("small/d.db")
    finally:
        subprocess.run(["umount", f"{folder}/small"], check=True)


def group(draw):
    """Two users of one group."""
    if os.geteuid() != 0:
        return "it takes root to be two users"
    os.chmod(folder, 0o777)
    begun()
    os.chown(f"{folder}/d.db", 1001, 0)
    os.chmod(f"{folder}/d.db", 0o664)
    first, second = sweep("d.db", user=1001), sweep("d.db", user=1002)
    if draw.random() < .5:
        time.sleep(draw.uniform(0, .2))
        first.kill()
    end([first], (0, -9))
    end([second])
    check("d.db")


KINDS = {"2 sweeps": sweeps(2), "6 sweeps": sweeps(6), "20 sweeps": sweeps(20), "names": names, "locks": locked,
         "opposite merges": merges, "merges beside a sweep": merge_beside, "kills and stops": killed,
         "a disk that fills": full, "two users": group}


def main():
    global folder, program, alone
    program = os.path.realpath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    base = tempfile.mkdtemp(prefix="unmask-crowd-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    os.chmod(base, 0o755)
    n_wrong = 0
    for kind in sys.argv[3:] or KINDS:
        begin, n, said = time.time(), 0, None
        for i in range(rounds):
            folder = f"{base}/round"
            os.mkdir(folder)
            open(f"{folder}/grid.ini", "w").write(GRID)
            alone = alone or subprocess.run([program, "sweep", "grid.ini"], cwd=folder, check=True, capture_output=True,
                                            text=True).stdout
            try:
                said = KINDS[kind](random.Random(f"{kind} {i}"))
            except Wrong as wrong:
                n_wrong += 1
                print(f"{kind}, round {i}: {wrong}", flush=True)
            shutil.rmtree(folder)
            if said:
                break
            n += 1
            if n % 10 == 0:
                print(f"{kind}: {n} of {rounds}", file=sys.stderr, flush=True)
        print(f"{kind}: " + (f"left out, {said}" if said else f"{n} rounds in {time.time() - begin:.0f} s"), flush=True)
    os.rmdir(base)
    sys.exit(n_wrong > 0)


main()
