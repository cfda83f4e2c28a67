"""Tests of policies in Python beside the same in C, and of what they are told: `make wheel-test`."""

import collections
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import unittest
import unittest.mock

import unmask

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOAD = dict(gpu="l40s", system="dllm-serve", workload="burst", rate=20, requests=60)
DEADLINES = {"max_requests": 3, "cache": "dual", "cache.interval_steps": 4, "workload.priority": "uniform",
             "workload.predicted": "exact", "workload.deadline": "uniform", "workload.deadline.max": "90s"}


def setUpModule():
    unmask._policy._Trials.LIMIT_S = 0.05


class EarliestDeadline(unmask.Scheduler):
    """tests/plugins/deadline_scheduler.c in Python."""

    reject_reasons = "late", "hopeless"

    def __init__(self):
        self.ns = self.tokens = 0

    def happened(self, happenings):
        self.ns += sum(one.ns for one in happenings)
        self.tokens += sum(one.committed_tokens for one in happenings)

    def schedule(self, view, batch):
        for request in view.running:
            batch.run(request, put_off=request.refresh_waits > 0 and request.priority == 0)
        for request in sorted(view.waiting, key=lambda r: r.deadline_ns):
            if request.deadline_ns <= view.now_ns:
                batch.reject(request, "late")
            elif request.deadline_ns - view.now_ns < self.ns * request.predicted_tokens // max(self.tokens, 1):
                batch.reject(request, "hopeless")
            elif not batch.admit(request):
                batch.wait_until(request.deadline_ns)
                break


class Turns(unmask.Scheduler):
    """tests/plugins/swapping_scheduler.c in Python."""

    def __init__(self, turn=8):
        self.turn, self.out_ns, self.since = turn, {}, {}

    def schedule(self, view, batch):
        batch.hold = "step"
        following = min(view.waiting, key=lambda r: self.out_ns.get(r.id, r.arrival_ns), default=None)
        out = None
        if following is not None and (following.kv_bytes > view.kv_free_bytes or len(view.running) == view.max_requests):
            out = next((r for r in view.running if view.host_total_bytes > 0 and r.steps - self.since[r.id] >= self.turn
                        and r.kv_held_bytes <= view.host_free_bytes
                        and following.kv_bytes <= view.kv_free_bytes + r.kv_held_bytes), None)
        for request in view.running:
            if out is None or request.slot != out.slot:
                batch.run(request)
        if out is not None and following.queries <= batch.free_tokens:
            assert batch.swap_out(out)
            self.out_ns[out.id] = view.now_ns
        if following is not None and batch.admit(following):
            self.since[following.id] = following.steps


class Holding(unmask.Router):
    """tests/plugins/seeing_router.c in Python."""

    def __init__(self, most=4, hold_ns=0):
        self.most, self.hold_ns = most, hold_ns

    def route(self, request, view):
        first = view.replicas[0]
        if first.n_running + first.n_waiting < self.most:
            return 0
        if self.hold_ns == 0:
            return view.hold()
        return 0 if view.now_ns - request.arrival_ns >= 4 * self.hold_ns else view.hold(view.now_ns + self.hold_ns)

    def move(self, view):
        idle = [i for i, one in enumerate(view.replicas) if i > 0 and one.n_running + one.n_waiting == 0]
        return list(zip(view.replicas[0].waiting, idle))


class TwinCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        if shutil.which("cc") is None:
            raise unittest.SkipTest("no C compiler")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def plugin(self, name):
        path = f"{self.folder.name}/{name}.so"
        subprocess.run(["cc", "-std=c11", "-shared", "-fPIC", f"-I{ROOT}", "-o", path, ROOT / f"tests/plugins/{name}.c"], check=True)
        return path

    def ran(self, name, **options):
        """(the summary, every request, every step) of a run."""
        db = f"{self.folder.name}/{self.id()}-{name}.db"
        summary = unmask.run(db=db, levels="steps", **options)
        with sqlite3.connect(db) as file:
            return summary, *(file.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall() for table in ("requests", "steps"))

    def same(self, kind, in_c, in_python, **options):
        c, python = self.ran("c", **{kind: in_c}, **options), self.ran("python", **{kind: in_python}, **options)
        self.assertEqual(c[1], python[1])
        self.assertEqual(c[2], python[2])
        self.assertEqual(c[0]["rejected_by_reason"], python[0]["rejected_by_reason"])
        return c[0]


