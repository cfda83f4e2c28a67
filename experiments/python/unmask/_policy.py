"""Policies in Python. The program runs beside this process and loads a small shared object for each policy, which asks
over a socket; the thread that called answers. Good for prototypes: a decision costs some tens of microseconds here."""

import collections
import ctypes
import itertools
import os
import pathlib
import re
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import threading
import time
import warnings

from unmask._digest import digest
from unmask._errors import Error, PolicyError, policy_error
from unmask._folder import Folder

_HERE = pathlib.Path(__file__).resolve().parent
# In a clone the sources stand beside nothing: what `make wheel` has packed is used.
HOME = next((home for home in (_HERE, _HERE.parents[2] / "build/wheel/staged/unmask") if (home / "bin/unmask").exists()),
            _HERE)
_REQUEST = struct.Struct("<12I4q")
_ASKED = struct.Struct("<5q5I4x")
_ANSWER = struct.Struct("<6Iq")
_NEVER = 2**63 - 1
_ENOUGH = 2  # an answer that ends the trial

Request = collections.namedtuple("Request", "slot queries prompt_tokens output_tokens committed_tokens block block_length "
                                 "masked_in_block step_in_block steps preemptions commit_tokens arrival_ns kv_bytes "
                                 "kv_held_bytes id")
Request.__doc__ = "A request as a policy sees it (sim/policy/request.h); `queries`: the tokens of its next step."


class View:
    """What a scheduler sees (sim/scheduler/scheduler.h): `now_ns`, `running` and `waiting` requests, limits of one step."""

    __slots__ = ("now_ns", "next_arrival_ns", "running_tokens", "kv_free_bytes", "kv_total_bytes", "max_batched_tokens",
                 "max_requests", "running", "waiting", "is_trial", "_estimate")

    def estimate_ns(self, batch):
        """How long a step with this batch would take."""
        return self._estimate(batch)


class Batch:
    """The answer. Requests that run and fit go on with `run` or `run_all`, waiting ones start with `admit`."""

    def __init__(self, view):
        self._view = view
        self._all, self._listed, self._admitted = False, [], []
        self.free_tokens, self.free_kv_bytes = view.max_batched_tokens, view.kv_free_bytes
        self.free_requests = view.max_requests - len(view.running)
        self.hold, self._wake_ns = "change", _NEVER

    def run_all(self):
        """Every running request takes part; False where their tokens do not fit."""
        if self._view.running_tokens > self.free_tokens:
            return False
        self._all = True
        self.free_tokens -= self._view.running_tokens
        return True

    def run(self, request):
        """A running request takes part; False where its tokens do not fit."""
        if request.queries > self.free_tokens:
            return False
        self._listed.append(request.slot)
        self.free_tokens -= request.queries
        return True

    def admit(self, request):
        """A waiting request starts; False where it does not fit."""
        if request.queries > self.free_tokens or request.kv_bytes > self.free_kv_bytes or self.free_requests == 0:
            return False
        self._admitted.append(request.slot)
        self.free_tokens -= request.queries
        self.free_kv_bytes -= request.kv_bytes
        self.free_requests -= 1
        return True

    def wait_until(self, ns):
        """Nothing takes part: ask again then."""
        self._wake_ns = int(ns)

    def _packed(self, kind):
        slots = self._listed + self._admitted
        hold = {"step": 0, "change": 1, "closed": 2}[self.hold]
        return _ANSWER.pack(kind, self._all, len(slots), len(self._admitted), hold, 0, self._wake_ns) + struct.pack(
            f"<{len(slots)}I", *slots)


_now = threading.local()  # what the thread that answers is asked


class _Asked:
    """What all policies have."""

    @property
    def is_trial(self):
        """Whether the question is of the trial before a run, of which nothing should be learned."""
        return getattr(_now, "is_trial", False)


class Scheduler(_Asked):
    """A scheduler: `schedule` says which requests take part in the next step. It has to decide the same for the same
    view, which may be any that can be: before a run it is tried on drawn ones, twice each, for up to 0.3 s;
    `view.is_trial` tells. Where there are several replicas it answers for all of them. It is asked by the thread that
    called, one question at a time.

        class ShortestFirst(unmask.Scheduler):
            def schedule(self, view, batch):
                if not batch.run_all():
                    for request in view.running:
                        batch.run(request)
                for request in sorted(view.waiting, key=lambda r: r.output_tokens):
                    batch.admit(request)
    """

    _shim = "scheduler.so"

    def schedule(self, view, batch):
        raise NotImplementedError

    def _answer(self, line):
        head = _ASKED.unpack(line.hear(_ASKED.size))
        view = View()
        (view.now_ns, view.next_arrival_ns, view.running_tokens, view.kv_free_bytes, view.kv_total_bytes,
         view.max_batched_tokens, view.max_requests, _, n_running, n_waiting) = head
        requests = [Request._make(fields)
                    for fields in _REQUEST.iter_unpack(line.hear(_REQUEST.size * (n_running + n_waiting)))]
        view.running, view.waiting = requests[:n_running], requests[n_running:]
        view.is_trial = self.is_trial
        if line.is_enough:
            return line.tell(_ANSWER.pack(_ENOUGH, 0, 0, 0, 0, 0, 0))

        def estimate(batch):
            line.tell(batch._packed(1))
            return struct.unpack("<q", line.hear(8))[0]

        view._estimate = estimate
        batch = Batch(view)
        self.schedule(view, batch)
        return line.tell(batch._packed(0))


