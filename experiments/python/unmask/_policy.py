"""Policies in Python. The program runs beside this process and loads a small shared object for each policy, which asks
over pipes; the thread that called answers. Good for prototypes: a decision costs some tens of microseconds here."""

import hashlib
import itertools
import os
import pathlib
import re
import secrets
import struct
import time

from unmask._digest import digest
from unmask._errors import UsageError, file_of
from unmask._folder import Folder
from unmask._process import Program, now, warn
from unmask._progress import Progress
from unmask._view import (ENOUGH, Batch, Rows, heard_confidences, heard_of_cache, heard_route, heard_view, packed_enough,
                          packed_enough_routes, packed_enough_rows, packed_heard, packed_moves, packed_of_cache, packed_route)

# Where shim.c has what is written of a policy: its file's name and its own, 8 reasons, which of these methods it has, whether these attributes
# are set, and how much it remembers of a request.
_MARK, _MAX_REASONS, _REASON_CHARS = b"UNMASK-NAME-OF-THE-POLICY", 8, 32
_METHODS = "happened", "move", "put_off", "evict", "learn", "take_back"
_FLAGS = "grows", "changes_passes", "reads_entropy", "reads_statistics"
_WRITTEN = struct.Struct("128s" + (1 + _MAX_REASONS) * f"{_REASON_CHARS + 1}s" + f"{len(_METHODS)}B{len(_FLAGS)}B1xI")
_MOST_MEMORY_BYTES = 4096
_HERE = pathlib.Path(__file__).resolve().parent
_BUILD = _HERE.parent.parent.parent / "build"
# Installed they are beside this file; in a clone they are what `make` has built there.
PROGRAM, _SHIMS = next(((program, shims) for program, shims in ((_HERE / "bin/unmask", _HERE / "lib"), (
    _BUILD / "unmask", _BUILD / "python")) if program.exists() and shims.exists()), (_HERE / "bin/unmask", _HERE / "lib"))


class Policy:
    """What all policies have."""

    _optional = ()  # methods that a policy of the kind may lack
    memory_bytes = 0

    @property
    def is_trial(self):
        """Whether the question is of the trial before a run, of which nothing should be learned."""
        return getattr(now, "is_trial", False)

    def _has(self, method):
        return method in self._optional and callable(getattr(self, method, None))

    def _written_reasons(self):
        return []


class Scheduler(Policy):
    """A scheduler: `schedule` says which requests take part in the next step. It has to decide the same for the same
    view, which may be any that can be: before a run it is tried on drawn ones, twice each, for up to 0.3 s;
    `view.is_trial` tells. Every run and replica, and the trial, asks a copy of its own (`copy.deepcopy` of the policy as it
    was at the call), so that what it keeps in `self` does not depend on how many threads there are; open files,
    locks and the like are shared. The first replica of `unmask.run` asks the policy itself. It is asked by the thread that
    called, one question at a time.

        class ShortestFirst(unmask.Scheduler):
            def schedule(self, view, batch):
                if not batch.run_all():
                    for request in view.running:
                        batch.run(request)
                for request in sorted(view.waiting, key=lambda r: r.output_tokens):
                    batch.admit(request)

    It may have `happened(happenings)`, which is told before the next decision what happened since the last one, in its order
    (`Happening`): arrivals, starts, steps that ended, ends. Where nothing runs or waits any more it is told at once. Reasons
    of its own for which it rejects are its `reject_reasons`, up to 8 names of a-z, 0-9 and -. One that `grows` lets requests
    start with the memory of their next step alone and sees to the rest (sim/policy/scheduler/scheduler.h): it takes prefills in
    chunks and may preempt. One that says widths or thresholds `changes_passes`: no bound is a bound of it. Tables, legends
    and texts call any policy by its `name`, else by its class: "shortest-first".
    """

    _shim, _decides, _optional = "scheduler.so", "schedule", ("happened",)
    reject_reasons = ()
    grows = changes_passes = False

    def schedule(self, view, batch):
        raise NotImplementedError

    def _written_reasons(self):
        reasons = self.reject_reasons
        if isinstance(reasons, str) or len(reasons) > _MAX_REASONS or not all(
                isinstance(one, str) and re.fullmatch(f"[a-z0-9-]{{1,{_REASON_CHARS}}}", one) for one in reasons):
            raise UsageError(f"reject_reasons of {type(self).__name__} are {reasons!r}, expected up to {_MAX_REASONS} names of a-z, 0-9 "
                             f"and -, with at most {_REASON_CHARS} characters each")
        return [one.encode() for one in reasons]

    def _answer(self, line):
        view, happened = heard_view(line)
        if line.is_enough:
            return line.tell(packed_enough())
        if happened:
            self.happened(happened)
        if view is None:
            return line.tell(packed_heard())

        view._reasons = self.reject_reasons
        batch = Batch(view)
        self.schedule(view, batch)
        return line.tell(batch._packed(0))


