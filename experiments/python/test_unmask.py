"""Tests of the module as it is installed: `make wheel-test`."""

import os
import sqlite3
import subprocess
import tempfile
import unittest

import pandas

import unmask


def setUpModule():
    unmask._policy._Trials.LIMIT_S = 0.05


class ShortestFirst(unmask.Scheduler):
    def schedule(self, view, batch):
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        for request in sorted(view.waiting, key=lambda r: r.output_tokens):
            batch.admit(request)


class InOrder(unmask.Scheduler):
    """Phase-multiplexed, as far as nothing is crowded out; asks for the price of what it chose."""

    def __init__(self):
        self.estimates = []

    def schedule(self, view, batch):
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        for request in view.waiting:
            if not batch.admit(request):
                break
        if view.running or view.waiting:
            self.estimates.append(view.estimate_ns(batch))


class Broken(unmask.Scheduler):
    def schedule(self, view, batch):
        raise KeyError("nothing is there")


class Greedy(unmask.Scheduler):
    """Lists a request that does not wait."""

    def schedule(self, view, batch):
        if view.running:
            batch._admitted += [view.running[0].slot, view.running[0].slot]
        for request in view.waiting:
            batch.admit(request)


class Threshold(unmask.Decoder):
    def choose(self, request, offsets, confidences):
        best = max(confidences)
        return [c >= 0.9 or c == best for c in confidences]


class NothingChosen(unmask.Decoder):
    def choose(self, request, offsets, confidences):
        return [False] * len(confidences)


class Runs(unittest.TestCase):
    def test_run_is_what_the_program_prints(self):
        words = ["run", "--gpu", "l40s", "--system", "dllm-serve", "--requests", "20", "--rate", "0.3", "--set",
                 "cache.retention=0.3", "--json"]
        printed = subprocess.run([unmask.program(), *words], capture_output=True, check=True).stdout
        import json
        self.assertEqual(unmask.run(gpu="l40s", system="dllm-serve", requests=20, rate=0.3,
                                    set={"cache.retention": 0.3}), json.loads(printed))

    def test_data_is_the_installed_one(self):
        said = subprocess.run([unmask.program(), "--version"], capture_output=True, text=True, check=True).stdout
        self.assertIn(os.path.dirname(unmask.__file__), said)

    def test_commands_have_their_json(self):
        self.assertEqual([s["system"] for s in unmask.call("compare", systems=["dllm-serve", "fast-dllm"], requests=10)],
                         ["dllm-serve", "fast-dllm"])
        self.assertIn("systems", unmask.bound(requests=10, no_run=True))
        self.assertTrue(unmask.call("plan lmax", system="mosaic", gpu="rtx3090"))
        self.assertIn("dllm-serve", list(unmask.listing("systems")["name"]))

    def test_trouble_is_the_programs_sentence(self):
        with self.assertRaisesRegex(unmask.UsageError, "unknown system 'dllm-serv'; did you mean 'dllm-serve'"):
            unmask.run(system="dllm-serv")
        with self.assertRaises(unmask.Error) as raised:
            unmask.run(workload="./nowhere.csv")
        self.assertEqual(raised.exception.status, 1)
        self.assertIn("nowhere.csv", str(raised.exception))
        with self.assertRaises(unmask.UsageError):
            unmask.run(no_such_option=1)


