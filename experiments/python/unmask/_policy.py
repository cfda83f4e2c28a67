"""Policies in Python. The program runs beside this process and loads a small shared object for each policy, which asks
over pipes; the thread that called answers. Good for prototypes: a decision costs some tens of microseconds here."""

import hashlib
import itertools
import os
import pathlib
import re
import secrets
import time

from unmask._digest import digest
from unmask._errors import file_of
from unmask._folder import Folder
from unmask._process import Program, now, warn
from unmask._progress import Progress
from unmask._view import ENOUGH, Batch, heard_confidences, heard_view, packed_enough

_NAME, _NAME_BYTES = b"UNMASK-NAME-OF-THE-POLICY", 128  # where shim.c has the policy's name
_HERE = pathlib.Path(__file__).resolve().parent
_BUILD = _HERE.parents[2] / "build"
# Installed they are beside this file; in a clone they are what `make` has built there.
PROGRAM, _SHIMS = next(((program, shims) for program, shims in ((_HERE / "bin/unmask", _HERE / "lib"), (
    _BUILD / "unmask", _BUILD / "python")) if program.exists() and shims.exists()), (_HERE / "bin/unmask", _HERE / "lib"))


class _Asked:
    """What all policies have."""

    @property
    def is_trial(self):
        """Whether the question is of the trial before a run, of which nothing should be learned."""
        return getattr(now, "is_trial", False)


class Scheduler(_Asked):
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
    """

    _shim, _decides = "scheduler.so", "schedule"

    def schedule(self, view, batch):
        raise NotImplementedError

    def _answer(self, line):
        view = heard_view(line)
        if line.is_enough:
            return line.tell(packed_enough())

        def estimate(batch):
            line.tell(batch._packed(1))
            return line.hear_number()

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

    _shim, _decides = "decoder.so", "choose"

    def choose(self, request, offsets, confidences):
        raise NotImplementedError

    def _answer(self, line):
        request, offsets, confidences = heard_confidences(line)
        n = len(offsets)
        if line.is_enough:
            return line.tell(bytes([ENOUGH]) * n)
        commit = bytes(1 if c else 0 for c in self.choose(request, offsets, confidences))
        if len(commit) != n or not any(commit):
            raise ValueError(f"{type(self).__name__}.choose answered {len(commit)} flags, {sum(commit)} of them set, for "
                             f"{n} positions; one each, and at least one set, is needed")
        return line.tell(commit)


def _known_as(policy):
    """A policy's class, and where it decides."""
    code = getattr(getattr(type(policy), policy._decides, None), "__code__", None)
    where = f" ({file_of(code)}:{code.co_firstlineno})" if code is not None else ""
    return type(policy).__name__ + where


def _named_shim(shim, name):
    content = (_SHIMS / shim).read_bytes()
    at = content.index(_NAME)
    return content[:at] + name.encode().ljust(_NAME_BYTES, b"\0") + content[at + _NAME_BYTES:]


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
        first = name = f"{re.sub('[^A-Za-z0-9_]', '_', type(policy).__name__)[:48]}-{made_of[:16]}"
        for n in itertools.count(2):
            if name + ".so" not in self._by_name:
                break
            name = f"{first}-{n}"
        name += ".so"
        self._place().write(name, _named_shim(policy._shim, name) + f"{name} {made_of}".encode())
        self._by_name[name] = policy
        self._paths[id(policy)] = os.path.join(self._folder.path, name)
        self.names[self._paths[id(policy)]] = _known_as(policy)
        return self._paths[id(policy)]

    def _place(self):
        if self._folder is None:
            self._folder = Folder()
        return self._folder

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
