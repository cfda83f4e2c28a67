"""Tests of what policies see and what people see: views, columns, trials, progress, signatures: `make wheel-test`."""

import copy
import inspect
import os
import pickle
import pty
import re
import struct
import subprocess
import sys
import textwrap
import unittest
import unittest.mock
import warnings

import unmask
from unmask import _view
from unmask._view import REQUEST, Batch, Request, Requests, View

BASE = dict(gpu="l40s", system="dllm-serve", workload="burst", rate=0.5, requests=12)
ROWS = [Request(*range(i, i + len(Request._fields))) for i in range(0, 500, 10)]


def requests(n=50, offset=3):
    return Requests(b"".join(REQUEST.pack(*row) for row in ROWS), REQUEST.size * offset, n - offset), ROWS[offset:n]


def setUpModule():
    unmask._policy._Trials.LIMIT_S = 0.05


class InOrder(unmask.Scheduler):
    def schedule(self, view, batch):
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        for request in view.waiting:
            if not batch.admit(request):
                break


class Keeps(InOrder):
    """Keeps views and columns, and looks at them when it is over."""

    def __init__(self):
        self.kept = []

    def schedule(self, view, batch):
        if not view.is_trial:
            self.kept.append((view, view.waiting.column("id"), [r.id for r in view.waiting], [r.steps for r in view.running]))
        super().schedule(view, batch)


class Shortest(InOrder):
    """The same by lists and by columns."""

    def __init__(self, by_column):
        self.by_column = by_column

    def schedule(self, view, batch):
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        waiting = view.waiting
        if self.by_column:
            order = sorted(range(len(waiting)), key=list(waiting.column("prompt_tokens")).__getitem__)
            waiting = [waiting[i] for i in order]
        for request in sorted(waiting, key=lambda r: r.prompt_tokens):
            batch.admit(request)