class Twins(TwinCase):
    def test_a_scheduler_in_python_decides_as_the_same_in_c(self):
        plugin = self.plugin("deadline_scheduler")
        for reason, predicted, replicas in ("hopeless", "exact", 1), ("late", "none", 2):
            found = self.same("scheduler", plugin, EarliestDeadline(), **LOAD, set={
                **DEADLINES, "workload.predicted": predicted, "replicas": replicas})
            self.assertGreater(found["rejected_by_reason"][reason], 0)
            self.assertGreater(found["completed"], 0)

    def test_a_scheduler_in_python_swaps_out_as_the_same_in_c(self):
        plugin = self.plugin("swapping_scheduler")
        for host, replicas in ("8GiB", 1), ("2GiB", 2), ("0", 1):
            found = self.same("scheduler", plugin, Turns(), **LOAD, set={
                "max_requests": 2, "swap.host_bytes": host, "replicas": replicas})
            self.assertEqual(found.get("swap", {}).get("out", 0) > 10, host != "0")
            self.assertEqual(found["completed"], 60)

    def test_a_request_that_was_swapped_out_is_seen_and_what_cannot_be_is_told(self):
        seen = []

        class Once(unmask.Scheduler):
            def schedule(self, view, batch):
                out = next((r for r in view.running if len(view.running) > 1 and r.preemptions == 0 and r.steps > 4), None)
                swaps = out is not None and batch.swap_out(out)
                for request in view.running:
                    if not swaps or request.slot != out.slot:
                        batch.run(request)
                for request in view.waiting:
                    batch.admit(request)
                if not view.is_trial:
                    seen.append((out is not None, swaps, view, [r.host_bytes for r in view.waiting if r.preemptions > 0]))

        for host_bytes in 2**33, 0:
            seen.clear()
            result = unmask.run(**LOAD, scheduler=Once(), set={"max_requests": 2, "swap.host_bytes": host_bytes})
            self.assertEqual({(view.host_total_bytes, view.host_bandwidth > 0) for _, _, view, _ in seen}, {(host_bytes, True)})
            self.assertEqual({view.host_free_bytes <= host_bytes for _, _, view, _ in seen}, {True})
            self.assertEqual({swaps for wants, swaps, _, _ in seen if wants}, {host_bytes > 0})
            self.assertEqual(any(n > 0 for *_, held in seen for n in held), host_bytes > 0)
            self.assertEqual("swap" in result, host_bytes > 0)

    def test_a_router_in_python_holds_back_and_moves_as_the_same_in_c(self):
        plugin = self.plugin("seeing_router")
        for hold_ns in 0, 50_000_000:
            settings = {"replicas": 3, "max_requests": 2}
            found = self.ran("held", router=plugin, **LOAD, set={**settings, "router.hold": f"{hold_ns}ns"})
            self.assertEqual(found[1:], self.ran("python", router=Holding(4, hold_ns), **LOAD, set=settings)[1:])
            found = found[0]
            self.assertEqual(found["completed"], 60)


class Queue(unmask.Scheduler):
    """Knows what waits by what it was told alone, and checks it."""

    def __init__(self):
        self.waiting, self.told, self.seen = {}, [], collections.defaultdict(lambda: [0, 0, 0, 0])

    def happened(self, happenings):
        if not self.is_trial:
            self.told += happenings
        for one in happenings:
            if one.kind == "arrival":
                self.waiting[one.request.id] = one.request
            elif one.kind == "start" or one.state != "done":
                self.waiting.pop(one.request.id, None)
            if one.kind == "steps":
                seen = self.seen[one.request.id]
                for i, more in enumerate((one.ns, one.query_tokens, one.steps, one.committed_tokens)):
                    seen[i] += more
                r = one.request
                if not self.is_trial and seen != [r.service_ns, r.service_tokens, r.steps, r.committed_tokens]:
                    raise ValueError(f"{seen} is not {r}")

    def schedule(self, view, batch):
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        if [r.id for r in view.waiting] != list(self.waiting)[:len(view.waiting)]:  # one that decides ahead is shown the last ones later
            raise ValueError(f"{list(view.waiting)} wait, was told {self.waiting}")
        for request in list(self.waiting.values())[:len(view.waiting)]:
            if not batch.admit(request):
                break


