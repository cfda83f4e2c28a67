"""Tests of tables and their units, plots, figures, reports and stubs: `make wheel-test`."""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

import pandas

import unmask
from unmask import _tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOAD = dict(gpu="l40s", requests=20)


class Axes:
    """What is drawn on axes of matplotlib, kept."""

    def __init__(self):
        self.lines, self.bars, self.said = [], [], {}

    def errorbar(self, x, y, yerr, label, **style):
        self.lines.append((list(x), list(y), yerr and list(yerr), label, style))

    def bar(self, x, height, width, yerr, label, **style):
        self.bars.append((list(x), list(height), width, yerr and list(yerr), label, style))

    def __getattr__(self, name):
        return lambda *words, **named: self.said.update({name: words or named})


def setUpModule():
    if "matplotlib" not in sys.modules:
        try:
            import matplotlib  # noqa: F401
        except ImportError:  # nothing of it is used on axes that are there already
            sys.modules["matplotlib"] = types.ModuleType("matplotlib")


class Units(unittest.TestCase):
    def test_tables_know_the_units_of_their_columns(self):
        with tempfile.TemporaryDirectory() as folder:
            db = os.path.join(folder, "r.db")
            sweep = unmask.sweep(systems=["dllm-serve", "fast-dllm"], rates=[0.2, 0.3], db=db, **LOAD)
            runs, requests = unmask.read(db), unmask.read(db, "requests")
        compare = unmask.compare(systems=["dllm-serve", "fast-dllm"], seeds=2, **LOAD)
        capacity = unmask.capacity(systems=["dllm-serve", "fast-dllm"], slo="p99 latency<60s", no_curve=True, gpu="l40s", requests=100)
        for table, column, unit in (
                (sweep, "latency_s.p99", "s"), (sweep, "rate", "requests/s"), (sweep, "throughput_tok_s", "tokens/s"),
                (sweep, "kv_peak_bytes", "bytes"), (sweep, "attainment", "share"), (runs, "latency_s.p99", "s"),
                (requests, "arrival_ns", "ns"), (requests, "prompt_tokens", "tokens"), (compare, "spread.latency_s.mean.low", "s"),
                (compare, "differences.throughput_tok_s.mean", "tokens/s"), (capacity, "capacity_req_s.mean", "requests/s"),
                (capacity, "bound_req_s", "requests/s")):
            self.assertEqual(table.attrs["units"].get(column), unit, column)
        for table, column in ((sweep, "system"), (sweep, "warnings"), (compare, "differences.latency_s.mean.differs"),
                              (compare, "differences.goodput_req_s.differs"), (capacity, "on_front")):
            self.assertIn(column, table)
            self.assertNotIn(column, table.attrs["units"])
        self.assertEqual((sweep.attrs["varied"], runs.attrs["varied"][:2]), (["system", "gpu", "rate", "requests"], ["system", "rate"]))
        self.assertEqual((capacity.attrs["workload"], capacity.attrs["objectives"]), ("burst", ["p99 latency<60s"]))
        self.assertEqual(list(compare["system"]), ["dllm-serve", "fast-dllm"])
        self.assertEqual(list(capacity["system"]), ["dllm-serve", "fast-dllm"])
        self.assertTrue((capacity["capacity_req_s.mean"] > 0).all())

    def test_costs_and_lists_have_units(self):
        asked = dict(gpu="h100", system="dllm-serve", requests=100, slo="p99 latency<60s")
        for unit, options in (("USD/h", dict(price="h100=2")), ("GPUs", {})):
            for fleet in dict(no_curve=True), dict(rate=0.5):
                table = unmask.capacity(**asked, **options, **fleet)
                for column in table:
                    if column.startswith("cost"):
                        self.assertEqual(table.attrs["units"].get(column), unit, column)
                self.assertIn("cost", table)
            value = table["at_capacity.p99 latency_s"][0]  # of the fleet; more requests alone would tell the other's rate
            self.assertTrue(0 < value < 60)
            self.assertEqual(value, table["by_seed"][0][0]["at_capacity"]["values"]["p99 latency"])
            self.assertTrue(0.95 < table["at_capacity.attainment"][0] <= 1)
            self.assertEqual([table.attrs["units"][f"at_capacity.{of}"] for of in ("p99 latency_s", "attainment")], ["s", "share"])
        self.assertEqual(unmask.listing("gpus").attrs["units"]["memory"], "bytes")
        self.assertEqual(unmask.listing("models").attrs["units"]["KV/token"], "bytes")

    def test_prices_are_a_dict(self):
        table = unmask.capacity(slo="p99 latency<60s", rate=0.5, requests=50, system="vllm-ar", over={"gpu": ["h100", "h200"]},
                                price={"h100": 2, "h200": 3.5})
        self.assertEqual((table["cost"] / table["gpus"]).tolist(), [2, 3.5])
        self.assertEqual(table["requests"].tolist(), [one[0]["requests"] for one in table["by_seed"]])

    def test_a_slip_among_good_values_ends_a_sweep(self):
        with self.assertRaisesRegex(unmask.UsageError, "unknown scheduler 'kneee'; did you mean 'knee'"):
            unmask.sweep(systems="dllm-serve", requests=900000000, set={"scheduler": ["knee", "kneee"]})

    def test_what_does_not_fit_is_a_row(self):
        options = dict(gpu="h100", system="sdar", requests=20, set={"model.layers": 100})
        found = unmask.capacity(**options, slo="p99 latency<60s", no_curve=True, over={"gpu": ["rtx4090", "h100"]})
        self.assertRegex(found["no_result"][0], "does not fit into NVIDIA GeForce RTX 4090")
        self.assertTrue(pandas.isna(found["no_result"][1]))
        found = unmask.compare(gpu="rtx4090", systems=["dllm-serve", "fast-dllm"], requests=4, set={"model.layers": 320})
        self.assertEqual(found["no_result"].str.contains("does not fit").tolist(), [True, True])
        with self.assertWarnsRegex(UserWarning, "1 of 2 points have no result; the first: .*has no 'moe' rows"):
            found = unmask.sweep(systems="sdar", models=["sdar-8b", "llada2-flash"], gpu="rtx4090", requests=4)
        self.assertTrue(pandas.isna(found["no_result"][0]) and found["makespan_s"][0] > 0)
        self.assertIn("has no 'moe' rows", found["no_result"][1])

    def test_a_sweep_has_differences_paired_by_seed(self):
        table = unmask.sweep(systems="dllm-serve", rates=[0.3], seeds=2, set={"scheduler": ["knee", "continuous"]},
                             against="scheduler=knee", **LOAD)
        knee, other = table[table["scheduler"] == "knee"], table[table["scheduler"] == "continuous"]
        self.assertTrue((knee["difference.latency_s.mean"] == 0).all())
        self.assertEqual(list(other["difference.latency_s.mean"]),
                         [a - b for a, b in zip(other["latency_s.mean"], knee["latency_s.mean"])])
        self.assertEqual(table.attrs["units"]["difference.latency_s.mean"], "s")

    def test_where_no_point_has_a_result_the_call_fails(self):
        with self.assertRaisesRegex(unmask.Error, "has no 'moe' rows"):
            unmask.sweep(systems="sdar", models="llada2-flash", gpu="rtx4090", requests=4)

    def test_without_pandas_a_sentence_names_it(self):
        with unittest.mock.patch.dict(sys.modules, {"pandas": None}):
            self.assertGreater(unmask.run(requests=4)["makespan_s"], 0)
            for what, call in (("sweep", lambda: unmask.sweep(systems="dllm-serve", requests=4)),
                               ("compare", lambda: unmask.compare(systems="dllm-serve,fast-dllm", requests=4)),
                               ("capacity", lambda: unmask.capacity(slo="p99 latency<60s", requests=20, no_curve=True)),
                               ("read", lambda: unmask.read("r.db")), ("listing", lambda: unmask.listing("gpus"))):
                with self.assertRaisesRegex(ImportError, f"^{what} needs pandas, which cannot be imported .*: pip install pandas$") as raised:
                    call()
                self.assertIsInstance(raised.exception, unmask.Error)
            with unittest.mock.patch.object(unmask, "_ask", side_effect=AssertionError("it ran first")):
                for call in (lambda: unmask.compare(requests=4), lambda: unmask.capacity(slo="p99 latency<60s"),
                             lambda: unmask.sweep(requests=4)):
                    self.assertRaisesRegex(ImportError, "needs pandas", call)


