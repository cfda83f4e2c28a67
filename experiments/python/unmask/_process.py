"""The program as a process beside this one: it is run once for a call, asks the call's policies over pipes, and ends,
stops and goes on with Python."""

import copy
import ctypes
import mmap
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings

from unmask._errors import Error, PolicyError, place_of, policy_error

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PIPE_BYTES = 1 << 16
_NUMBER = struct.Struct("<q")
now = threading.local()  # what the thread that answers is asked


def warn(text):
    """A warning at the line that called this module."""
    depth, frame = 2, sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, stacklevel=depth)


class Gone(Exception):
    """The program has closed its end."""


class _Overdue(BaseException):
    """Raised in a policy that took too long."""


class Line:
    """A connection of one run or replica, see shim.c: a pipe on which it says that it asks, one on which it is answered,
    and the memory in which its questions stand. It begins with a hello: whether this is the trial before a run, and the
    name of the policy that is asked. `own` is the copy of the policy that answers."""

    def __init__(self, connection, policies):
        hello, self._ends, _, _ = socket.recv_fds(connection, 1024, 3, socket.MSG_CMSG_CLOEXEC)
        self._memory, self.is_enough, self.is_known, self._owner = b"", False, False, os.getpid()
        self.policy = policies.get(hello[1:].decode("utf-8", "replace"))
        self.own, self.is_trial = self.policy, hello[:1] == b"\1"
        if len(self._ends) != 3 or self.policy is None:
            self.close()
            raise Gone

    def fileno(self):
        return self._ends[0]

    def hear_question(self):
        """A question whole. Whoever asks waits for the answer, so that nothing comes ahead of its turn."""
        size = self.hear_number()
        if size > len(self._memory):
            self._memory = mmap.mmap(self._ends[2], 0, access=mmap.ACCESS_READ)
        return self._memory[:size]

    def hear_number(self):
        data = os.read(self._ends[0], _NUMBER.size)
        if not data:
            raise Gone
        return _NUMBER.unpack(data)[0]

    def tell(self, data):
        if os.getpid() != self._owner:
            raise Error("a process that was forked by a policy cannot answer for it")
        try:
            n = os.write(self._ends[1], data)
            while n < len(data):
                data = data[n:]
                n = os.write(self._ends[1], data)
        except BrokenPipeError:
            raise Gone from None

    def close(self):
        self._memory = b""
        while self._ends:
            os.close(self._ends.pop())


class Copies:
    """Who answers whom: every run and replica, and the trial, has a copy of what the policy was when it was first asked.
    Where there is one run its first replica has the policy itself, whose caller may want to know what it saw."""

    def __init__(self, is_one_run):
        self._before, self._is_one_run, self._taken = {}, is_one_run, set()  # by id(policy)
        self._shared = {}  # by id, as `deepcopy` knows what it has copied

    def of(self, policy, is_trial):
        if id(policy) not in self._before:
            self._before[id(policy)] = self._copy(policy)
        if self._is_one_run and not is_trial and id(policy) not in self._taken:
            self._taken.add(id(policy))
            return policy
        return self._copy(self._before[id(policy)])

    def _copy(self, whole, memo=None):
        """A part that cannot be copied, such as an open file, a lock or a generator, is shared, wherever it is; all
        around it is copied."""
        while id(whole) not in self._shared:
            try:
                return copy.deepcopy(whole, {**self._shared, **(memo or {})})
            except Exception as error:  # whatever a class makes of it
                part = self._failed_at(error, whole)
                self._shared[id(part)] = part
        own = object.__new__(type(whole))  # its own way of being copied fails
        vars(own).update(self._copy(vars(whole), {id(whole): own}))
        return own

    def _failed_at(self, error, whole):
        """The innermost object that was being copied, and was not known to fail."""
        part, trace = whole, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code is copy.deepcopy.__code__:
                asked = trace.tb_frame.f_locals["x"]
                part = part if id(asked) in self._shared else asked
            trace = trace.tb_next
        return part


