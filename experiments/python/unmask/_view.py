"""What a policy sees and answers: requests, the view of a scheduler, its batch, what happened, the view of a router. Nothing
is made of a question before a policy asks for it: requests are read out of the message as they are looked at, columns are
where they came."""

import collections
import collections.abc
import functools
import operator
import struct

_FIELDS = {"slot": "I", "queries": "I", "prompt_tokens": "I", "output_tokens": "I", "committed_tokens": "I", "block": "I",
           "block_length": "I", "masked_in_block": "I", "step_in_block": "I", "steps": "I", "preemptions": "I",
           "commit_tokens": "I", "tenant": "I", "priority": "I", "predicted_tokens": "I", "refresh_waits": "I",
           "load_running": "I", "load_waiting": "I", "arrival_ns": "q", "kv_bytes": "q", "kv_held_bytes": "q", "id": "q",
           "deadline_ns": "q", "admitted_ns": "q", "first_token_ns": "q", "service_ns": "q", "service_tokens": "q",
           "load_ns": "q", "load_kv_free_bytes": "q", "host_bytes": "q"}
REQUEST = struct.Struct("<" + "".join(_FIELDS.values()))
_OFFSETS = {name: struct.calcsize("<" + "".join(list(_FIELDS.values())[:n])) for n, name in enumerate(_FIELDS)}
_HEAD = struct.Struct("<10I8qd")
_HAPPENED = struct.Struct("<3q2IiI" + "".join(_FIELDS.values()))
_ROUTED = struct.Struct("<4I2q" + "".join(_FIELDS.values()))
_REPLICA = struct.Struct("<4I2q")
_ASKED = struct.Struct("<I4x" + "".join(_FIELDS.values()))
_ANSWER = struct.Struct("<8Iq")
_ROUTES = struct.Struct("<2Iq")
_HOLDS = {"step": 0, "change": 1, "closed": 2}
_KINDS = "arrival", "start", "steps", "preemption", "end"
_STATES = "pending", "queued", "running", "done", "preempted", "rejected"
_NEVER = 2**63 - 1
_HELD = 2**32 - 1
ENOUGH = 2  # an answer that ends the trial

Request = collections.namedtuple("Request", _FIELDS)
Request.__doc__ = """A request as a policy sees it (sim/policy/request.h); `queries`: the tokens of its next step. Times that have
not come are -1, a deadline that it has not is 2**63 - 1. load_* are the load of its replica, for decoders; host_bytes lie in
the host's memory while it waits after `swap_out`."""
_request = functools.partial(tuple.__new__, Request)

Happening = collections.namedtuple("Happening", "kind request state now_ns steps committed_tokens ns query_tokens")
Happening.__doc__ = f"""Something that happened between two decisions (sim/policy/scheduler/scheduler.h). `kind`: {', '.join(_KINDS)}; `request` and
its `state`, as they were at `now_ns`: {', '.join(_STATES)}. Of "steps": how many of them ended in which it took part, how long all
took (`ns`), and what they did for it."""

Replica = collections.namedtuple(
    "Replica", "n_running n_waiting n_whole shared_tokens kv_free_bytes outstanding_tokens waiting")
Replica.__doc__ = """A replica as a router sees it (sim/policy/router/router.h); `waiting`: the requests that wait there."""


def _numpy():
    """numpy, or None; it is looked for once."""
    if not _numpy.is_known:
        try:
            import numpy

            _numpy.module, _numpy.rows = numpy, numpy.dtype({
                "names": list(_FIELDS), "formats": ["<" + {"I": "u4", "q": "i8"}[kind] for kind in _FIELDS.values()]})
        except ImportError:
            pass
        _numpy.is_known = True
    return _numpy.module


_numpy.is_known, _numpy.module, _numpy.rows = False, None, None


