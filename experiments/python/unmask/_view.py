"""What a policy sees and answers: requests, the view of a scheduler, its batch, what happened, what is to come, the view of a
router, rows of a cache. Nothing is made of a question before a policy asks for it: requests are read out of the message as
they are looked at, columns are where they came."""

import collections
import collections.abc
import enum
import functools
import operator
import struct

_FIELDS = {"slot": "I", "queries": "I", "prompt_tokens": "I", "output_tokens": "I", "committed_tokens": "I", "block": "I",
           "block_length": "I", "masked_in_block": "I", "step_in_block": "I", "steps": "I", "preemptions": "I",
           "commit_tokens": "I", "tenant": "I", "priority": "I", "predicted_tokens": "I", "refresh_waits": "I",
           "load_running": "I", "load_waiting": "I", "phase": "I", "steps_to_change": "I", "overdue_steps": "I",
           "answer_tokens": "I", "cached_tokens": "I", "kv_rows": "I", "block_tokens": "I", "steps_per_block": "I",
           "causal": "I", "shifted": "I", "block_start": "I", "block_before": "I", "known_in_block": "I",
           "uncached_in_block": "I", "kept_in_block": "I", "passes_in_block": "I", "load_max_requests": "I",
           "load_max_batched_tokens": "I", "arrival_ns": "q", "kv_bytes": "q", "kv_held_bytes": "q", "id": "q",
           "deadline_ns": "q", "admitted_ns": "q", "first_token_ns": "q", "service_ns": "q", "service_tokens": "q",
           "load_ns": "q", "load_kv_free_bytes": "q", "load_kv_total_bytes": "q", "host_bytes": "q"}
REQUEST = struct.Struct("<" + "".join(_FIELDS.values()))
_OFFSETS = {name: struct.calcsize("<" + "".join(list(_FIELDS.values())[:n])) for n, name in enumerate(_FIELDS)}
_HEAD = struct.Struct("<12I9qd")
_HAPPENED = struct.Struct("<3q2IiI" + "".join(_FIELDS.values()))
_ROUTED = struct.Struct("<4I2q" + "".join(_FIELDS.values()))
_REPLICA = struct.Struct("<4I2q")
_ASKED = struct.Struct("<2I" + "".join(_FIELDS.values()))
_CACHED = struct.Struct("<3Ii" + "".join(_FIELDS.values()))
_ANSWER = struct.Struct("<12Iq")
_ROWS = struct.Struct("<27I")
_OUTLOOK, _PASS = struct.Struct("<4I2Q"), struct.Struct("<17I")
_ROUTES = struct.Struct("<2Iq")
_HOLDS = {"step": 0, "change": 1, "closed": 2}
_KINDS = "arrival", "start", "steps", "preemption", "end"
_STATES = "pending", "queued", "running", "done", "preempted", "rejected"
_NEVER = 2**63 - 1
_HELD = 2**32 - 1
ENOUGH = 2  # an answer that ends the trial
_ESTIMATE, _JOULES, _FORESEE, _SPANS, _REST = 1, 3, 4, 5, 6



class Phase(enum.IntEnum):
    """What the next step of a request is."""

    PREFILL, REFRESH, REUSE, COMMIT = range(4)


class Request(collections.namedtuple("Request", _FIELDS)):
    """A request as a policy sees it (sim/policy/request.h); `queries`: the tokens of its next step, whose `phase` is one of
    `Phase`, and which stays the same for `steps_to_change` steps. Times that have not come are -1, a deadline that it has not
    is 2**63 - 1. load_* are the load of its replica, for decoders and cache policies."""

    __slots__ = ()

    @property
    def canvas_tokens(self):
        """Prompt and output."""
        return self.prompt_tokens + self.output_tokens

    @property
    def block_end(self):
        """One past its block's last position."""
        return self.block_start + self.block_length

    def chunk(self, tokens):
        """Query tokens that it takes where `tokens` are left: all of its next step, or as much of a prefill as fits, in whole
        blocks; 0: nothing fits."""
        if self.queries <= tokens:
            return self.queries
        return tokens // self.block_tokens * self.block_tokens if self.phase == Phase.PREFILL else 0


