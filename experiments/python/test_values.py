"""Tests of values and times as Python people hand them: `make wheel-test`."""

import collections
import datetime
import importlib.util
import decimal
import enum
import fractions
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import types
import unittest
import zoneinfo

import numpy
import pandas

import unmask
from unmask import _values
from unmask._trace import arrivals_us, microseconds_of


class System(enum.Enum):
    OURS = "dllm-serve"


class Rate(float, enum.Enum):
    LOW = 0.25


class Few(unmask.Scheduler):
    pass


def words(**options):
    return _values.arguments(options, None)


def file(**axes):
    return _values.sweep_file(axes, None)


class Words(unittest.TestCase):
    def test_values_are_what_they_say(self):
        for value, word in ((1, "1"), (0.1, "0.1"), (numpy.float64(0.1), "0.1"), (numpy.float32(0.1), "0.1"), (numpy.int64(7), "7"),
                            (numpy.uint8(7), "7"), (numpy.array(0.5), "0.5"), (numpy.str_("x"), "x"), (decimal.Decimal("0.10"), "0.10"),
                            (decimal.Decimal("1E+3"), "1000"), (fractions.Fraction(1, 4), "0.25"), (System.OURS, "dllm-serve"),
                            (Rate.LOW, "0.25"), (pathlib.Path("a/b"), "a/b"), (b"a/b", "a/b"), ("x,y", "x,y"), (float("1e-9"), "1e-09"),
                            (datetime.timedelta(seconds=30), "30000000us"), (pandas.Timedelta("1.5s"), "1500000us"),
                            (numpy.timedelta64(2, "ms"), "2000us"), (numpy.float16(0.5), "0.5"), (pandas.Series([3])[0], "3")):
            self.assertEqual(words(rate=value), ["--rate", word], value)
        for true in (True, numpy.bool_(True), numpy.array(True)):
            self.assertEqual(words(bound=true), ["--bound"])
            self.assertEqual(words(set={"a": true}), ["--set", "a=on"])
        for nothing in (None, False, numpy.bool_(False)):
            self.assertEqual(words(bound=nothing), [])

    def test_lists_are_whatever_can_be_iterated_over(self):
        rates = [0.1, 0.2, 0.5]
        made = {0.1: 1, 0.2: 1, 0.5: 1}
        for several in (rates, tuple(rates), numpy.array(rates), pandas.Series(rates, index=[5, 6, 7]), pandas.Index(rates),
                        (r for r in rates), map(float, rates), iter(rates), made.keys(), dict(enumerate(rates)).values(), set(rates),
                        frozenset(rates), collections.deque(rates), pandas.Series(rates, dtype="Float64"), pandas.array(rates),
                        numpy.array(rates, dtype=object), filter(None, rates), reversed(rates[::-1]), memoryview(numpy.array(rates))):
            self.assertEqual(words(rates=several), ["--rates", "0.1,0.2,0.5"], several)
        self.assertEqual(words(seeds=range(3)), ["--seeds", "0,1,2"])
        self.assertEqual(words(slo=iter(["a", "b"])), ["--slo", "a", "--slo", "b"])
        self.assertEqual(words(set=types.MappingProxyType({"a": numpy.float64(0.5)})), ["--set", "a=0.5"])
        self.assertEqual(words(gpus=pandas.Categorical(["l40s", "h100"])), ["--gpus", "l40s,h100"])
        self.assertEqual(words(systems={"b", "a"}), ["--systems", "a,b"])

    def test_pairs_are_one_list_or_one_each(self):
        for options, words in (
                (dict(price={"h100": 2.5, "l40s": 1}), ["--price", "h100=2.5,l40s=1"]),
                (dict(where={"status": 200, "region": "eu"}), ["--where", "status=200,region=eu"]),
                (dict(columns={"time": "ts:s", "input": "prompt"}), ["--columns", "time=ts:s,input=prompt"]),
                (dict(set={"cache.retention": 0.5, "replicas": 2}), ["--set", "cache.retention=0.5", "--set", "replicas=2"]),
                (dict(over={"gpu": ["a", "b"], "replicas": [1, 2]}), ["--over", "gpu=a,b", "--over", "replicas=1,2"])):
            self.assertEqual(_values.arguments(options, None), words)

    def test_what_cannot_be_meant_is_refused_by_name(self):
        for value in (Few, unmask.Trace, object(), 1j, datetime.datetime(2026, 1, 1), datetime.time(1), pandas.NaT, pandas.NA,
                      [], [[0.1]], {"a": 1}.items(), numpy.zeros((2, 2)), pandas.DataFrame({"a": [1]}), [None], [0.1, None], len, System,
                      (n for n in ()), lambda: 1, decimal.Decimal("NaN"), numpy.timedelta64("NaT"), numpy.timedelta64(1, "M"), sys, slice(3)):
            with self.assertRaisesRegex(unmask.UsageError, "^rate"):
                words(rate=value)
            with self.assertRaisesRegex(unmask.UsageError, "retention"):
                words(set={"cache.retention": value})
            with self.assertRaisesRegex(unmask.UsageError, "set.cache"):
                file(**{"set.cache": value})
        for value in (None, {"a": None}):
            with self.assertRaisesRegex(unmask.UsageError, "cache"):
                words(set={"cache": value})
        for word in ("a,b", "a;b", "a\nb", "#a", "", "x" * 200):
            with self.assertRaises(unmask.UsageError):
                file(systems=[word])
        with self.assertRaisesRegex(unmask.UsageError, "system= and systems="):
            unmask.sweep(system="dllm-serve", systems=["fast-dllm"])
        with self.assertRaisesRegex(unmask.UsageError, "seed= and seeds="):
            unmask.sweep(seed=1, seeds=[2])
        for seeds in (0, -1, 1.5, True, "many"):
            with self.assertRaises(unmask.UsageError):
                unmask.sweep(systems="dllm-serve", seeds=seeds)