class Tables(unittest.TestCase):
    def test_a_sweep_has_a_row_for_each_combination(self):
        table = unmask.sweep(systems=["dllm-serve", "fast-dllm"], rates=[0.2, 0.3], requests=10, gpu="l40s", seeds=2)
        self.assertEqual(len(table), 8)
        self.assertEqual(set(table["rate"]), {0.2, 0.3})
        self.assertTrue((table["latency_s.p99"] >= table["latency_s.mean"]).all())
        one = unmask.run(system="fast-dllm", rate=0.3, requests=10, gpu="l40s", seed=2)
        row = table[(table["system"] == "fast-dllm") & (table["rate"] == 0.3) & (table["seed"] == 2)]
        self.assertEqual(row["latency_s.mean"].iloc[0], one["latency_s"]["mean"])

    def test_a_key_that_commands_take_as_an_option_is_a_list(self):
        few = {"systems": "dllm-serve", "rates": 0.5, "requests": 6, "gpu": "l40s"}
        table = unmask.sweep(scheduler=["continuous", "look-ahead"], replicas=[1, 2], **few)
        self.assertTrue(table.equals(unmask.sweep(set={"scheduler": ["continuous", "look-ahead"], "replicas": [1, 2]}, **few)))
        self.assertEqual(list(zip(table["scheduler"], table["replicas"])),
                         [("continuous", 1), ("look-ahead", 1), ("continuous", 2), ("look-ahead", 2)])
        table = unmask.sweep(scheduler=ShortestFirst(), arrivals="poisson", **few)
        self.assertEqual(table["scheduler"][0], "shortest-first")
        self.assertEqual(len(unmask.sweep(host="default", **few)), 1)
        self.assertEqual(unmask.sweep(host=["default", "dllm-serve-l40s"], **few)["host"].tolist(), ["default", "dllm-serve-l40s"])
        with self.assertRaisesRegex(unmask.UsageError, "one list"):
            unmask.sweep(scheduler="continuous", set={"scheduler": ["look-ahead"]}, **few)

    def test_policies_have_names(self):
        class Named(ShortestFirst):
            name = "Mine (new)"

        class HTTPLike2(ShortestFirst):
            pass

        self.assertEqual([unmask._policy.shown_name(one) for one in (ShortestFirst(), Named(), HTTPLike2())],
                         ["shortest-first", "mine-new", "http-like2"])
        few = {"systems": "dllm-serve", "requests": 6, "gpu": "l40s"}
        with tempfile.TemporaryDirectory() as folder:
            db = os.path.join(folder, "r.db")
            table = unmask.sweep(rates=[0.3, 0.5], scheduler=[ShortestFirst(), Named(), "knee"], against="scheduler=ShortestFirst", db=db, **few)
            self.assertEqual(list(table["scheduler"]), ["shortest-first", "mine-new", "knee"] * 2)
            self.assertEqual(set(table["difference.latency_s.mean"][table["scheduler"] == "shortest-first"]), {0})
            self.assertEqual(set(unmask.read(db)["scheduler"]), {"shortest-first", "mine-new", "knee"})
            said = subprocess.run([unmask.program(), "cite", db], capture_output=True, text=True).stdout
            self.assertIn("scheduler mine-new", said)
            self.assertEqual(unmask.cite(db), said)
            self.assertIn("1 run of ", unmask.cite(db, run=1))
        table = unmask.compare(rate=0.3, over={"scheduler": [ShortestFirst(), "knee"]}, against="scheduler=shortest-first", **few)
        self.assertEqual(list(table["scheduler"]), ["shortest-first", "knee"])
        table = unmask.capacity(slo="p99 latency<60s", no_curve=True, over={"scheduler": [ShortestFirst(), "knee"]}, **few)
        self.assertEqual(list(table["scheduler"]), ["shortest-first", "knee"])
        class Twice(ShortestFirst):  # two of one name are told apart
            def __init__(self, n):
                self.n = n

        table = unmask.sweep(rates=0.3, scheduler=[Twice(1), Twice(2)], **few)
        self.assertRegex(" ".join(table["scheduler"]), "^twice-[0-9a-f]{16} twice-[0-9a-f]{16}$")

    def test_a_pair_that_cannot_be_is_a_row_beside_others(self):
        asked = {"systems": ["dllm-serve", "sdar"], "model": "llada-8b", "gpu": "h100", "requests": 20}
        for call in (lambda: unmask.compare(rate=0.3, **asked), lambda: unmask.compare(rate=0.3, seeds=2, **asked),
                     lambda: unmask.capacity(slo="p99 latency<60s", no_curve=True, **asked)):
            with self.assertWarnsRegex(UserWarning, "sdar has no result: LLaDA-8B .* is bidirectional"):
                self.assertEqual(len(call()), 2)

    def test_a_pair_that_cannot_be_is_a_row(self):
        table = unmask.sweep(systems=["dllm-serve", "sdar"], models=["llada-8b", "sdar-8b"], gpu="h100", requests=4)
        fails = table["no_result"].notna()
        self.assertEqual(fails.tolist(), [False, True, True, False])
        self.assertRegex(table["no_result"][1], "SDAR-8B-Chat is block-causal")
        self.assertTrue((table["makespan_s"][~fails] > 0).all())
        with self.assertRaisesRegex(unmask.UsageError, "block-causal"):
            unmask.sweep(systems="sdar", models="llada-8b", gpu="h100", requests=4)

    def test_a_database_is_resumed_and_read(self):
        with tempfile.TemporaryDirectory() as folder:
            db = os.path.join(folder, "r.db")
            policy = ShortestFirst()
            for _ in range(2):
                unmask.sweep(systems="dllm-serve", rates=[0.2, 0.3], requests=10, db=db,
                             set={"scheduler": ["phase-multiplexed", policy]})
            runs = unmask.read(db)
            self.assertEqual(len(runs), 4)
            self.assertIn("latency_s.p99", runs)
            self.assertEqual(runs["setup"].nunique(), 4)
            requests = unmask.read(db, "requests")
            self.assertEqual(len(requests), 40)
            self.assertEqual(set(requests["state"]), {"done"})
            with self.assertRaisesRegex(unmask.UsageError, "no table 'walks'"):
                unmask.read(db, "walks")
            with open(db, "wb") as file:
                file.write(b"no database at all" * 100)
            with self.assertRaises(unmask.Error):
                unmask.read(db)
        with self.assertRaises(unmask.Error):
            unmask.read("/nowhere.db")


    def test_a_run_on_record_twice_counts_once_and_contents_are_setups(self):
        with tempfile.TemporaryDirectory() as folder:
            db, trace = os.path.join(folder, "r.db"), os.path.join(folder, "t.csv")
            for text in ("100,64", "1000,256"):
                with open(trace, "w", encoding="utf-8") as file:
                    file.write(f"arrival_us,input_tokens,output_tokens\n0,{text}\n1000000,100,64\n")
                for seed in (1, 1, 2):
                    unmask.run(gpu="l40s", workload=trace, arrivals="poisson", rate=1, db=db, seed=seed)
            self.assertEqual(len(unmask.read(db)), 4)
            file = sqlite3.connect(db)  # as older programs recorded seed 1 again
            columns = [name for _, name, *_ in file.execute("PRAGMA table_info(runs)") if name != "run"]
            copied = ", ".join(f'"{name}"' for name in columns)
            with file:
                file.execute(f"INSERT INTO runs ({copied}) SELECT {copied} FROM runs "
                             "WHERE instr(config, char(10) || 'seed = 1' || char(10))")
            file.close()
            with self.assertWarnsRegex(UserWarning, "2 runs"):
                runs = unmask.read(db)
            self.assertEqual(len(runs), 4)
            self.assertEqual(runs.groupby("setup").size().tolist(), [2, 2])

    def test_seeds_that_draw_nothing_are_one_run(self):
        with tempfile.TemporaryDirectory() as folder:
            db, trace = os.path.join(folder, "r.db"), os.path.join(folder, "t.csv")
            with open(trace, "w", encoding="utf-8") as file:
                file.write("arrival_us,input_tokens,output_tokens\n0,100,64\n1000000,100,64\n")
            unmask.sweep(systems=["dllm-serve", "vanilla"], gpu="l40s", workload=trace, db=db, seeds=3)
            with self.assertWarnsRegex(UserWarning, "4 runs of .* draws nothing"):
                runs = unmask.read(db)
            self.assertEqual(sorted(runs["system"]), ["dllm-serve", "vanilla"])