_request = functools.partial(tuple.__new__, Request)

Happening = collections.namedtuple("Happening", "kind request state now_ns steps committed_tokens ns query_tokens")
Happening.__doc__ = f"""Something that happened between two decisions (sim/policy/scheduler/scheduler.h). `kind`: {', '.join(_KINDS)}; `request` and
its `state`, as they were at `now_ns`: {', '.join(_STATES)}. Of "steps": how many of them ended in which it took part, how long all
took (`ns`), and what they did for it."""

Span = collections.namedtuple("Span", "phase queries first_queries context logit_rows select_rows pack_rows value_rows exact "
                              "kept_queries kept_keys part_start sampled_rows lead_keys attended_keys")
Span.__doc__ = """A request's part of a step, as prices go by it (sim/step/shape.h)."""

Pass = collections.namedtuple("Pass", (*Span._fields, "steps", "block"))
Pass.__doc__ = """Like passes in a row, of those that a request has yet to take: a span, for how many `steps`, in which `block`."""

Outlook = collections.namedtuple("Outlook", "is_exact n_passes n_blocks to_refresh steps tokens passes")
Outlook.__doc__ = """A request from its next step to its end (sim/policy/scheduler/scheduler.h): `steps` and their query `tokens`
in all, `n_blocks` that are left, steps `to_refresh`, the next prefill or refresh (None: there is none). `passes` are the first
ones of `n_passes` runs of like passes. `is_exact`: or it is the expectation."""

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
    the host's memory, what steps would take and what is to come."""

    __slots__ = ("now_ns", "next_arrival_ns", "running_tokens", "running_growth_bytes", "kv_free_bytes", "kv_total_bytes",
                 "host_free_bytes", "host_total_bytes", "host_bandwidth", "max_batched_tokens", "max_requests", "n_slots",
                 "replica", "n_replicas", "seed", "threshold", "running", "waiting", "is_trial", "_line", "_reasons", "_most")

    def _ask(self, question):
        self._line.tell(question)
        return self._line.hear_number()

    def estimate_ns(self, batch):
        """How long a step with this batch would take."""
        return self._ask(batch._packed(_ESTIMATE))

    def estimate_joules(self, batch):
        """What its cards would draw during that step; 0 where the profile knows no power."""
        return struct.unpack("<d", struct.pack("<q", self._ask(batch._packed(_JOULES))))[0]

    def estimate_spans_ns(self, spans):
        """How long a step of these spans, or of passes that `foresee` told, would take; 0 for none."""
        numbers = [number for span in spans for number in span[:len(Span._fields)]]
        if len(numbers) > self._most * len(Span._fields):
            raise ValueError(f"estimate_spans_ns of {len(numbers) // len(Span._fields)} spans, of which at most {self._most} fit")
        return self._ask(_question(_SPANS, len(numbers)) + struct.pack(f"<{len(numbers)}I", *numbers))

    def foresee(self, request, most=64):
        """The passes to come of a running or waiting request, the first `most` runs of like ones: an `Outlook`."""
        self._line.tell(_question(_FORESEE, slot=request.slot, most=most))
        data = self._line.hear_question()
        is_exact, n_passes, n_blocks, to_refresh, steps, tokens = _OUTLOOK.unpack_from(data)
        passes = [Pass._make(one) for one in _PASS.iter_unpack(memoryview(data)[_OUTLOOK.size:])]
        return Outlook(bool(is_exact), n_passes, n_blocks, None if to_refresh == 2**32 - 1 else to_refresh, steps, tokens, passes)

    def rest_ns(self, request, most=64):
        """What is left of a request would take alone; passes after the first `most` runs as these on average."""
        return self._ask(_question(_REST, slot=request.slot, most=most))

    def __repr__(self):
        following = "" if self.next_arrival_ns == _NEVER else f", next arrival at {self.next_arrival_ns / 1e9:.6g} s"
        return (f"<View at {self.now_ns / 1e9:.6g} s: {len(self.running)} running ({self.running_tokens} of "
                f"{self.max_batched_tokens} tokens, at most {self.max_requests} requests), {len(self.waiting)} waiting, "
                f"{self.kv_free_bytes / 2**30:.3g} of {self.kv_total_bytes / 2**30:.3g} GiB KV free{following}"
                f"{', trial' if self.is_trial else ''}>")