class Grids(unittest.TestCase):
    def test_long_lists(self):
        table = unmask.sweep(systems="dllm-serve", rates=numpy.linspace(0.1, 1, 300), requests=1, gpu="l40s")
        self.assertEqual(table["rate"].tolist(), numpy.linspace(0.1, 1, 300).tolist())
        table = unmask.sweep(systems="dllm-serve", requests=1, gpu="l40s", seeds=numpy.int64(70))
        self.assertEqual(table["seed"].tolist(), list(range(1, 71)))

    def test_a_seed_is_that_seed(self):
        table = unmask.sweep(systems="dllm-serve", requests=10, gpu="l40s", rate=0.3, seed=7)
        self.assertEqual(table["seed"].tolist(), [7])
        self.assertEqual(table["latency_s.mean"][0],
                         unmask.run(system="dllm-serve", requests=10, gpu="l40s", rate=0.3, seed=7)["latency_s"]["mean"])
        self.assertEqual(unmask.sweep(systems="dllm-serve", requests=1, seed=[5, 9])["seed"].tolist(), [5, 9])

    def test_what_was_varied_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            db = os.path.join(folder, "r.db")
            axes = dict(rates=[0.2, 0.3], input_tokens=[64, 128], workloads=["burst", "sharegpt"],
                        set={"cache.retention": [0.3, 0.5], "scheduler.stop_at_misfit": [True, False]})
            table = unmask.sweep(systems="dllm-serve", requests=2, gpu="l40s", db=db, **axes)
            names = ["rate", "input_tokens", "workload", "cache.retention", "scheduler.stop_at_misfit"]
            read = unmask.read(db)
            key = [*names, "latency_s.mean"]
            self.assertEqual(sorted(map(repr, read[key].values.tolist())), sorted(map(repr, table[key].values.tolist())))


def moments(values, **how):
    return list(arrivals_us(pandas.Series(values, **how), "t", "s"))