class Plots(unittest.TestCase):
    FRAME = pandas.DataFrame({"rate": [1, 2, 1, 2, 1, 2, 1, 2], "system": ["a"] * 4 + ["b"] * 4, "seed": [1, 1, 2, 2] * 2,
                              "latency_s.p99": [1.0, 3.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0]})

    def test_means_with_intervals_over_seeds_are_drawn(self):
        ax = Axes()
        self.assertIs(unmask.plot(self.FRAME, "rate", "latency_s.p99", by="system", ax=ax, marker="s"), ax)
        (x, y, half, label, style), second = ax.lines
        self.assertEqual((x, y, label, style["marker"]), ([1, 2], [1.5, 3], "a", "s"))
        self.assertAlmostEqual(half[0], 12.706 * 0.5, 3)  # Student's t with one degree of freedom
        self.assertEqual(half[1], 0)
        self.assertEqual((second[1], second[3]), ([6, 7], "b"))
        self.assertEqual((ax.said["set_xlabel"], ax.said["set_ylabel"]), (("rate (requests/s)",), ("p99 latency (s)",)))
        self.assertEqual(ax.said["legend"], {"title": "system"})

    def test_differences_are_paired_by_seed(self):
        ax = Axes()
        unmask.plot(self.FRAME, "rate", "latency_s.p99", by="system", against="system=a", ax=ax)
        (x, y, half, label, _), = ax.lines
        self.assertEqual((x, y, label), ([1, 2], [4.5, 4.0], "b"))
        self.assertAlmostEqual(half[0], 12.706 * 0.5, 3)  # of 4 and 5
        self.assertEqual(ax.said["set_ylabel"], ("difference of p99 latency (s) to a",))
        blank = Axes()
        unmask.plot(self.FRAME, "rate", "latency_s.p99", by="system", against=" system = a", ax=blank)
        self.assertEqual(blank.lines[0][1], [4.5, 4.0])
        # What one scheduler alone has does not keep its runs from another's.
        frame = self.FRAME.assign(**{"system.knob": [1.0] * 4 + [float("nan")] * 4})
        frame.attrs["varied"], again = ["system", "system.knob", "rate"], Axes()
        unmask.plot(frame, "rate", "latency_s.p99", by="system", against="system=a", ax=again)
        self.assertEqual(again.lines[0][1], [4.5, 4.0])
        for sentence, against in (("is no text KEY=VALUE", "system"), ("no row has it; there is a, b", "system=c"),
                                  ("there is no column 'nobody'", "nobody=1"), ("the axis x is 'rate'", "rate=1")):
            with self.assertRaisesRegex(unmask.UsageError, sentence):
                unmask.plot(self.FRAME, "rate", "latency_s.p99", by="system", against=against, ax=Axes())

    def test_one_seed_has_no_interval_and_words_are_bars(self):
        ax = Axes()
        unmask.plot(self.FRAME[self.FRAME["seed"] == 1], "system", "latency_s.p99", by=["rate"], ax=ax)
        self.assertEqual([(bar[1], bar[3], bar[4]) for bar in ax.bars], [([1.0, 5.0], None, "1"), ([3.0, 6.0], None, "2")])
        places = [bar[0] for bar in ax.bars]
        self.assertTrue(all(abs(places[1][i] - places[0][i] - ax.bars[0][2]) < 1e-12 and abs(sum(p[i] for p in places) / 2 - i) < 1e-12
                            for i in (0, 1)))
        self.assertEqual(ax.said["set_xticks"][1], ["a", "b"])

    def test_what_differs_in_more_than_the_seed_is_never_averaged(self):
        frame = self.FRAME.copy()
        frame.attrs["varied"] = ["system", "rate", "seed"]
        with self.assertRaisesRegex(unmask.UsageError, "4 rows at rate = 1 differ in more than the seed: by='system' tells them apart"):
            unmask.plot(frame, "rate", "latency_s.p99", ax=Axes())
        with self.assertRaisesRegex(unmask.UsageError, "differ in more than the seed: a column in by= tells them apart"):
            unmask.plot(pandas.DataFrame({"x": [1, 1], "y": [2, 3]}), "x", "y", ax=Axes())
        with self.assertRaisesRegex(unmask.UsageError, "differ in more"):  # seeds of two setups
            unmask.plot(frame[frame["system"] == "a"].assign(setup=["p", "p", "q", "q"]), "rate", "latency_s.p99", ax=Axes())

    def test_a_database_is_drawn_by_its_path(self):
        with tempfile.TemporaryDirectory() as folder:
            db = pathlib.Path(folder) / "r.db"
            table, ax = unmask.sweep(systems="dllm-serve", rates=[0.2, 0.3], seeds=2, db=db, **LOAD), Axes()
            unmask.plot(db, "rate", "latency_s.mean", ax=ax)
            self.assertEqual(ax.lines[0][1], list(table.groupby("rate")["latency_s.mean"].mean()))

    def test_bad_input_is_a_sentence(self):
        for sentence, words in (("there is no column 'latency_s.p9'; did you mean 'latency_s.p99'", ("rate", "latency_s.p9")),
                                ("system are words, expected numbers", ("rate", "system")),
                                ("there is no column '1'$", (1, "system"))):
            with self.assertRaisesRegex(unmask.UsageError, sentence):
                unmask.plot(self.FRAME, *words, ax=Axes())
        with self.assertRaisesRegex(unmask.UsageError, "a dict is no table"):
            unmask.plot({}, "x", "y")
        with self.assertRaisesRegex(unmask.UsageError, "no row has a value of y"), self.assertWarns(UserWarning):
            unmask.plot(pandas.DataFrame({"x": [1.0], "y": [None]}), "x", "y", ax=Axes())
        with self.assertWarnsRegex(UserWarning, "1 of 2 rows have no y and are left out"):
            unmask.plot(pandas.DataFrame({"x": [1, 2], "y": [1.0, None]}), "x", "y", ax=Axes())
        with unittest.mock.patch.dict(sys.modules, {"matplotlib": None, "matplotlib.pyplot": None}), self.assertRaisesRegex(
                ImportError, "plot needs matplotlib, which cannot be imported .*: pip install matplotlib"):
            unmask.plot(self.FRAME, "rate", "latency_s.p99", by="system")

    def test_quantiles_are_students(self):
        for n, t in (1, 12.706), (9, 2.262), (11, 2.201), (25, 2.060), (40, 2.021), (1000, 1.962):
            self.assertAlmostEqual(_tables.t_quantile(n), t, 2)