class Decoder(_Asked):
    """A decoder: `choose` says which masked positions a step commits, as true values beside their confidences; at
    least one. `offsets` are their places in the block. `self.is_trial` tells the trial before a run.

        class NearBest(unmask.Decoder):
            def choose(self, request, offsets, confidences):
                return [c >= 0.9 * max(confidences) for c in confidences]
    """

    _shim = "decoder.so"

    def choose(self, request, offsets, confidences):
        raise NotImplementedError

    def _answer(self, line):
        n, _ = struct.unpack("<2I", line.hear(8))
        request = Request._make(_REQUEST.unpack(line.hear(_REQUEST.size)))
        offsets = struct.unpack(f"<{n}I", line.hear(4 * n))
        confidences = struct.unpack(f"<{n}f", line.hear(4 * n))
        if line.is_enough:
            return line.tell(bytes([_ENOUGH]) * n)
        commit = bytes(1 if c else 0 for c in self.choose(request, offsets, confidences))
        if len(commit) != n or not any(commit):
            raise ValueError(f"{type(self).__name__}.choose answered {len(commit)} flags, {sum(commit)} of them set, for "
                             f"{n} positions; one each, and at least one set, is needed")
        return line.tell(commit)


class _Gone(Exception):
    """The program has closed its end."""


class _Overdue(BaseException):
    """Raised in a policy that took too long."""


class _Line:
    """A connection of one thread of the program. It begins with a hello: whether this is the trial before a run, and the
    name of the shared object that asks."""

    def __init__(self, connection, policies):
        self._connection, self.is_enough = connection, False
        hello = connection.recv(8, socket.MSG_WAITALL)
        if len(hello) != 8:
            raise _Gone
        self.is_trial, length = struct.unpack("<2I", hello)
        self.policy = policies[connection.recv(length, socket.MSG_WAITALL).decode("utf-8")]
        # Whoever asks waits for the answer, so that nothing of a question is read ahead of its turn.
        self._reader = connection.makefile("rb", buffering=1 << 16)

    def hear(self, size):
        data = self._read(size)
        if len(data) != size:
            raise _Gone
        return data

    def _read(self, size):
        try:
            return self._reader.read(size)
        except ConnectionError:
            return b""

    def tell(self, data):
        try:
            self._connection.sendall(data)
        except ConnectionError:
            raise _Gone from None

    def close(self):
        self._reader.close()
        self._connection.close()


class _Watch:
    """A thread for as long as the program runs. A program that stopped because this process was stopped goes on with it. A
    policy that does not return within `LIMIT_S` of its own processor time, or `WAIT_LIMIT_S` in all, is ended: time in
    which this process was stopped does not count."""

    LIMIT_S, WAIT_LIMIT_S, NAP_S = 5, 60, 0.25

    def __init__(self, child):
        self._child, self._caller, self._over = child, threading.get_ident(), threading.Event()
        self._lock, self._asked, self._n = threading.Lock(), None, 0
        self.overdue = None  # the policy that was ended
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask(self, policy):
        self._n += 1
        self._asked = policy

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