def _question(kind, n=0, slot=0, most=0):
    return _ANSWER.pack(kind, 0, n, slot, 0, 0, 0, 0, 0, 0, most, 0, 0)


class Batch:
    """The answer. Requests that run and fit go on with `run` or `run_all`, waiting ones start with `admit`. What is still free
    is counted in free_tokens, free_kv_bytes, free_requests and free_host_bytes.

    `hold`: "step", ask again after this step; "change", the default, when a request's part of it changes, one ends or one
    arrives; "closed", as "change" but for arrivals. `loops`: ask again only after so many steps; `continues`: what asking costs
    the host was paid with the last batch."""

    def __init__(self, view):
        self._view = view
        self._all, self._listed, self._admitted = False, [], []
        self.free_tokens, self.free_kv_bytes = view.max_batched_tokens, view.kv_free_bytes
        self.free_requests, self.free_host_bytes = view.max_requests - len(view.running), view.host_free_bytes
        self.hold, self._wake_ns, self.loops, self.continues = "change", _NEVER, 0, False
        self._words, self._chunks, self._rejected, self._why = {}, {}, [], []
        self._preempted, self._swaps, self._idle = [], [], []

    def run_all(self):
        """Every running request takes part; False where their tokens, or the memory that they grow by, do not fit."""
        if self._view.running_tokens > self.free_tokens or self._view.running_growth_bytes > self.free_kv_bytes:
            return False
        self._all = True
        self.free_tokens -= self._view.running_tokens
        self.free_kv_bytes -= self._view.running_growth_bytes
        return True

    def _say(self, request, width, threshold, put_off):
        if width or threshold or put_off:
            self._words[request.slot] = int(width), round(1e6 * threshold), int(bool(put_off))

    def _list(self, requests, request, chunk_tokens):
        """Where a request's tokens fit it is listed among those."""
        tokens = chunk_tokens or request.queries
        growth = request.kv_bytes - request.kv_held_bytes
        if tokens > self.free_tokens or growth > self.free_kv_bytes:
            return False
        requests.append(request.slot)
        self.free_tokens -= tokens
        self.free_kv_bytes -= growth
        if 0 < chunk_tokens < request.queries:
            self._chunks[request.slot] = int(chunk_tokens)
        return True

    def run(self, request, width=0, threshold=0.0, put_off=False, chunk_tokens=0):
        """A running request takes part; False where its tokens, or the memory that it grows by, do not fit. `width`: positions
        of its next window, `threshold`: its decoder's, both 0: as configured; `put_off`: its next step, a refresh, waits, by its
        refresh_waits steps at most. `chunk_tokens`: so many tokens of its prefill alone, in whole blocks (`request.chunk`)."""
        if not self._list(self._listed, request, chunk_tokens):
            return False
        self._say(request, width, threshold, put_off)
        return True

    def admit(self, request, width=0, threshold=0.0, chunk_tokens=0):
        """A waiting request starts; False where it does not fit. Words as in `run`."""
        if self.free_requests <= 0 or not self._list(self._admitted, request, chunk_tokens):
            return False
        self._say(request, width, threshold, False)
        self.free_requests -= 1
        return True

    def preempt(self, request, swap=False):
        """A running request gives its memory back and waits again. `swap`: what it holds is copied to the host's memory, under
        any policy; False where that has no room. Else it is computed anew, which a policy that `grows` may ask for where keys
        and values are exact."""
        if swap and request.kv_held_bytes > self.free_host_bytes:
            return False
        self._preempted.append(request.slot)
        self._swaps.append(int(bool(swap)))
        self.free_host_bytes -= request.kv_held_bytes if swap else 0
        self.free_kv_bytes += request.kv_held_bytes
        self.free_requests += 1
        return True

    def idle(self, request):
        """A running request's next step is computed, and discarded; False where its tokens do not fit."""
        if request.queries > self.free_tokens:
            return False
        self._idle.append(request.slot)
        self.free_tokens -= request.queries
        return True

    def reject(self, request, reason=None):
        """A waiting request leaves. `reason`: one of the policy's `reject_reasons`, by default its first; a policy that names
        none rejects for the reason `scheduler`."""
        reasons = self._view._reasons
        if reason is not None and reason not in reasons:
            raise ValueError(f"reject: '{reason}' is none of the policy's reject_reasons, which are {', '.join(reasons) or 'none'}")
        self._rejected.append(request.slot)
        self._why.append(reasons.index(reason) if reason is not None else 0)

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
        numbers = slots + self._rejected + self._why + self._preempted + self._swaps + self._idle
        if len(numbers) > self._view._most:
            self._check_fits(slots)
        if self._words:
            words = [self._words.get(slot, (0, 0, 0)) for slot in slots]
            numbers += [word[k] for k in range(3) for word in words]
        if self._chunks:
            numbers += [self._chunks.get(slot, 0) for slot in slots]
        return _ANSWER.pack(
            kind, self._all, len(slots), len(self._admitted), hold, len(self._rejected), bool(self._words), bool(self._chunks),
            len(self._preempted), len(self._idle), self.loops, bool(self.continues), self._wake_ns) + (
            struct.pack(f"<{len(numbers)}I", *numbers) if numbers else b"")

    def _check_fits(self, slots):
        for what, listed in (("runs and admits", slots), ("rejects", self._rejected), ("preempts", self._preempted),
                             ("leaves idle", self._idle)):
            if len(listed) > self._view._most:
                raise ValueError(f"the batch {what} {len(listed)} requests, of which there are at most {self._view._most}")


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
     view.n_replicas, threshold, view._most, _, view.now_ns, view.next_arrival_ns, view.running_tokens,
     view.running_growth_bytes, view.kv_free_bytes, view.kv_total_bytes, view.host_free_bytes, view.host_total_bytes, view.seed,
     view.host_bandwidth) = _HEAD.unpack_from(data)
    view.threshold, view._line = threshold / 1e6, line
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