class Views(unittest.TestCase):
    def test_requests_are_a_list(self):
        for n in (50, 3, 4):
            for use in (list, len, bool, sorted, set, tuple, repr, max if n > 3 else len, lambda r: r[:2], lambda r: r[::-2],
                        lambda r: [r[i] for i in range(-len(r), len(r))], lambda r: list(reversed(r)), lambda r: r + [1],
                        lambda r: [1] + list(r), lambda r: ROWS[5] in r, lambda r: r.count(ROWS[5]), lambda r: [*r, *r],
                        lambda r: list(zip(r, r)), lambda r: r == list(r), lambda r: r * 2, lambda r: r.copy(),
                        lambda r: r.sort(key=lambda one: -one.id) or list(r), lambda r: r.pop() if r else 0,
                        lambda r: r.insert(0, 1) or r.append(2) or r.extend([3]) or list(r), lambda r: r.clear() or list(r),
                        lambda r: [*filter(None, r), *map(id, [])], lambda r: list(copy.deepcopy(r)),
                        lambda r: list(pickle.loads(pickle.dumps(r))), lambda r: r.__setitem__(slice(0, 1), []) or list(r)):
                lazy, made = requests(n)
                self.assertEqual(use(lazy), use(list(made)) if use is not repr else repr(lazy), inspect.getsource(use)
                                 if inspect.isfunction(use) else use)
        lazy, made = requests()
        self.assertEqual([1] + lazy, [1] + made)
        self.assertEqual(made, lazy)
        for i in (47, -48):
            with self.assertRaises(IndexError):
                lazy[i]
        with self.assertRaises(TypeError):
            lazy["id"]
        self.assertEqual(len(set(lazy) - set(made[1:])), 1)
        self.assertIsInstance(lazy[0], Request)

    def test_columns_are_where_they_came(self):
        before = _view._numpy()
        for module in (before, None):
            _view._numpy.module = module
            try:
                for n in (50, 3):
                    lazy, made = requests(n)
                    for name in Request._fields:
                        self.assertEqual(list(lazy.column(name)), [getattr(one, name) for one in made], name)
                if module is not None:
                    self.assertFalse(requests()[0].column("id").flags.owndata)
                    self.assertFalse(requests()[0].column("id").flags.writeable)
                with self.assertRaisesRegex(AttributeError, "no 'tokens'; it has slot"):
                    requests()[0].column("tokens")
            finally:
                _view._numpy.module = before

    def test_fields_are_what_they_say(self):
        rows = [(0, 100, 64), (0.05, 200, 32), (0.1, 300, 128), (9, 50, 40)]  # the last arrives alone
        frame = [dict(zip("tpo", row)) for row in rows]
        views = []

        class Sees(InOrder):
            def schedule(self, view, batch):
                super().schedule(view, batch)
                if not view.is_trial:
                    views.append((view, batch))

        unmask.run(gpu="l40s", system="dllm-serve", scheduler=Sees(), set={"max_requests": 2}, workload=unmask.Trace.from_df(
            {name: [row[name] for row in frame] for name in "tpo"}, time="t", input="p", output="o"))
        self.assertGreater(len(views), 20)
        arrivals, last_ns = [round(row[0] * 1e9) for row in rows], 0
        self.assertEqual({r.id for view, _ in views for r in view.waiting}, {0, 1, 2, 3})
        self.assertEqual({r.id for view, _ in views for r in view.running}, {0, 1, 2, 3})
        for view, batch in views:
            running, everyone = list(view.running), [*view.running, *view.waiting]
            later = [ns for ns in arrivals if ns > view.now_ns]
            self.assertEqual(view.next_arrival_ns, min(later, default=2**63 - 1))
            self.assertLessEqual(last_ns, view.now_ns)
            last_ns = view.now_ns
            self.assertLessEqual({r.id for r in everyone}, {i for i, ns in enumerate(arrivals) if ns <= view.now_ns})
            self.assertEqual(len({r.slot for r in everyone}), len(everyone))
            self.assertEqual((len({r.id for r in everyone}), view.max_requests), (len(everyone), 2))
            self.assertEqual(view.running_tokens, sum(r.queries for r in running))
            self.assertEqual(view.kv_total_bytes, view.kv_free_bytes + sum(r.kv_held_bytes for r in running))
            for r in everyone:
                arrival, prompt, output = rows[r.id]
                self.assertEqual((r.arrival_ns, r.prompt_tokens, r.output_tokens), (round(arrival * 1e9), prompt, output))
                self.assertEqual((r.block, r.preemptions, r.commit_tokens), (r.committed_tokens // 32, 0, 1))
                self.assertEqual(r.block_length, min(32, output - 32 * r.block))  # LLaDA's blocks, a token a step
                self.assertEqual(r.masked_in_block, r.block_length - r.committed_tokens % 32)
                self.assertEqual((r.steps, r.step_in_block), (r.committed_tokens, r.committed_tokens % 32))
                self.assertIn(r.queries, (prompt + output, r.block_length))
            for r in view.waiting:
                self.assertEqual((r.steps, r.kv_held_bytes, r.queries), (0, 0, r.prompt_tokens + r.output_tokens))
            for r in running:
                self.assertEqual(r.kv_held_bytes, r.kv_bytes)
            taken = [*running, *(r for r in view.waiting if r.slot in batch._admitted)]
            self.assertEqual(batch.free_tokens, view.max_batched_tokens - sum(r.queries for r in taken))
            self.assertEqual(batch.free_requests, 2 - len(taken))
            self.assertEqual(batch.free_kv_bytes, view.kv_free_bytes - sum(r.kv_bytes for r in taken[len(running):]))
        self.assertEqual(min(len(view.running) for view, _ in views[:20]), 0)
        self.assertEqual(max(len(view.running) for view, _ in views), 2)

    def test_a_batch_takes_what_fits(self):
        view = View()
        view.max_batched_tokens, view.kv_free_bytes, view.max_requests, view.running_tokens = 100, 1000, 3, 40
        view.running_growth_bytes, view.host_free_bytes = 0, 50
        view.running = [ROWS[0]]
        request = ROWS[0]._replace(kv_bytes=0, kv_held_bytes=0, block_tokens=32)._replace
        batch = Batch(view)
        for queries, kv_bytes, fits in ((101, 0, False), (1, 1001, False), (30, 1000, True), (70, 1, False), (71, 0, False),
                                        (70, 0, True), (0, 0, False)):
            self.assertEqual(batch.admit(request(queries=queries, kv_bytes=kv_bytes)), fits, (queries, kv_bytes))
        self.assertEqual((batch.free_tokens, batch.free_kv_bytes, batch.free_requests), (0, 0, 0))
        self.assertFalse(batch.run(request(queries=1)))
        self.assertTrue(batch.run(request(queries=0)))
        self.assertFalse(batch.run_all())
        for running_tokens, fits in ((100, True), (101, False)):
            view.running_tokens, batch = running_tokens, Batch(view)
            self.assertEqual((batch.run_all(), batch.free_tokens), (fits, 0 if fits else 100))
        for growth, fits in ((1000, True), (1001, False)):
            view.running_tokens, view.running_growth_bytes, batch = 0, growth, Batch(view)
            self.assertEqual((batch.run_all(), batch.free_kv_bytes), (fits, 0 if fits else 1000))
        batch = Batch(view)
        self.assertFalse(batch.run(request(queries=1, kv_bytes=1500, kv_held_bytes=499)))
        self.assertTrue(batch.run(request(queries=1, kv_bytes=1500, kv_held_bytes=500)))
        for held, swap, fits, left in ((51, True, False, (0, 50, 2)), (50, True, True, (50, 0, 3)), (1, True, False, (50, 0, 3)),
                                       (70, False, True, (120, 0, 4))):
            self.assertEqual(batch.preempt(request(kv_held_bytes=held), swap=swap), fits)
            self.assertEqual((batch.free_kv_bytes, batch.free_host_bytes, batch.free_requests), left)
        self.assertFalse(batch.idle(request(queries=100)))
        self.assertTrue(batch.idle(request(queries=99)))
        self.assertEqual(batch.free_tokens, 0)

    def test_a_prefill_is_cut_to_whole_blocks(self):
        view = View()
        view.max_batched_tokens, view.kv_free_bytes, view.max_requests, view.running = 100, 0, 9, []
        view.running_growth_bytes = view.host_free_bytes = 0
        view._most = 8
        request = ROWS[0]._replace(kv_bytes=0, kv_held_bytes=0, block_tokens=32, queries=120, phase=unmask.Phase.PREFILL)
        self.assertEqual([request.chunk(n) for n in (31, 32, 95, 119, 120)], [0, 32, 64, 96, 120])
        self.assertEqual([request._replace(phase=unmask.Phase.REFRESH).chunk(n) for n in (119, 120)], [0, 120])
        batch = Batch(view)
        self.assertFalse(batch.run(request))
        self.assertTrue(batch.run(request, chunk_tokens=request.chunk(batch.free_tokens)))
        self.assertTrue(batch.admit(request._replace(slot=7, queries=4)))
        self.assertEqual(batch.free_tokens, 0)
        head = _view._ANSWER.size
        self.assertEqual(struct.unpack("<4I", batch._packed(0)[head:]), (0, 7, 96, 0))

    def test_a_batch_of_more_requests_than_there_are_is_refused(self):
        view = View()
        view.max_batched_tokens = view.max_requests = view.kv_free_bytes = view.host_free_bytes = 100
        view.running, view._most, view._reasons = [], 2, ()
        request = ROWS[0]._replace(queries=1, kv_bytes=0, kv_held_bytes=0)
        for what, do in (("runs and admits", Batch.run), ("rejects", Batch.reject), ("preempts", Batch.preempt),
                         ("leaves idle", Batch.idle)):
            batch = Batch(view)
            for n in range(3):
                batch._packed(0)
                do(batch, request)
            with self.assertRaisesRegex(ValueError, f"the batch {what} 3 requests, of which there are at most 2"):
                batch._packed(0)

    def test_what_is_kept_stays_as_it_was(self):
        policy = Keeps()
        unmask.run(**BASE, scheduler=policy)
        self.assertGreater(len(policy.kept), 12)
        for view, column, ids, steps in policy.kept:
            self.assertEqual((list(column), [r.id for r in view.waiting], [r.steps for r in view.running]), (ids, ids, steps))

    def test_a_column_says_what_requests_say(self):
        options = dict(BASE, rate=20, set={"max_requests": 2})
        by_list, by_column = (unmask.run(**options, scheduler=Shortest(by)) for by in (False, True))
        self.assertEqual(by_list["latency_s"], by_column["latency_s"])
        self.assertNotEqual(by_list["latency_s"]["p50"], unmask.run(**options)["latency_s"]["p50"])

    def test_nothing_is_made_that_nobody_asks_for(self):
        lazy, made = requests()
        iterator = iter(lazy)
        self.assertEqual((next(iterator), lazy[5], lazy._list), (made[0], made[5], None))

    def test_views_and_batches_say_what_they_are(self):
        seen = []

        class Says(InOrder):
            def schedule(self, view, batch):
                super().schedule(view, batch)
                seen.append((repr(view), repr(batch), repr(view.waiting), view.is_trial))

        unmask.run(**BASE, scheduler=Says())
        view, batch, waiting, is_trial = seen[-1]
        self.assertRegex(view, r"<View at [\d.]+ s: \d+ running \(\d+ of \d+ tokens, at most \d+ requests\), \d+ waiting, ")
        self.assertRegex(batch, r"<Batch: (all )?\d+ running, \d+ admitted, free: \d+ tokens, ")
        self.assertEqual({", trial" in view for view, *_, is_trial in seen if is_trial}, {True})
        self.assertIn("... 44 more]", repr(requests()[0]))

    def test_a_policy_sees_deadlines_and_service_rejects_and_says_words(self):
        seen = []

        class Strict(unmask.Scheduler):
            def schedule(self, view, batch):
                for request in view.running:
                    batch.run(request, width=0 if view.is_trial else 16, put_off=request.refresh_waits > 0)
                for request in view.waiting:
                    if view.now_ns >= request.deadline_ns:
                        batch.reject(request)
                    elif not batch.admit(request):
                        break
                batch.wait_until(view.now_ns + 1_000_000)
                if not view.is_trial:
                    seen.extend([(view.seed, view.n_slots, view.replica, r) for r in (*view.running, *view.waiting)])

        result = unmask.run(**dict(BASE, rate=20, seed=7), scheduler=Strict(), set={
            "cache": "dual", "cache.interval_steps": 4, "max_requests": 2, "workload.deadline": "fixed",
            "workload.deadline.time": "5s", "workload.priority": "fixed", "workload.priority.value": 3,
            "workload.predicted": "exact", "workload.tenant": "uniform", "workload.tenant.count": 2})
        self.assertEqual({row[:1] + row[2:3] for row in seen}, {(7, 0)})
        self.assertGreater(result["rejected"], 0)
        self.assertEqual(result["rejected_by_reason"]["scheduler"], result["rejected"])
        requests = [row[3] for row in seen]
        self.assertEqual({(r.deadline_ns - r.arrival_ns, r.priority) for r in requests}, {(5_000_000_000, 3)})
        self.assertEqual({r.tenant for r in requests}, {0, 1})
        self.assertTrue(all(r.predicted_tokens == r.output_tokens for r in requests))
        self.assertTrue(all((r.admitted_ns >= 0) == (r.service_ns > 0) == (r.service_tokens > 0) for r in requests))
        self.assertTrue(all((r.first_token_ns >= 0) == (r.block > 0) for r in requests))
        self.assertLessEqual({r.block_length for r in requests if r.block > 0}, set(range(1, 17)))
        self.assertTrue(any(r.refresh_waits > 0 for r in requests))

    def test_a_decoder_sees_load(self):
        loads = set()

        class Sees(unmask.Decoder):
            def choose(self, request, offsets, confidences):
                if not self.is_trial:
                    loads.add((request.load_running, request.load_ns > 0, request.load_kv_free_bytes > 0))
                return [c >= max(confidences) for c in confidences]

        unmask.run(**dict(BASE, rate=20), decoder=Sees(), set={"max_requests": 2})
        self.assertEqual(loads, {(1, True, True), (2, True, True)} | (loads & {(1, False, True)}))

    def test_a_hold_that_is_none_is_refused(self):
        view = View()
        view.max_batched_tokens = view.kv_free_bytes = view.max_requests = view.host_free_bytes = 0
        view.running = []
        batch = Batch(view)
        batch.hold = "forever"
        with self.assertRaisesRegex(ValueError, "hold is 'forever', expected one of step, change, closed"):
            batch._packed(0)


class Trial(unittest.TestCase):
    def test_a_policy_is_tried_once_for_what_it_is(self):
        class Counts(InOrder):
            def __init__(self, most=None):
                self.n, self.most = [0, 0], most

            def __deepcopy__(self, _):  # its copies count together
                return self

            def schedule(self, view, batch):
                self.n[view.is_trial] += 1  # what it learns is no reason to try it again
                super().schedule(view, batch)

        def trials(policy):
            policy.n[:] = [0, 0]
            unmask.run(**BASE, scheduler=policy)
            return policy.n[1]

        policy = Counts()
        self.assertGreater(trials(policy), 0)
        first, on_trial = policy.n
        self.assertGreater(first, 0)
        unmask.run(**BASE, scheduler=policy)
        self.assertEqual(policy.n, [2 * first, on_trial])
        self.assertEqual(trials(Counts()), 0)
        policy.most = 5
        self.assertGreater(trials(policy), 0)
        self.assertEqual(trials(policy), 0)

    def test_one_that_failed_is_tried_again(self):
        for _ in range(2):
            class Fails(InOrder):
                def schedule(self, view, batch):
                    if view.is_trial:
                        raise KeyError("in the trial")

            with self.assertRaisesRegex(KeyError, r"in schedule, .*test_views.py:\d+"):
                unmask.run(**BASE, scheduler=Fails())


SLOW = f"""
import sys, time, unmask
class Slow(unmask.Scheduler):
    def schedule(self, view, batch):
        if view.is_trial:
            time.sleep(1.2)
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        for request in view.waiting:
            batch.admit(request)
unmask.run(**{BASE!r}, scheduler=Slow())
"""


class Said(unittest.TestCase):
    def _shown(self, code, on_terminal):
        path = os.path.dirname(os.path.dirname(unmask.__file__))
        ours, theirs = pty.openpty() if on_terminal else os.pipe()
        child = subprocess.Popen([sys.executable, "-c", "import sys\nsys.modules['tqdm'] = None\n" + textwrap.dedent(code)],
                                 stderr=theirs, env={**os.environ, "PYTHONPATH": path})
        os.close(theirs)
        said = b""
        try:
            while True:
                data = os.read(ours, 65536)
                if not data:
                    break
                said += data
        except OSError:  # the terminal is gone
            pass
        os.close(ours)
        self.assertEqual(child.wait(), 0, said)
        return said.decode()

    def test_progress_is_for_terminals(self):
        self.assertRegex(self._shown(SLOW, True), r"\rrun: \d+ decisions of Slow on trial")
        self.assertEqual(self._shown(SLOW, False), "")

    def test_the_program_says_how_far_it_is(self):
        class Seen(Exception):
            pass

        def show(_, *what):
            raise Seen(*what)

        with unittest.mock.patch.object(unmask._progress.Progress, "show", show), self.assertRaises(Seen) as caught:
            unmask.run(gpu="l40s", requests=100000000)
        n_done, n_total, noun = caught.exception.args
        self.assertTrue(0 < n_done < n_total == 100000000 and noun == "requests", caught.exception.args)

    def test_what_the_program_says_is_a_warning(self):
        said = unmask._process._Said(lambda text: text)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for text in (b"unmask: 2 runs in 0.38 s\nunmask: 2 poi", b"nts were in x.db already\nunmask: recorded as run 3 of x.db\n",
                         b"unmask: 0.5 s simulated in 1e-05 s\n", b"unmask: run 3 is left out\nunmask: waits for x.db\n",
                         b"unmask: no such thing"):
                said.hear(text)
            self.assertEqual(said.end(1), "no such thing")
        self.assertEqual([str(one.message) for one in caught], ["run 3 is left out", "waits for x.db"])

    def test_sentences_name_class_and_file(self):
        class Idle(unmask.Scheduler):
            def schedule(self, view, batch):
                pass

        with self.assertRaisesRegex(unmask.Error, r"Idle \(.*test_views.py:\d+\)"):
            unmask.run(**BASE, scheduler=Idle())


class Decoders(unittest.TestCase):
    """What a decoder is asked, and which answers are some."""

    def answer(self, flags, n=5, **line):
        """What is told for an answer of those flags."""
        class Says(unmask.Decoder):
            def choose(self, request, offsets, confidences):
                asked.append((request, offsets, confidences))
                return flags

        asked, told = [], []
        question = _view._ASKED.pack(n, 0, *ROWS[3]) + struct.pack(f"<{n}I{n}f", *range(7, 7 + n), *(i / 8 for i in range(n)))
        Says()._answer(unittest.mock.Mock(hear_question=lambda: question, tell=told.append, is_enough=False, **line))
        self.assertEqual(asked, [(ROWS[3], tuple(range(7, 7 + n)), tuple(i / 8 for i in range(n)))])
        return told

    def test_one_flag_each_and_at_least_one_set(self):
        for flags in ([1] * 5, [0, 0, 0, 0, True], ["", None, 7, 0.0, "a"], (i == 2 for i in range(5))):
            flags = list(flags)
            self.assertEqual(self.answer(iter(flags)), [bytes(map(bool, flags))])
        for flags in ([1] * 4, [1] * 6, [0] * 5, [], [0] * 4, [0] * 6):
            with self.assertRaisesRegex(ValueError, f"Says.choose answered {len(flags)} flags, {sum(flags)} of them set, for 5 "):
                self.answer(flags)
        self.assertEqual(self.answer([3], n=1), [b"\1"])

    def test_a_trial_is_ended_without_an_answer(self):
        told = []
        question = _view._ASKED.pack(2, 0, *ROWS[0]) + struct.pack("<2I2f", 0, 1, 0.5, 0.5)
        unmask.Decoder()._answer(unittest.mock.Mock(hear_question=lambda: question, tell=told.append, is_enough=True))
        self.assertEqual(told, [bytes([2, 2])])


class Signatures(unittest.TestCase):
    def test_parameters_are_the_programs_options(self):
        for name in ("run", "compare", "capacity", "bound", "explain", "sweep", "figure"):
            function = getattr(unmask, name)
            parameters = inspect.signature(function).parameters
            self.assertNotIn(inspect.Parameter.VAR_KEYWORD, {p.kind for p in parameters.values()})
            said = subprocess.run([unmask.program(), name, "--help"], capture_output=True, text=True, check=True).stdout
            options = {option.replace("-", "_") for option in re.findall(r"^  --?([a-z][a-z-]*)", said, re.M)} - {"json", "format", "help", "verbose"}
            options -= {"all", "scores"} if name == "figure" else set()
            self.assertLessEqual(options, set(parameters), name)
            for option in options:
                self.assertIn(f"\n{option}: ", function.__doc__)

    def test_a_run_says_what_it_is(self):
        run = unmask.run(**BASE)
        self.assertRegex(repr(run), r"^<Run of dllm-serve, llada-8b on l40s, burst at .*: 12 of 12 requests in .* fields>$")
        self.assertIsInstance(pickle.loads(pickle.dumps(run)), dict)
        del run["latency_s"]
        self.assertTrue(repr(run).startswith("{"))


if __name__ == "__main__":
    unittest.main()