class Policies:
    """The policies of one call: their shared objects, a socket on which they are asked, and who answers."""

    TRIAL_S, PATIENCE_S = 0.3, 1.0
    _calls = itertools.count()

    def __init__(self):
        self._by_name, self._paths, self._unknown, self._folder, self._trials = {}, {}, [], None, {}
        self.names = {}  # what the caller knows files of the call as

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._folder is not None:
            self._folder.close()

    def path_of(self, policy):
        """The file that stands for a policy. Within a call a policy is its object; its name and its content go by the
        policy's digest, so that a database that is resumed knows it again, and knows when it changed. What no digest can
        tell has a name of its own, which no other call has."""
        if id(policy) in self._paths:
            return self._paths[id(policy)]
        made_of, unknown = digest(policy)
        if unknown:
            self._unknown.append((policy, unknown))
            made_of = secrets.token_hex(32)
        first = name = f"{re.sub('[^A-Za-z0-9_]', '_', type(policy).__name__)[:48]}-{made_of[:16]}"
        for n in itertools.count(2):
            if name + ".so" not in self._by_name:
                break
            name = f"{first}-{n}"
        name += ".so"
        if self._folder is None:
            self._folder = Folder()
        self._folder.write(name, (HOME / "lib" / policy._shim).read_bytes() + f"{name} {made_of}".encode())
        self._by_name[name] = policy
        self._paths[id(policy)] = os.path.join(self._folder.path, name)
        self.names[self._paths[id(policy)]] = type(policy).__name__
        return self._paths[id(policy)]

    def named(self, sentence):
        """A sentence of the program with the names that the caller knows for files that are gone with the call."""
        for path, name in self.names.items():
            sentence = re.sub(re.escape(path) + r"(:\d+(?=:))?", lambda _, name=name: name, sentence)
        return sentence

    def warn(self):
        """Says of which policies no database can know whether they are the same again."""
        for policy, unknown in self._unknown:
            warnings.warn(f"runs of {type(policy).__name__} are never resumed: its identity would have to cover "
                          f"{', '.join(unknown[:4])}{', ...' if len(unknown) > 4 else ''}", stacklevel=4)

    def run(self, words):
        """Runs the program while the policies answer: (status, output, what it said)."""
        environment = {**os.environ, "UNMASK_PARENT": str(os.getpid())}
        listener = None
        if self._by_name:
            name = f"{os.getpid()}-{next(self._calls)}.sock"
            listener = self._folder.listen(name)
            environment["UNMASK_POLICIES"] = os.path.join(self._folder.path, name)
        try:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env=environment, start_new_session=True)
        except OSError as trouble:
            raise Error(f"{words[0]} cannot be run: {trouble.strerror}") from None
        watch, patience_s = _Watch(child), 0
        try:
            return self._serve(child, listener, watch)
        except (_Overdue, KeyboardInterrupt) as raised:
            if watch.overdue is None:
                patience_s = self.PATIENCE_S
                raise
            raise PolicyError(f"{type(watch.overdue).__name__} did not return within {watch.LIMIT_S} s of its own "
                              f"({watch.WAIT_LIMIT_S} s in all)") from raised
        finally:
            while not self._close(child, patience_s, listener, watch):
                pass

    @staticmethod
    def _close(child, patience_s, listener, watch):
        """False where what was raised for a policy that took too long came here, where it is not waited for."""
        try:
            watch.close()
            _end(child, patience_s)
            for end in (child.stdout, child.stderr, *([listener] if listener else [])):
                end.close()
        except (_Overdue, KeyboardInterrupt):
            if watch.overdue is None:
                raise
            return False
        return True

    def _serve(self, child, listener, watch):
        heard = {child.stdout: bytearray(), child.stderr: bytearray()}
        lines = set()
        with selectors.DefaultSelector() as selector:
            for pipe in heard:
                selector.register(pipe, selectors.EVENT_READ)
            if listener is not None:
                selector.register(listener, selectors.EVENT_READ)
            try:
                n_open = len(heard)
                while n_open > 0:
                    for key, _ in selector.select():
                        if key.fileobj in heard:
                            data = os.read(key.fd, 1 << 16)
                            heard[key.fileobj] += data
                            if not data:
                                selector.unregister(key.fileobj)
                                n_open -= 1
                        elif key.fileobj is listener:
                            self._accept(listener, selector, lines)
                        else:
                            self._answer(key, selector, lines, watch)
            finally:
                for line in lines:
                    line.close()
        return child.wait(), bytes(heard[child.stdout]), bytes(heard[child.stderr])

    def _accept(self, listener, selector, lines):
        connection, _ = listener.accept()
        try:
            line = _Line(connection, self._by_name)
        except (_Gone, KeyError, ConnectionError):
            connection.close()
            return
        lines.add(line)
        selector.register(connection, selectors.EVENT_READ, line)

    def _answer(self, key, selector, lines, watch):
        line, policy = key.data, key.data.policy
        if line.is_trial:
            until = self._trials.setdefault(id(policy), time.monotonic() + self.TRIAL_S)
            line.is_enough = time.monotonic() > until
        _now.is_trial = bool(line.is_trial)
        watch.ask(policy)
        try:
            policy._answer(line)
        except _Gone:
            selector.unregister(key.fileobj)
            lines.discard(line)
            line.close()
        except Exception as raised:  # what a policy raises is what the caller gets
            raise policy_error(policy, raised) from raised
        finally:
            watch.answered()