class Requests(collections.abc.MutableSequence):
    """Requests in their order, a list for all that a policy does with it; each is made when it is looked at.
    `column(name)` is one field of all of them as they were asked about: an array of numpy, where numpy is there, else a
    memoryview. Both read the question's own memory, which nobody changes, for as long as they are kept."""

    __slots__ = ("_data", "_offset", "_n", "_list", "_is_read")
    __hash__ = None

    def __init__(self, data, offset, n):
        self._data, self._offset, self._n, self._list, self._is_read = data, offset, n, None, False

    def column(self, name):
        """One field of all requests, as an array."""
        if name not in _FIELDS:
            raise AttributeError(f"a request has no '{name}'; it has {', '.join(_FIELDS)}")
        numpy = _numpy()
        if numpy is not None:
            return numpy.frombuffer(self._data, _numpy.rows, self._n, self._offset)[name] if self._n else numpy.empty(
                0, _numpy.rows[name])
        kind, size = _FIELDS[name], struct.calcsize(_FIELDS[name])
        start = (self._offset + _OFFSETS[name]) // size
        stride = REQUEST.size // size
        return memoryview(self._data).cast(kind)[start:start + stride * self._n:stride]

    def _made(self):
        """All of them; from now on this is what counts."""
        if self._list is None:
            self._list = list(self._unread())
        return self._list

    def _unread(self):
        part = memoryview(self._data)[self._offset:self._offset + self._n * REQUEST.size]
        return map(_request, REQUEST.iter_unpack(part))

    def __len__(self):
        return self._n if self._list is None else len(self._list)

    def __iter__(self):
        if self._list is not None or self._is_read:  # whoever comes back has them made once
            return iter(self._made())
        self._is_read = True
        return self._unread()

    def _one(self, i):
        return _request(REQUEST.unpack_from(self._data, self._offset + i * REQUEST.size))

    def __getitem__(self, i):
        if self._list is None and isinstance(i, slice):
            return [self._one(k) for k in range(*i.indices(self._n))]
        if self._list is None:
            i = i.__index__()
            if -self._n <= i < self._n:
                return self._one(i if i >= 0 else i + self._n)
            raise IndexError("list index out of range")
        return self._list[i]

    def __setitem__(self, i, value):
        self._made()[i] = value

    def __delitem__(self, i):
        del self._made()[i]

    def insert(self, i, value):
        self._made().insert(i, value)

    def sort(self, *, key=None, reverse=False):
        self._made().sort(key=key, reverse=reverse)

    def copy(self):
        return list(self)

    def __contains__(self, value):
        return value in self._made()

    def __eq__(self, other):
        return self._made() == (other._made() if isinstance(other, Requests) else other)

    def __add__(self, other):
        return self._made() + list(other)

    def __radd__(self, other):
        return list(other) + self._made()

    def __mul__(self, n):
        return self._made() * n

    def __reversed__(self):
        return reversed(self._made())

    def __reduce__(self):
        return list, (self._made(),)

    def __repr__(self):
        n = len(self)
        return f"[{', '.join(map(repr, self[:3]))}{f', ... {n - 3} more' if n > 3 else ''}]"


class View:
    """What a scheduler sees (sim/policy/scheduler/scheduler.h): `now_ns`, `running` and `waiting` requests, limits of one step,
    and the host's memory, whose total is 0 where there is none; its bandwidth is in bytes a second."""

    __slots__ = ("now_ns", "next_arrival_ns", "running_tokens", "kv_free_bytes", "kv_total_bytes", "max_batched_tokens",
                 "max_requests", "n_slots", "replica", "n_replicas", "seed", "host_free_bytes", "host_total_bytes",
                 "host_bandwidth", "running", "waiting", "is_trial", "_estimate", "_reasons")

    def estimate_ns(self, batch):
        """How long a step with this batch would take."""
        return self._estimate(batch)

    def __repr__(self):
        following = "" if self.next_arrival_ns == _NEVER else f", next arrival at {self.next_arrival_ns / 1e9:.6g} s"
        return (f"<View at {self.now_ns / 1e9:.6g} s: {len(self.running)} running ({self.running_tokens} of "
                f"{self.max_batched_tokens} tokens, at most {self.max_requests} requests), {len(self.waiting)} waiting, "
                f"{self.kv_free_bytes / 2**30:.3g} of {self.kv_total_bytes / 2**30:.3g} GiB KV free{following}"
                f"{', trial' if self.is_trial else ''}>")