Asked = collections.namedtuple("Asked", "takes_back request offsets confidences margins entropies")
Asked.__doc__ = """What a decoder is asked; margins and entropies are None where it does not read them."""


def heard_confidences(line):
    data = line.hear_question()
    n, takes_back, *request = _ASKED.unpack_from(data)
    at, offsets, numbers = _ASKED.size, None, [None] * 3
    for i in range((len(data) - at) // (4 * n)):
        values = struct.unpack_from(f"<{n}{'If'[i > 0]}", data, at + 4 * n * i)
        if i == 0:
            offsets = values
        else:
            numbers[i - 1] = values
    return Asked(bool(takes_back), Request._make(request), offsets, *numbers)


_ROW_KINDS = "none", "kv", "features", "exact", "pattern"
_CHOOSERS = "nobody", "policy", "head", "heads", "change", "score"
_SETTLES = "whole", "delayed", "neighbour", "parts"
_OUTCOMES = None, "commit", "revise", "again"


class Rows:
    """The answer of a cache policy (sim/policy/rows.h): which positions of the canvas run, and which have a row in the cache
    afterwards. Ranges are pairs, (first, one past the last). The same in all answers: `kind` of rows (none, kv, features, exact,
    pattern), `chooser`, who chooses among positions in the middle of a step (nobody, policy, head, heads, change, score), when a
    position `settles` (whole, delayed, neighbour, parts), `evict_layer`, `lead_layers`, which run `lead`, and `recent`. `pattern`: with kind
    `pattern` its numbers in the header's order."""

    __slots__ = ("kind", "chooser", "settles", "evict_layer", "lead_layers", "recent", "run", "lead", "skips", "head", "keep",
                 "n_chosen", "held", "attends", "pattern")

    def __init__(self):
        self.kind, self.chooser, self.settles, self.evict_layer, self.recent = "kv", "nobody", "whole", 0, 0
        self.run, self.skips, self.head, self.keep = (0, 0), False, (0, 0), ()
        self.lead_layers, self.lead = 0, (0, 0)
        self.n_chosen, self.held, self.attends, self.pattern = 0, 0, 0, (0, 0, 0, 0, 0)

    def compute(self, first, end):
        """Positions from `first` to before `end` run, and go through the head."""
        self.run = self.head = first, end

    def _packed(self, n):
        keep = tuple(self.keep)
        if len(keep) > 2:
            raise ValueError(f"rows.keep has {len(keep)} ranges, expected at most two")
        codes = []
        for name, words in (("kind", _ROW_KINDS), ("chooser", _CHOOSERS), ("settles", _SETTLES)):
            if getattr(self, name) not in words:
                raise ValueError(f"rows.{name} is {getattr(self, name)!r}, expected one of {', '.join(words)}")
            codes.append(words.index(getattr(self, name)))
        keep = (*keep, (0, 0), (0, 0))[:2]
        return _ROWS.pack(0, operator.index(n), *codes, self.evict_layer, self.lead_layers, self.recent, *self.run, *self.lead, bool(self.skips), *self.head,
                          *keep[0], *keep[1], self.n_chosen, self.held, self.attends, *self.pattern)


Eviction = collections.namedtuple("Eviction", "request growth pending masked frontier")
Eviction.__doc__ = """A block before a step, position by position: `growth` of each masked one's importance, which are `pending`,
which are `masked`; `frontier`, the right-most one kept so far, -1: none (sim/policy/cache/cache.h)."""

Learned = collections.namedtuple("Learned", "n outcomes entropies")
Learned.__doc__ = """What a step committed: how many positions, and of each what came of it, None, commit, revise or again;
`entropies`, in nats, of those committed, None where the policy does not read them. With 0 of them the block begins."""


def heard_of_cache(line, memory_bytes):
    """(what a cache policy is asked, the request, what is remembered of it, what is shown besides)"""
    data = line.hear_question()
    asks, n, n_committed, frontier, *request = _CACHED.unpack_from(data)
    request, at = Request._make(request), _CACHED.size + memory_bytes
    memory, shown = bytearray(data[_CACHED.size:at]), None
    if asks == 2:
        shown = Eviction(request, struct.unpack_from(f"<{n}f", data, at), tuple(map(bool, data[at + 4 * n:at + 5 * n])),
                         tuple(map(bool, data[at + 5 * n:at + 6 * n])), frontier)
    elif asks == 3:
        entropies = struct.unpack_from(f"<{n}f", data, at) if frontier else None
        at += 4 * n if frontier else 0
        shown = Learned(n_committed, tuple(_OUTCOMES[code] for code in data[at:at + n]), entropies)
    return ("plan", "put_off", "evict", "learn")[asks], request, memory, shown


def packed_of_cache(data):
    """Flags of positions, or what is remembered from now on."""
    return struct.pack("<2I", 0, len(data)) + bytes(data)


def packed_enough_rows(n):
    """Of an answer of any kind, however long."""
    return _ROWS.pack(ENOUGH, *[0] * 26) + bytes(n)


def packed_enough():
    return _ANSWER.pack(ENOUGH, *[0] * 12)


def packed_heard():
    """What happened was heard."""
    return _ANSWER.pack(*[0] * 12, _NEVER)


def packed_enough_routes():
    return _ROUTES.pack(ENOUGH, 0, _NEVER)