class Decoder(Policy):
    """A decoder: `choose` says which masked positions a step commits, as true values beside their confidences; at
    least one. `offsets` are their places in the block. `self.is_trial` tells the trial before a run.

        class NearBest(unmask.Decoder):
            def choose(self, request, offsets, confidences):
                return [c >= 0.9 * max(confidences) for c in confidences]

    With `reads_statistics = True` it is `choose(request, offsets, confidences, margins, entropies)`. It may have
    `take_back(request, offsets, confidences)`: which decided positions, with the confidences that they were committed with, are
    masked again after that step; `choose` may then commit none.
    """

    _shim, _decides, _optional = "decoder.so", "choose", ("take_back",)
    reads_statistics = False

    def choose(self, request, offsets, confidences):
        raise NotImplementedError

    def _answer(self, line):
        asked = heard_confidences(line)
        n = len(asked.offsets)
        if line.is_enough:
            return line.tell(bytes([ENOUGH]) * n)
        statistics = (asked.margins, asked.entropies) if asked.margins is not None else ()
        said = (self.take_back if asked.takes_back else self.choose)(asked.request, asked.offsets, asked.confidences, *statistics)
        flags = bytes(1 if one else 0 for one in said)
        needs_one = not asked.takes_back and not self._has("take_back")
        if len(flags) != n or (needs_one and not any(flags)):
            raise ValueError(f"{type(self).__name__}.{'take_back' if asked.takes_back else 'choose'} answered {len(flags)} flags, "
                             f"{sum(flags)} of them set, for {n} positions; one each{', and at least one set,' if needs_one else ''} "
                             f"is needed")
        return line.tell(flags)


class Cache(Policy):
    """A cache policy: `plan` says in `rows` (`Rows`) what the next step of a request computes and what has a row in the cache
    afterwards, and returns for how many steps in a row that holds, unless the block ends before. It decides the same for the
    same request and memory.

        class Interval(unmask.Cache):
            def plan(self, request, rows, memory):
                since = request.step_in_block % 8
                rows.keep = (0, request.block_start), (request.block_end, request.canvas_tokens)
                rows.held = request.canvas_tokens
                if since == 0:
                    rows.compute(0, request.canvas_tokens)
                    return 1
                rows.compute(request.block_start, request.block_end)
                return 8 - since

    It may have `put_off(request, rows, memory)`, what is taken in place of the refresh that `plan` has answered, and by how many
    steps that can wait (0: not); `evict(view, memory)`, for which positions go on after `rows.evict_layer`, a true value each;
    and `learn(request, learned, memory)`, which writes what it remembers of a request into `memory`, `memory_bytes` of it,
    zeros at first. With `reads_entropy = True` `learned` has entropies.
    """

    _shim, _decides, _optional = "cache.so", "plan", ("put_off", "evict", "learn")
    reads_entropy = False

    def plan(self, request, rows, memory):
        raise NotImplementedError

    def _answer(self, line):
        asks, request, memory, shown = heard_of_cache(line, self.memory_bytes)
        if line.is_enough:
            return line.tell(packed_enough_rows(self.memory_bytes + len(shown.pending if asks == "evict" else ())))
        if asks == "evict":
            keep = bytes(1 if one else 0 for one in self.evict(shown, bytes(memory)))
            if len(keep) != len(shown.pending):
                raise ValueError(f"{type(self).__name__}.evict answered {len(keep)} flags for {len(shown.pending)} positions")
            return line.tell(packed_of_cache(keep))
        if asks == "learn":
            self.learn(request, shown, memory)
            if len(memory) != self.memory_bytes:
                raise ValueError(f"{type(self).__name__}.learn left {len(memory)} bytes of memory, of {self.memory_bytes}")
            return line.tell(packed_of_cache(memory))
        rows = Rows()
        n = getattr(self, asks)(request, rows, bytes(memory))
        return line.tell(rows._packed(n))


class Router(Policy):
    """A router: `route` says to which replica a request that arrives goes, by its index, or that it is held back
    (`view.hold()`). It may have `move(view)`: pairs of a waiting request and the replica where it waits from now on.

        class LeastWaiting(unmask.Router):
            def route(self, request, view):
                return min(range(len(view.replicas)), key=lambda i: view.replicas[i].n_waiting)
    """

    _shim, _decides, _optional = "router.so", "route", ("move",)

    def route(self, request, view):
        raise NotImplementedError

    def _answer(self, line):
        request, view = heard_route(line)
        if line.is_enough:
            return line.tell(packed_enough_routes())
        if request is None:
            return line.tell(packed_moves(self.move(view), view))
        return line.tell(packed_route(self.route(request, view), len(view.replicas)))


def _known_as(policy):
    """A policy's class, and where it decides."""
    code = getattr(getattr(type(policy), policy._decides, None), "__code__", None)
    where = f" ({file_of(code)}:{code.co_firstlineno})" if code is not None else ""
    return type(policy).__name__ + where


def shown_name(policy):
    """What tables, legends and texts call a policy: its `name`, or its class, in small letters: "earliest-deadline"."""
    name = getattr(policy, "name", None)
    name = name if isinstance(name, str) else type(policy).__name__
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()
    return re.sub(r"[^a-z0-9]+", "-", apart).strip("-")[:_REASON_CHARS].strip("-") or "python"