class Batch:
    """The answer. Requests that run and fit go on with `run` or `run_all`, waiting ones start with `admit`."""

    def __init__(self, view):
        self._view = view
        self._all, self._listed, self._admitted = False, [], []
        self.free_tokens, self.free_kv_bytes = view.max_batched_tokens, view.kv_free_bytes
        self.free_requests = view.max_requests - len(view.running)
        self.free_host_bytes = view.host_free_bytes
        self.hold, self._wake_ns = "change", _NEVER
        self._words, self._rejected, self._why, self._swapped = {}, [], [], []

    def run_all(self):
        """Every running request takes part; False where their tokens do not fit."""
        if self._view.running_tokens > self.free_tokens:
            return False
        self._all = True
        self.free_tokens -= self._view.running_tokens
        return True

    def _say(self, request, width, threshold, put_off):
        if width or threshold or put_off:
            self._words[request.slot] = int(width), round(1e6 * threshold), int(bool(put_off))

    def run(self, request, width=0, threshold=0.0, put_off=False):
        """A running request takes part; False where its tokens do not fit. `width`: positions of its next window, `threshold`:
        its decoder's, both 0: as configured; `put_off`: its next step, a refresh, waits, by its refresh_waits steps at most."""
        if request.queries > self.free_tokens:
            return False
        self._listed.append(request.slot)
        self._say(request, width, threshold, put_off)
        self.free_tokens -= request.queries
        return True

    def admit(self, request, width=0, threshold=0.0):
        """A waiting request starts; False where it does not fit. Words as in `run`."""
        if request.queries > self.free_tokens or request.kv_bytes > self.free_kv_bytes or self.free_requests == 0:
            return False
        self._admitted.append(request.slot)
        self._say(request, width, threshold, False)
        self.free_tokens -= request.queries
        self.free_kv_bytes -= request.kv_bytes
        self.free_requests -= 1
        return True

    def reject(self, request, reason=None):
        """A waiting request leaves. `reason`: one of the policy's `reject_reasons`, by default its first; a policy that names
        none rejects for the reason `scheduler`."""
        reasons = self._view._reasons
        if reason is not None and reason not in reasons:
            raise ValueError(f"reject: '{reason}' is none of the policy's reject_reasons, which are {', '.join(reasons) or 'none'}")
        self._rejected.append(request.slot)
        self._why.append(reasons.index(reason) if reason is not None else 0)

    def swap_out(self, request):
        """A running request goes to the host's memory and waits at the head of the queue; False where that lacks room. Admitted
        again it goes on where it was. Another one takes part in the step, and `run_all` is not said with it."""
        if request.kv_held_bytes > self.free_host_bytes or self._view.host_total_bytes == 0:
            return False
        self._swapped.append(request.slot)
        self.free_host_bytes -= request.kv_held_bytes
        self.free_kv_bytes += request.kv_held_bytes
        self.free_requests += 1
        return True

    def wait_until(self, ns):
        """Ask again then, whatever `hold` says: where something takes part, after the step that is under way."""
        self._wake_ns = int(ns)

    def __repr__(self):
        runs = f"all {len(self._view.running)}" if self._all else str(len(self._listed))
        waits = "" if self._wake_ns == _NEVER else f", until {self._wake_ns / 1e9:.6g} s"
        return (f"<Batch: {runs} running, {len(self._admitted)} admitted, free: {self.free_tokens} tokens, "
                f"{self.free_kv_bytes / 2**30:.3g} GiB KV, {self.free_requests} requests, hold {self.hold!r}{waits}>")

    def _packed(self, kind):
        slots = self._listed + self._admitted
        hold = _HOLDS.get(self.hold)
        if hold is None:
            raise ValueError(f"hold is {self.hold!r}, expected one of {', '.join(_HOLDS)}")
        words = [self._words.get(slot, (0, 0, 0)) for slot in slots] if self._words else []
        numbers = slots + self._rejected + self._why + self._swapped + [word[k] for k in range(3) for word in words]
        return _ANSWER.pack(kind, self._all, len(slots), len(self._admitted), hold, len(self._rejected), bool(words),
                            len(self._swapped), self._wake_ns) + (struct.pack(f"<{len(numbers)}I", *numbers) if numbers else b"")