class Told(unittest.TestCase):
    def test_a_scheduler_is_told_what_happened(self):
        policy = Queue()
        result = unmask.run(**LOAD, scheduler=policy, set={"max_requests": 3})
        kinds = collections.Counter(one.kind for one in policy.told)
        self.assertEqual((kinds["arrival"], kinds["start"], kinds["end"]), (60, 60, 60))
        self.assertEqual({one.state for one in policy.told if one.kind == "end"}, {"done"})
        self.assertEqual(policy.told[-1].kind, "end")  # the last one's, after which nothing is decided
        self.assertAlmostEqual(policy.told[-1].now_ns / 1e9, result["makespan_s"] + policy.told[0].now_ns / 1e9, 3)
        self.assertEqual([one.now_ns for one in policy.told], sorted(one.now_ns for one in policy.told))
        self.assertEqual(sum(one.committed_tokens for one in policy.told), sum(
            one.request.output_tokens for one in policy.told if one.kind == "end"))

    def test_each_replica_is_told_its_own_also_in_a_trial(self):
        with unittest.mock.patch.multiple(unmask._policy._Trials, LIMIT_S=5, _passed=set()):
            unmask.run(**LOAD, scheduler=Queue(), set={"max_requests": 3, "replicas": 3})

    def test_reasons_are_those_that_it_names(self):
        class Strict(EarliestDeadline):
            reject_reasons = ("late",)

        with self.assertRaisesRegex(ValueError, "'hopeless' is none of the policy's reject_reasons, which are late"):
            unmask.run(**LOAD, scheduler=Strict(), set=DEADLINES)
        for wrong in ("late",) * 9, ("Late",), ("",), "late", ("x" * 33,):
            Strict.reject_reasons = wrong
            with self.assertRaisesRegex(unmask.UsageError, "reject_reasons of Strict are .*, expected up to 8 names of a-z"):
                unmask.run(**LOAD, scheduler=Strict())


class Routes(unittest.TestCase):
    def refused(self, sentence, router):
        with self.assertRaisesRegex(ValueError, sentence):
            unmask.run(**LOAD, router=router, set={"replicas": 2})

    def test_a_router_sees_replicas_and_requests(self):
        shown = []

        class Sees(Holding):
            def route(self, request, view):
                if not view.is_trial:
                    waits = [(one.n_waiting, len(one.waiting)) for one in view.replicas]
                    late = [r.id for one in view.replicas for r in one.waiting if r.arrival_ns > view.now_ns]
                    shown.append((view.seed, request.id, view.n_held, waits, late, repr(view)))
                return super().route(request, view)

        unmask.run(**dict(LOAD, seed=9), router=Sees(2), set={"replicas": 3, "max_requests": 1})
        seeds, ids, held, waits, late, said = zip(*shown)
        self.assertEqual((set(seeds), set(ids)), ({9}, set(range(60))))
        self.assertGreater(max(held), 0)
        self.assertGreater(max(max(each)[0] for each in waits), 0)
        self.assertTrue(all(n == n_listed for each in waits for n, n_listed in each))
        self.assertFalse(any(late))
        self.assertRegex(said[-1], r"^<RouterView at [\d.]+ s: 3 replicas, \d+ requests held back>$")

    def test_an_answer_that_is_none_is_refused(self):
        class Says(unmask.Router):
            def __init__(self, chosen, moves=()):
                self.chosen, self.moves = chosen, moves

            def route(self, request, view):
                return self.chosen

            def move(self, view):
                waiting = [r for one in view.replicas for r in one.waiting]
                return [(waiting[0], self.moves)] if waiting and self.moves != () else []

        self.refused("route answered 64, expected a replica from 0 to", Says(64))
        self.refused("route answered -1, expected a replica from 0 to", Says(-1))
        self.refused("move answered a replica that is none from 0 to", Says(0, 64))
        with self.assertRaises(TypeError):
            unmask.run(**LOAD, router=Says("first"), set={"replicas": 2})


if __name__ == "__main__":
    unittest.main()