class Drawn(unittest.TestCase):
    def test_a_figure_is_its_table_its_paper_and_its_drawing(self):
        with tempfile.TemporaryDirectory() as folder:
            figure = unmask.figure("mosaic-fig9-measured", out=folder)
            self.assertEqual({path.suffix for path in pathlib.Path(folder).iterdir()} & {".csv", ".svg"}, {".csv", ".svg"})
            figure.save(f"{folder}/mine.svg")
            self.assertEqual(pathlib.Path(f"{folder}/mine.svg").read_text(), figure.svg)
            with self.assertRaisesRegex(unmask.UsageError, r"mine.txt ends with none of .*\.csv"):
                figure.save(f"{folder}/mine.txt")
        self.assertTrue(figure.svg.lstrip().startswith("<") and figure._repr_svg_() == figure.svg)
        self.assertLessEqual({"series", "x", "y"}, set(figure.table.columns))
        self.assertTrue(figure.paper is None or "ours" in figure.paper)
        self.assertIn("<Figure mosaic-fig9-measured: ", repr(figure))
        with self.assertRaisesRegex(unmask.Error, "no-such-figure"):
            unmask.figure("no-such-figure")

    def test_a_report_is_a_page(self):
        with tempfile.TemporaryDirectory() as folder:
            unmask.run(requests=4, db=f"{folder}/r.db")
            self.assertIn("<html", unmask.report(f"{folder}/r.db", f"{folder}/r.html").read_text())
            with self.assertRaisesRegex(unmask.Error, "nowhere.db"):
                unmask.report(f"{folder}/nowhere.db", f"{folder}/r.html")


class Stubs(unittest.TestCase):
    def test_stubs_are_of_the_programs_options(self):
        made = subprocess.run([sys.executable, ROOT / "experiments/python/stubs.py"], capture_output=True, text=True, check=True).stdout
        kept = pathlib.Path(unmask.__file__).with_name("__init__.pyi").read_text()
        self.assertEqual(made, kept, "`make reference` makes them")
        self.assertTrue(pathlib.Path(unmask.__file__).with_name("py.typed").exists())
        functions = {node.name: node.args for node in ast.parse(kept).body if isinstance(node, ast.FunctionDef)}
        self.assertEqual(set(unmask.__all__) - set(functions), set(re.findall(r" as (\w+)", kept)) & set(unmask.__all__) - {"Figure", "Run"})
        self.assertEqual({arg.arg: ast.unparse(arg.annotation) for arg in functions["run"].kwonlyargs if arg.arg in (
            "rate", "requests", "roofline", "slo_ttft", "scheduler", "db")}, {
            "rate": "Optional[float]", "requests": "Optional[int]", "roofline": "bool", "slo_ttft": "Optional[_Time]",
            "scheduler": "Optional[Union[str, Scheduler]]", "db": "Optional[_Path]"})


if __name__ == "__main__":
    unittest.main()