class RouterView:
    """What a router sees (sim/policy/router/router.h): `now_ns`, `replicas`, and how many requests are held back, `n_held`."""

    __slots__ = ("now_ns", "seed", "n_held", "replicas", "is_trial", "_capacity")

    def hold(self, until_ns=None):
        """An answer of `route`: the request is held back, and asked about again once a step has ended or a request has left
        somewhere, and at `until_ns`."""
        return Hold(_NEVER if until_ns is None else int(until_ns))

    def __repr__(self):
        return f"<RouterView at {self.now_ns / 1e9:.6g} s: {len(self.replicas)} replicas, {self.n_held} requests held back>"


class Hold(int):
    """Until when a request is held back at most, in ns."""


def heard_view(line):
    """(the view, or None where nothing is to be decided, and what happened) of the question that comes on a line."""
    data = line.hear_question()
    view = View()
    (decides, n_happened, view.max_batched_tokens, view.max_requests, n_running, n_waiting, view.n_slots, view.replica,
     view.n_replicas, _, view.now_ns, view.next_arrival_ns, view.running_tokens, view.kv_free_bytes, view.kv_total_bytes,
     view.seed, view.host_free_bytes, view.host_total_bytes, view.host_bandwidth) = _HEAD.unpack_from(data)
    end = _HEAD.size + REQUEST.size * (n_running + n_waiting)
    view.running = Requests(data, _HEAD.size, n_running)
    view.waiting = Requests(data, _HEAD.size + REQUEST.size * n_running, n_waiting)
    view.is_trial = line.is_trial
    happened = [
        Happening(_KINDS[kind], _request(request), _STATES[state], now_ns, steps, committed, ns, queries)
        for now_ns, ns, queries, kind, steps, committed, state, *request in _HAPPENED.iter_unpack(
            memoryview(data)[end:end + _HAPPENED.size * n_happened])]
    return view if decides else None, happened


def heard_route(line):
    """(the request that a router is asked about, or None where it is asked what moves; its view) of a question."""
    data = line.hear_question()
    view = RouterView()
    moves, n, view.n_held, view._capacity, view.now_ns, view.seed, *request = _ROUTED.unpack_from(data)
    at, view.replicas, view.is_trial = _ROUTED.size + _REPLICA.size * n, [], line.is_trial
    for i in range(n):
        counts = _REPLICA.unpack_from(data, _ROUTED.size + _REPLICA.size * i)
        view.replicas.append(Replica(*counts, Requests(data, at, counts[1])))
        at += REQUEST.size * counts[1]
    return None if moves else _request(request), view


def packed_route(chosen, n):
    """`chosen`: a replica of n, or a Hold."""
    if isinstance(chosen, Hold):
        return _ROUTES.pack(0, _HELD, chosen)
    replica = operator.index(chosen)
    if not 0 <= replica < n:
        raise ValueError(f"route answered {replica}, expected a replica from 0 to {n - 1}, or view.hold()")
    return _ROUTES.pack(0, replica, _NEVER)


def packed_moves(moves, view):
    """`moves`: pairs of a waiting request and the replica to which it goes."""
    pairs = [(request.slot, operator.index(to)) for request, to in moves]
    if len(pairs) > view._capacity:
        raise ValueError(f"move answered {len(pairs)} moves, of which at most {view._capacity} fit")
    if any(not 0 <= to < len(view.replicas) for _, to in pairs):
        raise ValueError(f"move answered a replica that is none from 0 to {len(view.replicas) - 1}")
    return _ROUTES.pack(0, len(pairs), _NEVER) + struct.pack(f"<{2 * len(pairs)}I", *(n for pair in pairs for n in pair))


def heard_confidences(line):
    """What a decoder is asked on a line: the request, offsets and confidences."""
    data = line.hear_question()
    n, *request = _ASKED.unpack_from(data)
    return (Request._make(request), struct.unpack_from(f"<{n}I", data, _ASKED.size),
            struct.unpack_from(f"<{n}f", data, _ASKED.size + 4 * n))


def packed_enough():
    return _ANSWER.pack(ENOUGH, 0, 0, 0, 0, 0, 0, 0, 0)


def packed_heard():
    """What happened was heard."""
    return _ANSWER.pack(0, 0, 0, 0, 0, 0, 0, 0, _NEVER)


def packed_enough_routes():
    return _ROUTES.pack(ENOUGH, 0, _NEVER)