class Watch:
    """A thread for as long as the program runs. A program that stopped because this process was stopped goes on with it. A
    policy that does not return within `LIMIT_S` of its own processor time, or `WAIT_LIMIT_S` in all, is ended: time in
    which this process was stopped does not count."""

    LIMIT_S, WAIT_LIMIT_S, NAP_S = 5, 60, 0.25

    def __init__(self, child, progress):
        self._progress = progress
        self._child, self._caller, self._over = child, threading.get_ident(), threading.Event()
        self._lock, self._asked, self._n, self._is_trial = threading.Lock(), None, 0, False
        self.overdue = None  # the policy that was ended
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask(self, policy, is_trial):
        self._n += 1
        self._asked, self._is_trial = policy, is_trial

    def answered(self):
        with self._lock:  # nothing is raised here any more
            self._asked = None
        if self.overdue is not None:
            raise _Overdue

    def close(self):
        self._over.set()
        self._thread.join()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._caller), None)

    def _run(self):
        clock = time.pthread_getcpuclockid(self._caller)
        n, naps, since = 0, 0, 0
        while not self._over.wait(self.NAP_S):
            if _is_stopped(self._child):
                _signal(self._child, signal.SIGCONT)
            policy = self._asked
            if policy is not None and self._is_trial:
                self._progress.show(self._n, 0, f"decisions of {type(policy).__name__} on trial")
            if self._asked is None or self._n != n:
                n, naps, since = self._n, 0, time.clock_gettime(clock)
                continue
            naps += 1
            is_late = time.clock_gettime(clock) - since > self.LIMIT_S or naps * self.NAP_S > self.WAIT_LIMIT_S
            if is_late:
                with self._lock:
                    if self._asked is not None and self._n == n:
                        self._end_policy()

    def _end_policy(self):
        """Again at the next nap, if the policy caught what is raised."""
        self.overdue = self._asked
        _signal(self._child, signal.SIGKILL)
        in_main = self._caller == threading.main_thread().ident
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.pthread_kill(self._caller, signal.SIGINT)  # ends a sleep, too
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._caller), ctypes.py_object(_Overdue))


def _is_stopped(child):
    try:
        return os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _signal(child, number):
    """To the program and whoever it started."""
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        pass


def _end(child, patience_s):
    """Asks the program to end, and ends it; it has not been waited for, so that its number is still its own."""
    try:
        if child.returncode is None and patience_s > 0:
            _signal(child, signal.SIGCONT)
            _signal(child, signal.SIGINT)
            until = time.monotonic() + patience_s
            while time.monotonic() < until and not os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                time.sleep(0.02)
    finally:
        if child.returncode is None:
            _signal(child, signal.SIGKILL)
            child.wait()



class _Said:
    """What the program says on standard error: a warning each, once it is known that it is not the sentence with which it
    ends. What it reports of itself (times, where it recorded) is no warning; what is not the program's goes through."""

    _START = "unmask: "

    def __init__(self, named):
        self.text, self._named, self._rest, self.last = "", named, "", None

    def hear(self, data):
        text = data.decode("utf-8", "replace")
        self.text += text
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._line(line)

    def _line(self, line):
        self.tell()
        if line.startswith(self._START):
            self.last = line[len(self._START):]
        elif line.strip() and sys.stderr is not None:
            print(self._named(line), file=sys.stderr)

    def tell(self):
        """Nothing came after it, or something did: it is a warning."""
        said, self.last = self.last, None
        if said is not None and not _is_report(said):
            warn(self._named(said))

    def end(self, status):
        """The sentence with which the program ends, or None."""
        if self._rest:
            self._line(self._rest)
        if status == 0:
            self.tell()
        return self.last


def _is_report(said):
    return re.search(r" in [0-9.e+-]+ s$|^recorded as run \d+ of |^\d+ points? (was|were) in .* already$", said) is not None