class Traces(unittest.TestCase):
    def test_a_trace_from_a_frame_is_served(self):
        frame = pandas.DataFrame({"t": [2.0, 0.5, 1.0], "p": [100, 200, 300], "o": [64, 32, 128]})
        trace = unmask.Trace.from_df(frame, time="t", input="p", output="o")
        self.assertEqual(unmask.run(workload=trace)["requests"], 3)
        self.assertEqual(trace.info()["requests"], 3)
        stamped = frame.assign(t=pandas.to_datetime(frame["t"], unit="s"))
        self.assertEqual(unmask.run(workload=unmask.Trace.from_df(stamped, time="t", input="p", output="o"))["completed"], 3)

    def test_bad_rows_are_named(self):
        frame = pandas.DataFrame({"t": [1.0, -1.0], "p": [100, 5], "o": [64, 32]})
        with self.assertRaisesRegex(unmask.UsageError, "row 1: 't'"):
            unmask.Trace.from_df(frame, time="t", input="p", output="o")
        with self.assertRaisesRegex(unmask.UsageError, "row 0: 'p'"):
            unmask.Trace.from_df(frame.assign(t=[1.0, 2.0], p=[None, 5]), time="t", input="p", output="o")
        with self.assertRaisesRegex(unmask.UsageError, "no column 'when'"):
            unmask.Trace.from_df(frame, time="when", input="p", output="o")


class Policies(unittest.TestCase):
    base = dict(gpu="h100", system="dllm-serve", workload="burst", rate=0.5, requests=30)

    def test_a_scheduler_decides_as_the_built_in_one(self):
        mine = InOrder()
        ours, built_in = unmask.run(**self.base, scheduler=mine), unmask.run(**self.base)
        for key in ("latency_s", "steps", "makespan_s", "max_batch"):
            self.assertEqual(ours[key], built_in[key], key)
        self.assertGreater(max(mine.estimates), 0)

    def test_a_scheduler_changes_the_order(self):
        options = dict(self.base, workload="sharegpt", rate=20, set={"max_requests": 2})
        self.assertLess(unmask.run(**options, scheduler=ShortestFirst())["latency_s"]["p50"],
                        unmask.run(**options)["latency_s"]["p50"])

    def test_a_decoder_decides_as_the_built_in_one(self):
        built_in = unmask.run(system="sdar", requests=4, decoder="threshold", set={"decoder.threshold": 0.9})
        self.assertEqual(unmask.run(system="sdar", requests=4, decoder=Threshold())["tpf"], built_in["tpf"])

    def test_what_a_policy_raises_comes_out(self):
        with self.assertRaisesRegex(unmask.PolicyError, "Broken raised KeyError") as raised:
            unmask.run(**self.base, scheduler=Broken())
        self.assertIsInstance(raised.exception.__cause__, KeyError)
        with self.assertRaisesRegex(unmask.PolicyError, "at least one set"):
            unmask.run(system="sdar", requests=2, decoder=NothingChosen())

    def test_an_answer_that_may_not_be_given_is_a_sentence(self):
        with self.assertRaises(unmask.Error) as raised:
            unmask.run(**self.base, scheduler=Greedy())
        self.assertIn("slot", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