class Times(unittest.TestCase):
    def test_each_kind_is_right_to_the_microsecond(self):
        lengths = [datetime.timedelta(0), datetime.timedelta(microseconds=1), datetime.timedelta(days=400, microseconds=3)]
        us = [0, 1, 400 * 86400 * 10**6 + 3]
        for kind in (object, "timedelta64[ns]", "timedelta64[us]"):
            self.assertEqual(moments(lengths, dtype=kind), us)
        self.assertEqual(moments(numpy.array([1, 2], dtype="timedelta64[s]")), [10**6, 2 * 10**6])
        self.assertEqual(moments([numpy.timedelta64(3, "ms"), numpy.timedelta64(1, "h")], dtype=object), [3000, 3600 * 10**6])
        first = datetime.datetime(2026, 3, 29, 0, 59, 59, 999999)
        when = [first + length for length in lengths]
        berlin = zoneinfo.ZoneInfo("Europe/Berlin")
        for zone in (None, datetime.timezone.utc, berlin, datetime.timezone(datetime.timedelta(hours=-7, minutes=-30))):
            zoned = [w.replace(tzinfo=datetime.timezone.utc).astimezone(zone) if zone else w for w in when]
            self.assertEqual(moments(zoned), us, zone)
            self.assertEqual(moments(zoned, dtype=object), us, zone)
            self.assertEqual(moments([w.isoformat() for w in zoned]), us, zone)
            self.assertEqual(moments([w.isoformat(" ") for w in zoned]), us, zone)
        for unit, n in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
            stamps = numpy.array([1767225600 * n, 1767225601 * n], dtype=f"datetime64[{unit}]")
            self.assertEqual(moments(stamps), [0, 10**6])
            self.assertEqual(moments(list(stamps), dtype=object), [0, 10**6])
            if unit != "ns":
                self.assertEqual(moments(numpy.array(["1500-01-01", "2500-01-01"], dtype=f"datetime64[{unit}]")),
                                 [0, (datetime.datetime(2500, 1, 1) - datetime.datetime(1500, 1, 1)) // datetime.timedelta(microseconds=1)])
        self.assertEqual(moments(pandas.period_range("2026-01-01", periods=3, freq="h")), [0, 3600 * 10**6, 7200 * 10**6])
        self.assertEqual(moments([datetime.date(2026, 1, 1), datetime.date(2026, 1, 3)]), [0, 2 * 86400 * 10**6])
        self.assertEqual(moments(["2026-01-01T00:00:00Z", "2026-01-01T01:00:00.5+01:00", "2026-01-01 00:00:01 UTC"]), [0, 500000, 10**6])
        self.assertEqual(moments(["2026-01-01T00:00:00,25Z", "20260101T000001Z"]), [0, 750000])
        self.assertEqual(moments(pandas.Series(["2026-01-01", "2026-01-02"], dtype="string")), [0, 86400 * 10**6])
        self.assertEqual(moments(pandas.Series(["2026-01-01", "2026-01-02"], dtype="category")), [0, 86400 * 10**6])

    def test_numbers_are_in_their_unit(self):
        for unit, n in (("s", 10**6), ("ms", 10**3), ("us", 1)):
            for kind in ("int64", "float64", "Int64", "Float64", object, "uint32"):
                self.assertEqual(list(arrivals_us(pandas.Series([0, 1, 3], dtype=kind), "t", unit)), [0, n, 3 * n])
        self.assertEqual(list(arrivals_us(pandas.Series([1767225600123456789]), "t", "ns")), [1767225600123457])
        self.assertEqual(moments([0.000001, 1767225600.123456]), [1, 1767225600123456])
        self.assertEqual(moments([decimal.Decimal("1767225600.123456"), decimal.Decimal("0.1")]), [1767225600123456, 100000])
        self.assertEqual(moments(["0.5", "1e1"]), [500000, 10**7])

    def test_what_is_no_time_is_refused_by_its_row(self):
        stamp = datetime.datetime(2026, 1, 1)
        zoned = stamp.replace(tzinfo=datetime.timezone.utc)
        for values in ([0.0, -1.0], [0.0, float("nan")], [0.0, float("inf")], [0, None], [stamp, None], [stamp, zoned], [stamp, 3.0], [3.0, stamp],
                       ["2026-01-01", "01/02/2026"], ["2026-01-01T00:00:00", "2026-01-01T00:00:00Z"], ["2026-01-01", "3"], ["3", "2026-01-01"],
                       ["2026-01-01", "2026-13-01"], [0, True], [0, 1j], [0, "x"], [stamp, pandas.NaT], [datetime.timedelta(1), 3],
                       [0, datetime.timedelta(1)], [datetime.timedelta(1), -datetime.timedelta(1)], [0, 1e300], [stamp, datetime.time(1)],
                       [0, object()], [0, [1]]):
            with self.assertRaisesRegex(unmask.UsageError, "row 1: 't' is"):
                arrivals_us(pandas.Series(values, dtype=object), "t", "s")
        for values in ([True, False], [pandas.NaT, pandas.NaT], [pandas.Timedelta("-1s")], numpy.array([2**62]), ["a"], [datetime.time(1)]):
            with self.assertRaisesRegex(unmask.UsageError, "row 0: 't' is"):
                moments(values)
        with self.assertRaisesRegex(unmask.UsageError, "unit 'minutes'"):
            arrivals_us(pandas.Series([1]), "t", "minutes")

    def test_columns_of_one_type_are_read_as_each_value_is(self):
        draw = numpy.random.default_rng(5).integers
        for unit, most in (("s", 2**62 // 10**6), ("ms", 2**62 // 1000), ("us", 2**62), ("ns", 2**63 - 501)):
            edges = [0, 1, 499, 500, 999, 1000, 1499, 1500, most - 1, most]
            for kind in ("int64", "uint64", "Int64", object):
                column = pandas.Series([*edges, *(int(draw(0, 2**k)) for k in range(1, 40))], dtype=kind)
                us = [int(i) * {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit] for i in column]
                self.assertEqual([int(i) for i in arrivals_us(column, "t", unit)], [(2 * ns + 1000) // 2000 for ns in us], (unit, kind))
                if unit != "ns":
                    with self.assertRaisesRegex(unmask.UsageError, "row 1: 't' is"):
                        arrivals_us(pandas.Series([0, most + 1], dtype=kind), "t", unit)
                if kind != "uint64":
                    with self.assertRaisesRegex(unmask.UsageError, "row 1: 't' is -1, not a time"):
                        arrivals_us(pandas.Series([0, -1], dtype=kind), "t", unit)
            self.assertEqual([int(i) for i in arrivals_us(pandas.Series([2**62 // 10**6], dtype=object), "t", "s")], [2**62 // 10**6 * 10**6])
        begin = pandas.Timestamp("2026-01-01")
        for ns, us in ((0, 0), (499, 0), (500, 1), (1499, 1), (1500, 2), (999_999_500, 10**6)):
            for kind in ("datetime64[ns]", object):
                self.assertEqual(moments([begin, begin + pandas.Timedelta(ns, "ns")], dtype=kind), [0, us], (ns, kind))
            for kind in ("timedelta64[ns]", object):
                self.assertEqual(moments([pandas.Timedelta(0), pandas.Timedelta(ns, "ns")], dtype=kind), [0, us], (ns, kind))
        for kind in "timedelta64[ns]", object:
            with self.assertRaisesRegex(unmask.UsageError, "row 1: 't' is"):
                moments([pandas.Timedelta(0), pandas.Timedelta(-1, "ns")], dtype=kind)
        for unit, s in (("W", 604800), ("D", 86400), ("h", 3600), ("m", 60), ("s", 1)):
            self.assertEqual(moments([numpy.timedelta64(0, unit), numpy.timedelta64(2, unit)], dtype=object), [0, 2 * s * 10**6])
            self.assertEqual(microseconds_of(numpy.array([3], dtype=f"timedelta64[5{unit}]")[0]), 15 * s * 10**6)
        for kind in (object, None):  # neither is in order
            self.assertEqual(moments([begin + pandas.Timedelta("1s"), begin], dtype=kind), [10**6, 0])
        for empty in (pandas.Series([], dtype=kind) for kind in ("int64", "float64", object, "datetime64[ns]", "timedelta64[ns]")):
            self.assertEqual(list(arrivals_us(empty, "t", "s")), [])

    def test_rows_are_written_as_they_are(self):
        frame = pandas.DataFrame({"t": [1, 0, 1], "p": [10, 20, 30], "o": [1, 2, 3], "x": [5, 6, 0], "a": [1, 1, 2], "who": ["b", "a", "b"],
                                  "n": [2, 1, 2], "s": ["one", None, 7], "w": [0.5, None, 0.0]}, index=[7, 8, 9])

        def written(**columns):
            return unmask.Trace.from_df(frame, input="p", output="o", **columns)._content.decode().replace("\r", "").split("\n")

        self.assertEqual(written(time=None), ["input_tokens,output_tokens", "10,1", "20,2", "30,3", ""])
        self.assertEqual(written(time="t", unit="ms"), ["arrival_us,input_tokens,output_tokens", "0,20,2", "1000,10,1", "1000,30,3", ""])
        self.assertEqual(written(time=None, prefix="x", answer="a", tenant="n"),
                         ["input_tokens,output_tokens,tenant,prefix_tokens,answer_tokens", "10,1,2,5,1", "20,2,1,6,1", "30,3,2,0,2", ""])
        self.assertEqual(written(time="t", tenant="who", session="s", think="w"),
                         ["arrival_us,input_tokens,output_tokens,tenant,session,think_us", "0,20,2,a,,", "1000000,10,1,b,one,500000",
                          "1000000,30,3,b,7,0", ""])
        for column, bad in (("tenant", "s"), ("prefix", "w"), ("answer", "w"), ("prefix", "who")):
            with self.assertRaisesRegex(unmask.UsageError, f"row [789]: '{bad}' is"):
                written(time=None, **{column: bad})
        for name in ("time", "tenant", "prefix", "answer", "session", "think"):
            with self.assertRaisesRegex(unmask.UsageError, "no column 'q'; it has t, p, o, x, a, who, n, s, w$"):
                written(**{"time": "t", name: "q"})
        for other in (3, "x", None):
            with self.assertRaisesRegex(unmask.UsageError, "expected a DataFrame, got a "):
                unmask.Trace.from_df(other)
        rows = [{"t": 0, "p": 10, "o": 1}]
        self.assertEqual(unmask.Trace.from_df(rows, time="t", input="p", output="o").path,
                         unmask.Trace.from_df({"t": [0.0], "p": [10], "o": [1]}, time="t", input="p", output="o").path)

    def test_tokens_are_whole_numbers(self):
        frame = pandas.DataFrame({"t": [0.0, 1.0], "p": [100, 5], "o": [64, 32]})
        for bad in (float("inf"), -1, 1.5, "x", None, 2.0**53):
            with self.assertRaisesRegex(unmask.UsageError, "row 1: 'p'"):
                unmask.Trace.from_df(frame.assign(p=pandas.Series([1, bad], dtype=object)), time="t", input="p", output="o")
        for kind in ("Int64", "float64", "uint8", object):
            trace = unmask.Trace.from_df(frame.astype({"p": kind}), time="t", input="p", output="o")
            self.assertEqual(trace.info()["requests"], 2)
        for most in (2**53 - 1, 0):
            self.assertIn(f"0,{most},64", unmask.Trace.from_df(frame.assign(p=[most, 5]), time="t", input="p", output="o")._content.decode())
        with self.assertRaisesRegex(unmask.UsageError, "row 0: 'p'"):
            unmask.Trace.from_df(frame.assign(p=[True, False]), time="t", input="p", output="o")


FRAME = pandas.DataFrame({"t": [2.0, 0.5, 1.0], "p": [100, 200, 300], "o": [64, 32, 128]})


def made(frame=FRAME):
    return unmask.Trace.from_df(frame, time="t", input="p", output="o")


class Traces(unittest.TestCase):
    def test_a_trace_is_named_by_its_content(self):
        self.assertEqual(made().path, made().path)
        self.assertNotEqual(made().path, made(FRAME.assign(p=[100, 200, 301])).path)
        with tempfile.TemporaryDirectory() as folder:
            db = os.path.join(folder, "r.db")
            for rows, frame in ((1, FRAME), (1, FRAME.copy()), (2, FRAME.assign(p=[100, 200, 301]))):
                unmask.sweep(systems="dllm-serve", workloads=made(frame), gpus="l40s", db=db)
                self.assertEqual(len(unmask.read(db)), rows)
            made().save(os.path.join(folder, "t.csv"))
            self.assertEqual(unmask.Trace(os.path.join(folder, "t.csv")).info()["requests"], 3)

    def test_it_is_there_as_long_as_anybody_uses_it(self):
        trace, other = made(), made()
        path = trace.path
        self.assertEqual(other.path, path)
        for how in ("fork", "spawn"):
            with multiprocessing.get_context(how).Pool(1) as pool:
                self.assertEqual(pool.map(served, [trace]), [3])
        child = os.fork()
        if child == 0:
            trace.path
            del trace, other
            os._exit(0)
        os.waitpid(child, 0)
        ended = os.fork()
        if ended == 0:
            os.execv(sys.executable, [sys.executable, "-c", ""])
        os.waitpid(ended, 0)
        self.assertTrue(os.path.exists(path))
        del trace
        self.assertTrue(os.path.exists(path))
        again = pickle.loads(pickle.dumps(other))
        del other
        self.assertFalse(os.path.exists(path))
        self.assertEqual(again.path, path)
        self.assertTrue(os.path.exists(path))

    def test_a_forked_child_that_exits_leaves_it(self):
        code = ("import os, sys, pandas, unmask\ntrace = unmask.Trace.from_df(pandas.DataFrame({'t': [0], 'p': [9], 'o': [9]}), time='t', "
                "input='p', output='o')\npath = trace.path\nif os.fork() == 0:\n    sys.exit()\nos.wait()\nassert os.path.exists(path)\n"
                "print(trace.info()['requests'], path)")
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(unmask.__file__))}
        said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        self.assertTrue(said.stdout.startswith("1 "), said)
        self.assertFalse(os.path.exists(said.stdout.split()[1]))


@unittest.skipIf(importlib.util.find_spec("polars") is None, "no polars")
class Polars(unittest.TestCase):
    def test_frames_and_columns_are_taken(self):
        import polars

        self.assertEqual(made(polars.from_dict(FRAME.to_dict("list"))).path, made().path)
        self.assertEqual(len(unmask.sweep(rates=polars.Series([0.1, 0.2]), requests=3)), 2)


def served(trace):
    return unmask.run(workload=trace, gpu="l40s")["completed"]


if __name__ == "__main__":
    unittest.main()
