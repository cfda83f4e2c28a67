"""Policies in Python. The program runs beside this process and loads a small shared object for each policy, which asks
over a socket; threads here answer. Good for prototypes: a decision costs some tens of microseconds here."""

import collections
import hashlib
import inspect
import itertools
import os
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile
import threading

_HERE = pathlib.Path(__file__).resolve().parent
_REQUEST = struct.Struct("<12I4q")
_ASKED = struct.Struct("<5q5I4x")
_ANSWER = struct.Struct("<6Iq")
_NEVER = 2**63 - 1

Request = collections.namedtuple("Request", "slot queries prompt_tokens output_tokens committed_tokens block block_length "
                                 "masked_in_block step_in_block steps preemptions commit_tokens arrival_ns kv_bytes "
                                 "kv_held_bytes id")
Request.__doc__ = "A request as a policy sees it (sim/policy/request.h); `queries`: the tokens of its next step."


class PolicyError(Exception):
    """A policy in Python raised; the run was ended. `__cause__` is what it raised."""


class View:
    """What a scheduler sees (sim/scheduler/scheduler.h): `now_ns`, `running` and `waiting` requests, limits of one step."""

    __slots__ = ("now_ns", "next_arrival_ns", "running_tokens", "kv_free_bytes", "kv_total_bytes", "max_batched_tokens",
                 "max_requests", "running", "waiting", "_estimate")

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


class Scheduler:
    """A scheduler: `schedule` says which requests take part in the next step. It has to decide the same for the same
    view, which may be any that can be: before a run it is tried on drawn ones, twice each. Where there are several
    replicas it answers for all of them.

        class ShortestFirst(unmask.Scheduler):
            def schedule(self, view, batch):
                batch.run_all()
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

        def estimate(batch):
            line.tell(batch._packed(1))
            return struct.unpack("<q", line.hear(8))[0]

        view._estimate = estimate
        batch = Batch(view)
        self.schedule(view, batch)
        line.tell(batch._packed(0))


class Decoder:
    """A decoder: `choose` says which masked positions a step commits, as true values beside their confidences; at
    least one. `offsets` are their places in the block.

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
        commit = bytes(1 if c else 0 for c in self.choose(request, offsets, confidences))
        if len(commit) != n or not any(commit):
            raise ValueError(f"{type(self).__name__}.choose answered {len(commit)} flags, {sum(commit)} of them set, for "
                             f"{n} positions; one each, and at least one set, is needed")
        line.tell(commit)


class _Gone(Exception):
    """The program has closed its end."""


class _Line:
    """A connection of one thread of the program."""

    def __init__(self, connection):
        self._connection, self._reader = connection, connection.makefile("rb", buffering=1 << 16)

    def hear(self, size):
        data = self._reader.read(size)
        if len(data) != size:
            raise _Gone
        return data

    def tell(self, data):
        self._connection.sendall(data)

    def close(self):
        self._reader.close()
        self._connection.close()


def _source(policy):
    """What a policy is made of: another text is another policy to a database that is resumed."""
    try:
        text = inspect.getsource(type(policy))
    except (OSError, TypeError):
        text = repr([f.__code__.co_code for f in vars(type(policy)).values() if hasattr(f, "__code__")])
    return text + repr(sorted(vars(policy).items(), key=lambda item: item[0]))


class Policies:
    """The policies of one call: their shared objects, a socket for each, and threads that answer."""

    _calls = itertools.count()

    def __init__(self):
        self._by_path, self._failed, self._child, self._lock = {}, None, None, threading.Lock()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _, listener in self._by_path.values():
            try:
                listener.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts
            except OSError:
                pass
            listener.close()

    def path_of(self, policy):
        """The file that stands for a policy, in a folder for temporary files. Name and content go by the policy's source
        and attributes, so that a database that is resumed knows it again, and knows when it changed."""
        source = _source(policy).encode()
        folder = os.path.join(tempfile.gettempdir(), f"unmask-policies-{os.getuid()}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.stat(folder).st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to somebody else")
        path = os.path.join(folder, f"{type(policy).__name__}-{hashlib.sha256(source).hexdigest()[:16]}.so")
        if path not in self._by_path:
            content = (_HERE / "lib" / policy._shim).read_bytes() + source
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(content)
            os.replace(file.name, path)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(f"\0unmask-{os.getpid()}-{next(self._calls)}")
            listener.listen(64)
            self._by_path[path] = (policy, listener)
        return path

    def _accept(self, policy, listener):
        try:
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(policy, _Line(connection)), daemon=True).start()
        except OSError:
            pass

    def _serve(self, policy, line):
        try:
            while True:
                policy._answer(line)
        except (_Gone, ConnectionError):
            pass
        except BaseException as raised:  # what a policy raises is told to whoever called
            self._fail(policy, raised)
        finally:
            line.close()

    def _fail(self, policy, raised):
        with self._lock:
            self._failed = self._failed or (policy, raised)
            if self._child.poll() is None:
                os.killpg(self._child.pid, signal.SIGKILL)

    def run(self, words, wait):
        """Runs the program while the policies answer; (process, what `wait` of it gave)."""
        environment = dict(os.environ)
        if self._by_path:
            environment["UNMASK_POLICIES"] = ";".join(
                f"{os.path.basename(path)}={listener.getsockname()[1:].decode()}"
                for path, (_, listener) in self._by_path.items())
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=environment, start_new_session=True) as child:
            self._child = child
            for policy, listener in self._by_path.values():
                threading.Thread(target=self._accept, args=(policy, listener), daemon=True).start()
            try:
                got = wait(child)
            except BaseException:  # Ctrl-C, above all: the program ends with what it has
                os.killpg(child.pid, signal.SIGINT)
                raise
        if self._failed is not None:
            policy, raised = self._failed
            raise PolicyError(f"{type(policy).__name__} raised {type(raised).__name__}: {raised}") from raised
        return child, got
