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
            assert batch.preempt(out, swap=True)
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

    def of_source(self, source):
        """The plug-in that this text in C is."""
        path = f"{self.folder.name}/{self.id().split('.')[-1]}"
        pathlib.Path(path + ".c").write_text(source)
        subprocess.run(["cc", "-std=c11", "-shared", "-fPIC", f"-I{ROOT}", "-o", path + ".so", path + ".c"], check=True)
        return path + ".so"

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
                swaps = out is not None and batch.preempt(out, swap=True)
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


class Chunked(unmask.Scheduler):
    """sim/policy/scheduler/scheduler_chunked.c in Python."""

    grows = True

    def __init__(self, swaps):
        self.swaps = swaps

    def schedule(self, view, batch):
        running = list(view.running)
        i, preempted = 0, False
        while i < len(running):
            request = running[i]
            chunk = request.chunk(batch.free_tokens)
            i += 1
            if chunk == 0:
                continue
            while i <= len(running) and request.kv_bytes - request.kv_held_bytes > batch.free_kv_bytes:
                last, preempted = running.pop(), True
                self.swaps and batch.preempt(last, swap=True) or batch.preempt(last)
            if i <= len(running):
                batch.run(request, chunk_tokens=chunk)
        for request in () if preempted else view.waiting:
            chunk = request.chunk(batch.free_tokens)
            if chunk == 0 or not batch.admit(request, chunk_tokens=chunk):
                break
        batch.hold = "step"