def _written_shim(policy, name):
    content, reasons = (_SHIMS / policy._shim).read_bytes(), policy._written_reasons()
    memory_bytes = policy.memory_bytes
    if not isinstance(memory_bytes, int) or not 0 <= memory_bytes <= _MOST_MEMORY_BYTES or memory_bytes % 8 != 0:
        raise UsageError(f"memory_bytes of {type(policy).__name__} is {memory_bytes!r}, expected a multiple of 8 up to "
                         f"{_MOST_MEMORY_BYTES}")
    written = _WRITTEN.pack(name.encode(), shown_name(policy).encode(), *reasons, *[b""] * (_MAX_REASONS - len(reasons)), *map(policy._has, _METHODS),
                            *(bool(getattr(policy, flag, False)) for flag in _FLAGS), memory_bytes)
    at = content.index(_MARK)
    return content[:at] + written + content[at + _WRITTEN.size:]


class _Trials:
    """For how long policies are tried before a run: once for all that is known to be the same, in any call of this process.
    What a policy learned of a run does not make another of it."""

    LIMIT_S, MOST_DIGEST_S = 0.3, 0.05
    _passed = set()  # digests

    def __init__(self):
        self._digests, self._until, self._learn = {}, {}, {}

    def add(self, policy, made_of, took_s):
        """`made_of` None: nobody knows whether it is the same again."""
        self._digests[id(policy)] = made_of
        if made_of is not None and took_s < self.MOST_DIGEST_S:
            self._learn[id(policy)] = policy

    def is_enough(self, policy):
        until = self._until.setdefault(id(policy), time.monotonic() + self.LIMIT_S)
        return self._digests[id(policy)] in self._passed or time.monotonic() > until

    def passed(self, policy):
        """The program has begun to run with it."""
        if self._digests[id(policy)] is not None:
            self._passed.add(self._digests[id(policy)])

    def end(self):
        """After a call that went well."""
        for policy in self._learn.values():
            made_of, unknown = digest(policy)
            if not unknown and self._digests[id(policy)] in self._passed:
                self._passed.add(made_of)


class Policies:
    """The policies of one call: their shared objects, a socket on which they are asked, and who answers."""

    _calls = itertools.count()

    def __init__(self):
        self._by_name, self._paths, self._unknown, self._folder, self._trials = {}, {}, [], None, _Trials()
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
        since = time.perf_counter()
        made_of, unknown = digest(policy)
        self._trials.add(policy, None if unknown else made_of, time.perf_counter() - since)
        if unknown:
            self._unknown.append((policy, unknown))
            made_of = secrets.token_hex(32)
        first = name = f"{shown_name(policy)}-{made_of[:16]}"
        for n in itertools.count(2):
            if name + ".so" not in self._by_name:
                break
            name = f"{first}-{n}"
        name += ".so"
        self._place().write(name, _written_shim(policy, name) + f"{name} {made_of}".encode())
        self._by_name[name] = policy
        self._paths[id(policy)] = os.path.join(self._folder.path, name)
        self.names[self._paths[id(policy)]] = _known_as(policy)
        return self._paths[id(policy)]

    def _place(self):
        if self._folder is None:
            self._folder = Folder()
        return self._folder

    def against(self, text):
        """KEY=NAME, where a policy of the call has this name or class: KEY=its file."""
        key, _, name = (word.strip() for word in text.partition("="))
        files = [file for file, policy in self._by_name.items() if name in (shown_name(policy), type(policy).__name__)]
        return f"{key}={os.path.join(self._folder.path, files[0])}" if len(files) == 1 else text

    def write(self, name, suffix, text):
        """The path of a file of the call with that text, which sentences call by its name."""
        content = text.encode()
        file = f"{name}-{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
        self._place().write(file, content)
        path = os.path.join(self._folder.path, file)
        self.names[path] = name
        return path

    def named(self, sentence):
        """A sentence of the program with the names that the caller knows for files that are gone with the call."""
        for path, name in self.names.items():
            sentence = re.sub(re.escape(path) + r"(:\d+(?=:))?", lambda _, name=name: name, sentence)
        return sentence

    def warn(self):
        """Says of which policies no database can know whether they are the same again."""
        for policy, unknown in self._unknown:
            warn(f"runs of {type(policy).__name__} are never resumed: its identity would have to cover "
                 f"{', '.join(unknown[:4])}{', ...' if len(unknown) > 4 else ''}")

    def run(self, words, command):
        """Runs the program while the policies answer: (status, output, the sentence with which it ended, or None)."""
        environment = {name: value for name, value in os.environ.items() if name not in ("UNMASK_POLICIES", "UNMASK_TRIAL")}
        environment["UNMASK_PARENT"] = str(os.getpid())
        listener = None
        if self._by_name:
            name = f"{os.getpid()}-{next(self._calls)}.sock"
            listener = self._folder.listen(name)
            environment["UNMASK_POLICIES"] = os.path.join(self._folder.path, name)
        answer = Program(self._by_name, self._trials, self.named, Progress(command), command == "run").run(words, environment, listener)
        self._trials.end()
        return answer