class Program:
    """One run of the program, which asks `policies`, a dict by the names of their shared objects. `trials` says how long
    each is tried; `named` puts the names into sentences that the caller knows."""

    PATIENCE_S, QUIET_S, LOOK_S, MOST_WAITS = 1.0, 0.5, 50e-6, 1023

    def __init__(self, policies, trials, named, progress, is_one_run=True):
        self._policies, self._trials, self._progress = policies, trials, progress
        self._said, self._out, self._counts = _Said(named), bytearray(), b""
        self._lines, self._handlers, self._poll = {}, {}, select.epoll()
        self._copies = Copies(is_one_run)
        self._n_open, self._owner = 0, os.getpid()
        self._looks, self._waits, self._in_vain = len(os.sched_getaffinity(0)) > 1, 0, 0

    def run(self, words, environment, listener):
        """(status, output, the sentence with which it ended, or None)"""
        counts_end, counts = os.pipe()
        try:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env={**environment, "UNMASK_PROGRESS": str(counts)}, pass_fds=(counts,),
                                     start_new_session=True)
        except OSError as trouble:
            os.close(counts_end)
            raise Error(f"{words[0]} cannot be run: {trouble.strerror}") from None
        finally:
            os.close(counts)
        watch, patience_s = None, 0
        try:
            watch = Watch(child, self._progress)
            self._serve(child, listener, counts_end, watch)
            status = child.wait()
            return status, bytes(self._out), self._said.end(status)
        except (_Overdue, KeyboardInterrupt) as raised:
            if watch is None or watch.overdue is None:
                patience_s = self.PATIENCE_S
                raise
            raise PolicyError(f"{type(watch.overdue).__name__} did not return within {watch.LIMIT_S} s of its own "
                              f"({watch.WAIT_LIMIT_S} s in all){place_of(raised)}") from raised
        finally:
            while not self._close(child, patience_s, listener, counts_end, watch):
                pass

    def _close(self, child, patience_s, listener, counts_end, watch):
        """False where what was raised for a policy that took too long came here, where it is not waited for."""
        if os.getpid() != self._owner:  # a policy forked, and the child ends: all of this is its parent's
            return True
        try:
            if watch is not None:
                watch.close()
            _end(child, patience_s)
            for end in (child.stdout, child.stderr, self._poll, *([listener] if listener else []), *self._lines.values()):
                end.close()
            self._lines.clear()
            self._progress.close()
        except (_Overdue, KeyboardInterrupt):
            if watch is None or watch.overdue is None:
                raise
            return False
        os.close(counts_end)
        return True

    def _serve(self, child, listener, counts_end, watch):
        self._n_open = 2
        self._handle(child.stdout.fileno(), lambda fd: self._hear(fd, self._out.extend))
        self._handle(child.stderr.fileno(), lambda fd: self._hear(fd, self._said.hear))
        self._handle(counts_end, self._hear_counts)
        if listener is not None:
            self._handle(listener.fileno(), lambda _: self._accept(listener, watch))
        handlers, poll = self._handlers, self._poll.poll
        while self._n_open > 0:
            ready = self._look(poll) or poll(None if self._said.last is None else self.QUIET_S)
            if not ready:
                self._said.tell()
            for fd, _ in ready:
                handler = handlers.get(fd)
                if handler is not None:
                    handler(fd)

    def _look(self, poll):
        """What comes soon after an answer, without sleeping for it; see shim.c."""
        if self._waits > 0 or not self._looks or len(self._lines) != 1:
            self._waits -= self._waits > 0
            return None
        ready, until = poll(0), time.perf_counter() + self.LOOK_S
        while not ready:
            if time.perf_counter() > until:
                self._in_vain = min(2 * self._in_vain + 1, self.MOST_WAITS)
                self._waits = self._in_vain
                return None
            ready = poll(0)
        self._in_vain //= 2
        return ready

    def _handle(self, fd, handler):
        self._handlers[fd] = handler
        self._poll.register(fd, select.EPOLLIN)

    def _forget(self, fd):
        del self._handlers[fd]
        self._poll.unregister(fd)

    def _hear(self, fd, take):
        data = os.read(fd, _PIPE_BYTES)
        take(data)
        if not data:
            self._forget(fd)
            self._n_open -= 1

    def _hear_counts(self, fd):
        """Lines of "DONE TOTAL NOUN", of which the last is the newest."""
        data = os.read(fd, _PIPE_BYTES)
        if not data:
            self._forget(fd)
            return
        *lines, self._counts = (self._counts + data).split(b"\n")
        if lines:
            n_done, n_total, noun = lines[-1].decode("utf-8", "replace").split(" ", 2)
            self._progress.show(int(n_done), int(n_total), noun)

    def _accept(self, listener, watch):
        connection, _ = listener.accept()
        with connection:
            try:
                line = Line(connection, self._policies)
            except (Gone, ConnectionError):
                return
        self._lines[line.fileno()] = line
        line.own = self._copies.of(line.policy, line.is_trial)
        self._handle(line.fileno(), lambda fd: self._answer(fd, line, watch))

    def _answer(self, fd, line, watch):
        policy = line.policy
        if line.is_trial:
            line.is_enough = self._trials.is_enough(policy)
        elif not line.is_known:
            line.is_known = True
            self._trials.passed(policy)
        outer, now.is_trial = getattr(now, "is_trial", False), line.is_trial  # a policy may call this module itself
        watch.ask(policy, line.is_trial)
        try:
            line.own._answer(line)
        except Gone:
            self._forget(fd)
            self._lines.pop(fd).close()
            line.own = None
        except Exception as raised:  # what a policy raises is what the caller gets
            raise policy_error(policy, raised) from raised
        finally:
            now.is_trial = outer
            watch.answered()
