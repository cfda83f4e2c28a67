"""Runs the sanitizers' program with a fault (fault.h) and says what is wrong with how it ended."""
import json
import os
import re
import signal
import subprocess
import tempfile
import threading

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROGRAM = os.environ.get("UNMASK", os.path.join(ROOT, "build/asan/unmask-faults"))
PLUGINS = os.environ.get("UNMASK_PLUGINS", os.path.join(ROOT, "build/plugins"))
SIGNALS = {"kill": signal.SIGKILL, "power": signal.SIGKILL, "lie": signal.SIGKILL,
           "torn": signal.SIGKILL, "int": signal.SIGINT, "term": signal.SIGTERM,
           "hup": signal.SIGHUP}
SANITIZER = re.compile(r"AddressSanitizer(?! failed to allocate)|LeakSanitizer|ThreadSanitizer|runtime error:")
LIMIT_S, GRACE_S = 90, 10
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores, for all its children


class Run:
    """How a run ended: its status (negative: a signal), both outputs, whether and where the fault
    came, and how many chances there were of each kind. sent: a signal's name and the seconds after
    which it comes from outside; a program that is stopped goes on a second later."""

    def __init__(self, args, folder, fault=None, limit=LIMIT_S, sent=None):
        self.args, self.fault, self.slow, self.hangs = args, fault, False, False
        self.how = fault.split(":")[2] if fault and fault.count(":") > 1 else sent[0] if sent else "once"
        log = tempfile.mktemp(dir=folder, prefix="fault-")
        environment = dict(
            os.environ, UNMASK_FAULT_LOG=log, UNMASK_DATA=ROOT, OPENBLAS_NUM_THREADS="1",
            ASAN_OPTIONS="allocator_may_return_null=1:max_allocation_size_mb=30000:"
                         "hard_rss_limit_mb=4000",
            LSAN_OPTIONS=f"suppressions={ROOT}/.ci/lsan:print_suppressions=0",
            UBSAN_OPTIONS="print_stacktrace=1")
        environment.pop("UNMASK_FAULT", None)
        if fault:
            environment["UNMASK_FAULT"] = fault
        with open(os.path.join(folder, "stdout"), "wb+") as out, \
                open(os.path.join(folder, "stderr"), "wb+") as err:
            child = subprocess.Popen([PROGRAM, *args], cwd=folder, env=environment, stdout=out,
                                     stderr=err, stdin=subprocess.DEVNULL, start_new_session=True)
            self.send(child, *sent or ("", 0))
            self.status = self.wait(child, limit)
            out.seek(0), err.seek(0)
            self.out, self.err = out.read(), err.read().decode(errors="replace")
        lines = open(log).read().split("\n") if os.path.exists(log) else []
        self.fired = [line[6:] for line in lines if line.startswith("fired ")]
        self.chances = {}  # of the program or of a child of it, whichever had more
        for line in lines:
            for kind, count in (word.split("=") for word in line.split()[1:] if "=" in word):
                self.chances[kind] = max(self.chances.get(kind, 0), int(count))
        if sent and sent[0] != "stop":
            self.fired.append("sent " + sent[0])
        if os.path.exists(log):
            os.unlink(log)

    def send(self, child, name, after_s):
        signals = [(after_s, SIGNALS[name])] if name in SIGNALS else []
        if name == "stop":
            signals = [(after_s, signal.SIGSTOP), (after_s + 1, signal.SIGCONT)]
        for at, number in signals:
            timer = threading.Timer(at, lambda number=number: child.poll() is None and child.send_signal(number))
            timer.daemon = True
            timer.start()

    def wait(self, child, limit):
        """A run that takes long is interrupted; one that does not end then hangs."""
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            self.slow = True
            child.send_signal(signal.SIGINT)
        try:
            return child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.hangs = True
            os.killpg(child.pid, signal.SIGKILL)
            return child.wait()

    def sentence(self):
        """What the program says at its end."""
        lines = [line for line in self.err.split("\n") if line.startswith("unmask: ")]
        return lines[-1][8:] if lines else ""

    def complaints(self):
        """What no run may do, whatever its arguments and faults."""
        found = []
        wanted = SIGNALS.get(self.how) if self.fired else None
        if self.hangs:
            found.append("hangs: it did not end %d s after an interrupt" % GRACE_S)
        elif SANITIZER.search(self.err):
            lines = [line for line in self.err.split("\n") if SANITIZER.search(line)]
            frames = re.findall(r"#\d+ \S+ in (\w+) (?:\./)?(\w[\w/.]*:\d+)", self.err)
            ours = [f"{name} {place}" for name, place in frames if "torture" not in place]
            found.append(f"sanitizer: {lines[0].strip()[:200]} [{'; '.join(ours[:3])}]")
        elif "internal error" in self.err:
            found.append("internal error: " + self.sentence().replace("internal error: ", ""))
        elif self.status not in (0, 1, 2) and -self.status != wanted and not self.slow:
            found.append(f"status {self.status}: {self.err.strip()[-200:]}")
        elif self.status in (1, 2) and not self.sentence():
            found.append(f"status {self.status} without a sentence: {self.err.strip()[-200:]}")
        return found


def memory_is_named(run):
    """Out of memory is said to be that."""
    return re.search(r"memory|incomplete|interrupted", run.err, re.I) is not None


NOBODY = re.compile(rb"^identity     none,.*$", re.M)
ANYBODY = re.compile(rb"^identity     .*$", re.M)


def without_nobody(of, like):
    """The value without the identities in it that are not known, as `like` without them."""
    if isinstance(of, dict) and isinstance(like, dict) and of.keys() == like.keys():
        if "digest" in of and of["digest"] is None:
            return like
        return {key: without_nobody(of[key], like[key]) for key in of}
    if isinstance(of, list) and isinstance(like, list) and len(of) == len(like):
        return [without_nobody(*pair) for pair in zip(of, like)]
    return of


def same(out, whole):
    """Output that is what a run without a fault prints, unless it says that it has no identity."""
    if out == whole:
        return True
    try:
        out, whole = json.loads(out), json.loads(whole)
        return without_nobody(out, whole) == whole
    except (ValueError, AttributeError):
        return (NOBODY.search(out) is not None and
                ANYBODY.sub(b"", out) == ANYBODY.sub(b"", whole))