class Lmdeploy(unmask.Scheduler):
    """sim/policy/scheduler/scheduler_lmdeploy.c in Python, as long as memory suffices."""

    grows = True

    def __init__(self):
        self.n_decodes = 0

    def schedule(self, view, batch):
        prefills = [r for r in view.running if r.phase == unmask.Phase.PREFILL]
        decodes = [r for r in view.running if r.phase != unmask.Phase.PREFILL]
        tokens = sum(r.queries for r in view.waiting)
        if not decodes or len(decodes) < 0.5 * view.max_requests or self.n_decodes >= 16 or tokens >= 8192:
            free = min(8192, view.max_batched_tokens)
            for request, takes in [(r, batch.run) for r in prefills] + [(r, batch.admit) for r in view.waiting]:
                chunk = request.chunk(free)
                if chunk == 0 or not takes(request, chunk_tokens=chunk):
                    break
                free -= chunk
        batch.hold = "step"
        if batch._listed or batch._admitted:
            self.n_decodes = 0
            return
        for request in decodes:
            if batch.run(request):
                batch.loops = min(2 * (64 // request.block_tokens), 16)
        self.n_decodes += max(batch.loops, 1)


class ByForecast(unmask.Scheduler):
    """In an order that every forecast and estimate has a part in."""

    def key(self, view, request):
        seen = view.foresee(request, most=8)
        spans = view.estimate_spans_ns(seen.passes[:2])
        return (view.rest_ns(request, most=8) * 7 + spans * 3 + seen.tokens + 11 * seen.steps + 13 * (seen.to_refresh or 0) +
                17 * seen.n_passes + 19 * seen.n_blocks + 23 * seen.is_exact + 29 * sum(p.steps + p.block for p in seen.passes)
                ) % 1009, request.id

    def schedule(self, view, batch):
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        for request in sorted(view.waiting, key=lambda r: self.key(view, r)):
            batch.admit(request)
        if int(view.estimate_joules(batch) * 1e6) % 3 == 0 and view.estimate_ns(batch) % 2 == 0:
            batch.hold = "step"


BY_FORECAST = """
#include "sim/policy/scheduler/scheduler.h"
static int64_t key_of(const struct schedule_view *view, uint32_t slot) {
    struct pass_ahead passes[8];
    const struct span *const spans[2] = {&passes[0].span, &passes[1].span};
    struct outlook seen;
    view->foresee(view->estimator, slot, passes, 8, &seen);
    const uint32_t n = seen.n_passes < 8 ? seen.n_passes : 8;
    int64_t sum = view->estimate_spans_ns(view->estimator, spans, n < 2 ? n : 2) * 3 + (int64_t)seen.tokens +
                  11 * (int64_t)seen.steps + 13 * (int64_t)(seen.to_refresh == UINT32_MAX ? 0 : seen.to_refresh) +
                  17 * (int64_t)seen.n_passes + 19 * (int64_t)seen.n_blocks + 23 * (int64_t)seen.is_exact;
    for (uint32_t i = 0; i < n; i++) {
        sum += 29 * (int64_t)(passes[i].steps + passes[i].block);
    }
    return (sum + 7 * view_rest_ns(view, slot, passes, 8)) % 1009;
}
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    uint64_t order[4096], tokens = (uint64_t)view->running_tokens, bytes = 0;
    (void)state;
    batch->all_running = view->running_tokens <= view->max_batched_tokens;
    tokens = batch->all_running ? tokens : 0;
    for (uint32_t i = 0; !batch->all_running && i < view->n_running; i++) {
        const uint32_t queries = view->requests[view->running[i]].span.queries;
        if (tokens + queries <= view->max_batched_tokens) {
            batch->selected[batch->n++] = view->running[i];
            tokens += queries;
        }
    }
    for (uint32_t i = 0; i < view->n_waiting && i < 4096; i++) {
        uint64_t one = (uint64_t)key_of(view, view->waiting[i]) << 48 |
                       view->requests[view->waiting[i]].id << 24 | view->waiting[i];
        uint32_t at = i;
        for (; at > 0 && order[at - 1] > one; at--) {
            order[at] = order[at - 1];
        }
        order[at] = one;
    }
    for (uint32_t i = 0; i < view->n_waiting && i < 4096; i++) {
        const uint32_t slot = order[i] & 0xFFFFFF;
        const struct request *r = &view->requests[slot];
        if (view->n_running + batch->n_admitted < view->max_requests && tokens + r->span.queries <= view->max_batched_tokens &&
            (int64_t)bytes + r->kv_bytes <= view->kv_free_bytes) {
            batch->selected[batch->n++] = slot;
            batch->n_admitted++;
            tokens += r->span.queries;
            bytes += (uint64_t)r->kv_bytes;
        }
    }
    const double joules = view->estimate_joules(view->estimator, batch);
    batch->hold = (int64_t)(joules * 1e6) % 3 == 0 && view->estimate_ns(view->estimator, batch) % 2 == 0 ? HOLD_STEP : HOLD_CHANGE;
}
const struct scheduler unmask_policy = {.policy = {.abi = POLICY_ABI, .kind = POLICY_SCHEDULER, .size = sizeof(struct scheduler),
    .name = "forecast", .doc = "by forecasts"}, .schedule = schedule};
"""

IDLES = """
#include "sim/policy/scheduler/scheduler.h"
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    uint64_t tokens = 0;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < view->n_running; i++) {
        const uint32_t q = view->requests[view->running[i]].span.queries;
        if (tokens + q <= view->max_batched_tokens) {
            tokens += q;
            if (i % 2 == 0) {
                batch->selected[batch->n++] = view->running[i];
            } else {
                batch->idle[batch->n_idle++] = view->running[i];
            }
        }
    }
    for (uint32_t i = 0; i < view->n_waiting && view->n_running + batch->n_admitted < view->max_requests; i++) {
        const struct request *r = &view->requests[view->waiting[i]];
        if (tokens + r->span.queries > view->max_batched_tokens || bytes + r->kv_bytes > view->kv_free_bytes) {
            break;
        }
        tokens += r->span.queries;
        bytes += r->kv_bytes;
        batch->selected[batch->n++] = view->waiting[i];
        batch->n_admitted++;
    }
    batch->continues = view->n_running > 2;
}
const struct scheduler unmask_policy = {.policy = {.abi = POLICY_ABI, .kind = POLICY_SCHEDULER, .size = sizeof(struct scheduler),
    .name = "idles", .doc = "every other one waits"}, .schedule = schedule};
"""


class Idles(unmask.Scheduler):
    def schedule(self, view, batch):
        for i, request in enumerate(view.running):
            (batch.run if i % 2 == 0 else batch.idle)(request)
        for request in view.waiting:
            if not batch.admit(request):
                break
        batch.hold, batch.continues = "step", len(view.running) > 2


class Whole(TwinCase):
    """What policies in Python could not see or say before they had all that C's have."""

    EXACT = dict(gpu="l40s", model="sdar-1.7b", workload="osc", rate=40, requests=40, system="sdar")

    def test_a_scheduler_that_grows_takes_chunks_and_preempts_as_the_same_in_c(self):
        for swaps in False, True:
            options = {"max_batched_tokens": 256, "max_requests": 16, "pool_pages": 40, "swap.host_bytes": "64MiB" if swaps else 0}
            c = self.ran("c", scheduler="chunked", **self.EXACT, set={
                **options, "scheduler.preempts": "swap" if swaps else "recompute"})
            python = self.ran("python", scheduler=Chunked(swaps), **self.EXACT, set=options)
            self.assertEqual(c[1:], python[1:])
            self.assertGreater(python[0]["preemptions"], 0)

    def test_loops_are_those_of_the_same_in_c(self):
        options = {"max_requests": 8}
        c = self.ran("c", scheduler="lmdeploy", **self.EXACT, set=options)
        self.assertEqual(c[1:], self.ran("python", scheduler=Lmdeploy(), **self.EXACT, set=options)[1:])

    def test_forecasts_and_estimates_are_those_of_the_same_in_c(self):
        plugin, load = self.of_source(BY_FORECAST), dict(LOAD, gpu="h200", workload="math", requests=16)
        for system in "dllm-serve", "fast-dllm":
            found = self.same("scheduler", plugin, ByForecast(), **dict(load, system=system), set={"max_requests": 4})
            in_order = self.ran("order", scheduler="continuous", **dict(load, system=system), set={"max_requests": 4})
            self.assertNotEqual(found["latency_s"]["mean"], in_order[0]["latency_s"]["mean"])

    def test_idle_requests_and_what_continues_are_those_of_the_same_in_c(self):
        options = {"max_requests": 4, "runtime.host_visit_ns": "5ms"}
        self.same("scheduler", self.of_source(IDLES), Idles(), **dict(self.EXACT, rate=4, requests=20), set=options)

    def test_a_request_says_what_its_next_step_is(self):
        seen = []

        class Sees(Queue):
            def schedule(self, view, batch):
                super().schedule(view, batch)
                if not view.is_trial:
                    seen.extend((r, view.threshold, view.host_total_bytes) for r in (*view.running, *view.waiting))

        unmask.run(**dict(self.EXACT, rate=4, requests=6), scheduler=Sees(), set={"swap.host_bytes": "1MiB"})
        phases = {unmask.Phase(r.phase) for r, *_ in seen}
        self.assertLessEqual({unmask.Phase.PREFILL, unmask.Phase.REUSE, unmask.Phase.COMMIT}, phases)
        for r, threshold, host in seen:
            self.assertEqual((r.canvas_tokens, r.block_end, host), (r.prompt_tokens + r.output_tokens, r.block_start + r.block_length, 2**20))
            self.assertTrue(r.steps_to_change >= 1 and r.cached_tokens <= r.block_end and 0 < threshold <= 1, r)
            self.assertEqual(r.queries, r.block_start - r.cached_tokens if r.phase == unmask.Phase.PREFILL else r.queries)


class Interval(unmask.Cache):
    """tests/plugins/template_cache.c in Python."""

    def plan(self, request, rows, memory):
        since = request.step_in_block % 8
        rows.keep = (0, request.block_start), (request.block_end, request.canvas_tokens)
        rows.held = request.canvas_tokens
        if since == 0:
            rows.compute(0, request.canvas_tokens)
            return 1
        rows.compute(request.block_start, request.block_end)
        return 8 - since


class Loaded(unmask.Cache):
    """tests/plugins/loaded_cache.c in Python."""

    def rows(self, request, renews, rows):
        rows.keep = (0, request.block_start), (request.block_end, request.canvas_tokens)
        rows.held = request.canvas_tokens
        rows.compute(*((0, request.canvas_tokens) if renews else (request.block_start, request.block_end)))

    def plan(self, request, rows, memory):
        n, step = request.load_running + request.load_waiting, request.step_in_block
        self.rows(request, step == 0 or request.overdue_steps > 0 or (n < 8 and step % 4 == 0), rows)
        return 1

    def put_off(self, request, rows, memory):
        self.rows(request, False, rows)
        return 3 if request.step_in_block > 0 else 0


class Entropy(unmask.Cache):
    """sim/policy/cache/cache_entropy.c in Python."""

    memory_bytes, reads_entropy = 8, True

    def plan(self, request, rows, memory):
        renews = request.steps == 0 or memory[0] != 0
        looks_back = request.block > 0 and request.block_length - request.masked_in_block < 1
        rows.settles, rows.recent, rows.skips = "delayed", 1, not renews
        rows.keep, rows.held = [(0, request.canvas_tokens)], request.canvas_tokens
        first = 0 if renews else request.block_before if looks_back else request.block_start
        rows.compute(first, request.canvas_tokens)
        return 1

    def learn(self, request, learned, memory):
        if learned.n > 0:
            assert len(learned.outcomes) == len(learned.entropies) == request.block_length
            memory[0] = any(what == "commit" and nats > 1 for what, nats in zip(learned.outcomes, learned.entropies))


class Left(unmask.Cache):
    """FOCUS's rows with what it learns, of masked positions the left-most ones: sim/policy/cache/cache_focus.c in Python."""

    def plan(self, request, rows, memory):
        rows.kind, rows.chooser, rows.settles, rows.evict_layer = "exact", "policy", "neighbour", 1
        rows.held = request.block_end
        if request.block_start > request.cached_tokens:
            rows.run, rows.head = (request.cached_tokens, request.block_start), (request.block_start, request.block_start)
            rows.keep = [(0, request.block_start)]
            return 1
        rows.compute(request.block_start, request.block_end)
        rows.skips, rows.keep = True, [(0, request.block_end)]
        return 1

    frontiers = set()  # of all copies

    def evict(self, view, memory):
        if not self.is_trial:
            self.frontiers.add(view.frontier)
        masked = [a and b for a, b in zip(view.pending, view.masked)]
        keep = list(view.pending)
        if sum(masked) > 4:
            keep, left = [False] * len(masked), 4
            for i, one in enumerate(masked):
                keep[i] = one and left > 0
                left -= keep[i]
            chosen = list(keep)
            for i in range(len(keep) - 1):
                keep[i] = keep[i] or (chosen[i + 1] and masked[i])
            last = max((i for i, one in enumerate(keep) if one), default=-1)
            keep = [one or (masked[i] and (last < 0 or view.frontier < i < last)) for i, one in enumerate(keep)]
        return [one or (view.pending[i] and not view.masked[i]) for i, one in enumerate(keep)]


class Undoing(unmask.Decoder):
    """tests/plugins/undoing_decoder.c in Python."""

    def choose(self, request, offsets, confidences):
        return [i == 0 and request.step_in_block != 1 for i in range(len(offsets))]

    def take_back(self, request, offsets, confidences):
        return [request.step_in_block == 1] * len(offsets)


class Caches(TwinCase):
    LOAD = dict(gpu="l40s", system="fast-dllm", workload="burst", rate=5, requests=12)

    def test_a_cache_policy_in_python_plans_as_the_same_in_c(self):
        self.same("cache", self.plugin("template_cache"), Interval(), **self.LOAD)

    def test_refreshes_wait_as_in_c(self):
        class PutsOff(unmask.Scheduler):
            def schedule(self, view, batch):
                for request in view.running:
                    batch.run(request, put_off=request.refresh_waits > 0 and request.id % 2 == 0)
                for request in view.waiting:
                    batch.admit(request)

        found = [self.same("cache", self.plugin("loaded_cache"), Loaded(), **self.LOAD, scheduler=scheduler, set={"max_requests": 6})
                 for scheduler in (PutsOff(), "continuous")]
        self.assertNotEqual(found[0]["latency_s"]["mean"], found[1]["latency_s"]["mean"])

    def test_what_it_learns_is_what_c_learns(self):
        found = self.same("cache", "entropy", Entropy(), **self.LOAD, decoder="threshold")
        self.assertNotEqual(found["makespan_s"], self.ran("never", **self.LOAD, decoder="threshold", cache="entropy", set={
            "cache.bound_nats": 100})[0]["makespan_s"])

    def test_it_evicts_as_in_c(self):
        load = dict(gpu="l40s", system="focus", workload="osc", rate=5, requests=4)
        settings = {"scheduler": "continuous"}
        c = self.ran("c", cache="focus", **load, set={**settings, "cache.choice": "left", "cache.k": 4, "cache.ahead_blocks": 0})
        python = self.ran("python", cache=Left(), **load, set=settings)
        self.assertTrue(-1 in Left.frontiers and max(Left.frontiers) > 1, Left.frontiers)
        self.assertEqual([row[3:] for row in c[2]], [row[3:] for row in python[2]])

    def test_a_decoder_takes_back_as_the_same_in_c(self):
        self.same("decoder", self.plugin("undoing_decoder"), Undoing(), **dict(self.LOAD, requests=6))

    def test_a_decoder_reads_margins_and_entropies(self):
        seen = []

        class Margin(unmask.Decoder):
            reads_statistics = True

            def choose(self, request, offsets, confidences, margins, entropies):
                if not self.is_trial:
                    seen.append((confidences, margins, entropies))
                return [one == max(margins) for one in margins]

        unmask.run(**dict(self.LOAD, requests=3), decoder=Margin())
        self.assertTrue(seen)
        for confidences, margins, entropies in seen:
            self.assertEqual(len(confidences), len(margins))
            self.assertTrue(all(0 <= m <= c < 1 and e <= 0 for c, m, e in zip(confidences, margins, entropies)))

    def test_an_answer_that_is_none_is_refused(self):
        class Says(Interval):
            def __init__(self, **said):
                self.said = said

            def plan(self, request, rows, memory):
                n = super().plan(request, rows, memory)
                for name, value in self.said.items():
                    setattr(rows, name, value)
                return n

        for said, sentence in ((dict(kind="keys"), "rows.kind is 'keys', expected one of none, kv, "),
                               (dict(keep=[(0, 1)] * 3), "rows.keep has 3 ranges, expected at most two"),
                               (dict(settles="soon"), "rows.settles is 'soon', expected one of whole, ")):
            with self.assertRaisesRegex(ValueError, sentence):
                unmask.run(**self.LOAD, cache=Says(**said))
        with self.assertRaisesRegex(unmask.Error, "Says .* sets rows.run to "):
            unmask.run(**self.LOAD, cache=Says(run=(0, 100000)))
        for wrong in 7, 4104, -8, "8":
            Says.memory_bytes = wrong
            with self.assertRaisesRegex(unmask.UsageError, "memory_bytes of Says is .*, expected a multiple of 8 up to 4096"):
                unmask.run(**self.LOAD, cache=Says())


if __name__ == "__main__":
    unittest.main()
