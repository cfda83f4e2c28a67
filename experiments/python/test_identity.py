"""Tests of what a policy in Python is to a database: `make wheel-test`."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
import warnings

import unmask
from unmask._digest import digest

HELPER = """
AT_MOST = {at_most}
import unmask

def limit(view):
    return inner(view)

def inner(view):
    return {inner}

class Base(unmask.Scheduler):
    def schedule(self, view, batch):
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        for request in view.waiting:
            if len(view.running) + len(batch._admitted) >= {base}:
                break
            batch.admit(request)
"""

BODY = """
    def schedule(self, view, batch):
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        for request in view.waiting:
            if len(view.running) + len(batch._admitted) >= {limit}:
                break
            batch.admit(request)
"""

# What a module of a policy is made of, and a change that makes another policy of it.
ANOTHER = {
    "base class of a helper": ("from helper import Base\nclass P(Base):\n    pass\nmade = P()", {"base": "3"}),
    "constant of a helper": ("import helper, unmask\nclass P(unmask.Scheduler):" + BODY.format(limit="helper.AT_MOST")
                             + "made = P()", {"at_most": "3"}),
    "constant by from": ("from helper import AT_MOST\nimport unmask\nclass P(unmask.Scheduler):"
                         + BODY.format(limit="AT_MOST") + "made = P()", {"at_most": "3"}),
    "constant by getattr": ("import helper, unmask\nclass P(unmask.Scheduler):"
                            + BODY.format(limit="getattr(helper, 'AT_' + 'MOST')") + "made = P()", {"at_most": "3"}),
    "import when it decides": ("import unmask\nclass P(unmask.Scheduler):"
                               + BODY.format(limit="__import__") .replace("        if not", "        import helper\n        if not", 1)
                               .replace("__import__", "helper.AT_MOST") + "made = P()", {"at_most": "3"}),
    "helper of a helper": ("import helper, unmask\nclass P(unmask.Scheduler):" + BODY.format(limit="helper.limit(view)")
                           + "made = P()", {"inner": "3"}),
    "constant of the module": ("import unmask\nAT_MOST = {own}\nclass P(unmask.Scheduler):" + BODY.format(limit="AT_MOST")
                               + "made = P()", {"own": "3"}),
    "number in the code": ("import unmask\nclass P(unmask.Scheduler):" + BODY.format(limit="{own}") + "made = P()", {"own": "3"}),
    "mixin": ("import unmask\nclass M:\n    most = {own}\nclass P(M, unmask.Scheduler):" + BODY.format(limit="self.most")
              + "made = P()", {"own": "3"}),
    "metaclass": ("import unmask\nclass M(type):\n    most = property(lambda self: {own})\n"
                  "class P(unmask.Scheduler, metaclass=M):" + BODY.format(limit="type(self).most") + "made = P()", {"own": "3"}),
    "property": ("import unmask\nclass P(unmask.Scheduler):\n    @property\n    def most(self):\n        return {own}\n"
                 + BODY.format(limit="self.most") + "made = P()", {"own": "3"}),
    "closure": ("import unmask\ndef make(most):\n    class P(unmask.Scheduler):"
                + textwrap.indent(BODY.format(limit="most"), "    ") + "    return P()\nmade = make({own})", {"own": "3"}),
    "default of a lambda": ("import unmask\nclass P(unmask.Scheduler):\n    most = staticmethod(lambda n={own}: n)\n"
                            + BODY.format(limit="self.most()") + "made = P()", {"own": "3"}),
    "default by keyword": ("import unmask\nclass P(unmask.Scheduler):\n    def most(self, *, n={own}):\n        return n\n"
                           + BODY.format(limit="self.most()") + "made = P()", {"own": "3"}),
    "cached": ("import functools, unmask\n@functools.lru_cache(None)\ndef most():\n    return {own}\nclass P(unmask.Scheduler):"
               + BODY.format(limit="most()") + "made = P()", {"own": "3"}),
    "decorated": ("import functools, unmask\ndef limited(n):\n    def wrap(f):\n        @functools.wraps(f)\n"
                  "        def inner(*a):\n            return min(n, f(*a))\n        return inner\n    return wrap\n"
                  "class P(unmask.Scheduler):\n    @limited({own})\n    def most(self):\n        return 100\n"
                  + BODY.format(limit="self.most()") + "made = P()", {"own": "3"}),
    "module swapped": ("import helper, unmask\nhelper.AT_MOST = {own}\nclass P(unmask.Scheduler):"
                       + BODY.format(limit="helper.AT_MOST") + "made = P()", {"own": "3"}),
    "made by exec": ("import unmask\nscope = {{'unmask': unmask}}\nexec('''class P(unmask.Scheduler):" + BODY.format(limit="{own}")
                     + "''', scope)\nmade = scope['P']()", {"own": "3"}),
}

STATES = """
import array, collections, dataclasses, decimal, enum, functools, random, types, numpy, pandas, unmask
class Kind(enum.Enum):
    FEW = {own}
@dataclasses.dataclass
class Data:
    most: int
    rest: list = dataclasses.field(default_factory=list)
class Slots:
    __slots__ = ("most", "__hidden", "left")
    def __init__(self, most, hidden):
        self.most, self.__hidden = most, hidden
class Listed(list):
    pass
class Reduced:
    def __init__(self, most):
        self.most = most
    def __reduce__(self):
        return (Reduced, (0,))
    def __repr__(self):
        return "Reduced"
class Loud(unmask.Scheduler):
    def __init__(self, state):
        self.state = state
    def schedule(self, view, batch):
        pass
def middle(n, kind="float64"):
    made = numpy.zeros(5000, dtype=kind)
    made[2500] = n
    return made
def around(n):
    made = [n]
    made.append(made)
    return made
def with_attribute(made, n):
    made.extra = n
    return made
def deep(n):
    made = n
    for _ in range(5000):
        made = [made]
    return made
STATES = {{
    "weights": lambda n: middle(n), "float32 weights": lambda n: middle(n, "float32"), "list": lambda n: [0] * 2000 + [n] + [0] * 2000,
    "objects in an array": lambda n: numpy.array([n, "x", None], dtype=object), "record": lambda n: numpy.array([(1, n)], dtype="i4,f8"),
    "times": lambda n: numpy.array([n], dtype="datetime64[us]"), "unit of times": lambda n: numpy.array([1], dtype="datetime64[%s]" % ("ns" if n == 3 else "us")),
    "scalar": lambda n: numpy.float64(n), "strided": lambda n: middle(n)[::2], "shape": lambda n: numpy.zeros((n, 12 // n)),
    "slots": lambda n: Slots(n, 1), "hidden slot": lambda n: Slots(1, n), "dataclass": lambda n: Data(n), "nested": lambda n: {{"a": [(1, Data(1, [n]))]}},
    "enum": lambda n: Kind.FEW, "partial": lambda n: functools.partial(max, n), "partial of a lambda": lambda n: functools.partial(lambda m, k=n: m),
    "lambda": lambda n: (lambda: n), "default": lambda n: (lambda k=n: k), "method": lambda n: Data(n).__eq__, "set": lambda n: {{"a", "b", n}},
    "frozenset": lambda n: frozenset({{("a", n), "b", frozenset({{"c", "d"}})}}), "cycle": around, "deep": deep, "deque": lambda n: collections.deque([1, n]),
    "default dict": lambda n: collections.defaultdict(list, a=[n]), "order of a dict": lambda n: dict(sorted({{"a": 1, "b": 2}}.items(), reverse=n == 3)),
    "bytes": lambda n: bytearray([n]), "array": lambda n: array.array("d", [n]), "Decimal": lambda n: decimal.Decimal(n), "random": lambda n: random.Random(n),
    "generator of numpy": lambda n: numpy.random.default_rng(n), "frame": lambda n: pandas.DataFrame({{"a": range(2000), "b": [n] * 2000}}),
    "series": lambda n: pandas.Series([1, n]), "Timestamp": lambda n: pandas.Timestamp(n, unit="s", tz="Europe/Berlin"), "listed": lambda n: with_attribute(Listed([1]), n),
    "namespace": lambda n: types.SimpleNamespace(n=n), "another type": lambda n: 1 if n == 3 else True, "sign of zero": lambda n: 0.0 if n == 3 else -0.0,
    "own reduce": lambda n: Reduced(n), "exception": lambda n: ValueError(n), "view": lambda n: memoryview(bytes([n])), "class": lambda n: type("X", (), {{"n": n}}),
    "aliasing": lambda n: (lambda a: [a, a] if n == 3 else [a, list(a)])([1]), "method of a list": lambda n: [n].append, "masked": lambda n: numpy.ma.array([1, 2], mask=[0, n == 3]),
    "texts of numpy": lambda n: numpy.array(["a", "b" * n]), "cached": lambda n: functools.lru_cache(lambda: n), "logger": None,
}}
import sys
from unmask._digest import digest
for name, make in STATES.items():
    if make is not None:
        print(name, *digest(Loud(make({own}))), sep="|")
"""


def said(code, folder=".", seed="0", stdin=False):
    """What a fresh interpreter prints."""
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTHONPATH": os.pathsep.join([folder, os.path.dirname(os.path.dirname(unmask.__file__))])}
    words = [sys.executable, "-"] if stdin else [sys.executable, "-c", code]
    ran = subprocess.run(words, input=code if stdin else "", env=environment, capture_output=True, text=True)
    if ran.returncode != 0:
        raise AssertionError(ran.stderr)
    return ran.stdout


def factory(most, body=BODY):
    scope = {"unmask": unmask, "__name__": "somewhere"}
    exec("class Few(unmask.Scheduler):" + body.format(limit=most), scope)
    return scope["Few"]()


class Identity(unittest.TestCase):
    def test_whatever_a_policy_is_made_of_makes_another_one(self):
        parts = {"at_most": "2", "inner": "2", "base": "2", "own": "2"}
        show = "\nfrom unmask._digest import digest\nprint({name!r}, *digest(made), sep='|')\n"

        def all_of(change, seed):
            with tempfile.TemporaryDirectory() as folder:
                programs = []
                for i, (name, (code, another)) in enumerate(ANOTHER.items()):
                    own = {**parts, **(another if change else {})}
                    for module, text in ((f"helper{i}", HELPER), (f"policy{i}", code)):
                        text = text.format(**own).replace("helper", f"helper{i}")
                        with open(os.path.join(folder, module + ".py"), "w", encoding="utf-8") as file:
                            file.write(text + (show.format(name=name) if module.startswith("policy") else ""))
                    programs.append(f"import policy{i}")
                return said("\n".join(programs), folder, seed)

        one, again, other = all_of(False, "1"), all_of(False, "2"), all_of(True, "1")
        self.assertEqual(one, again)
        self.assertEqual(len(one.splitlines()), len(ANOTHER))
        for before, after in zip(one.splitlines(), other.splitlines()):
            self.assertNotEqual(before, after)
            self.assertTrue(before.endswith("|[]"), before)

    def test_whatever_a_policy_knows_makes_another_one(self):
        one, other = said(STATES.format(own=2), seed="1"), said(STATES.format(own=3), seed="1")
        self.assertEqual(one, said(STATES.format(own=2), seed="2"))
        self.assertGreater(len(one.splitlines()), 40)
        for before, after in zip(one.splitlines(), other.splitlines()):
            self.assertNotEqual(before, after)
            self.assertTrue(before.endswith("|[]"), before)

    def test_an_interpreter_without_sources_knows_constants(self):
        code = "import unmask\nfrom unmask._digest import digest\nclass P(unmask.Scheduler):" + BODY + "print(digest(P()))"
        two, three = (said(code.format(limit=n), stdin=True) for n in (2, 3))
        self.assertNotEqual(two, three)
        self.assertEqual(two, said(code.format(limit=2), stdin=True, seed="7"))

    def test_lines_and_comments_are_no_part_of_it(self):
        self.assertEqual(digest(factory(2)), digest(factory(2, "  # a remark\n\n" + BODY)))

    def test_what_cannot_be_known_is_named(self):
        few = factory(2)
        few.log = open(os.devnull)
        few.rows = (n for n in range(3))
        self.assertEqual(digest(few)[1], ["Few.log (a TextIOWrapper)", "Few.rows (a generator)"])
        few.log.close()
        with open(os.devnull) as log:
            for module, words in (("somewhere", "somewhere.LOG (a TextIOWrapper)"), ("__main__", "LOG (a TextIOWrapper)")):
                scope = {"unmask": unmask, "__name__": module, "LOG": log}
                exec("class Few(unmask.Scheduler):" + BODY.format(limit="LOG.fileno()"), scope)
                self.assertEqual(digest(scope["Few"]())[1], [words])
        for read, name in (("len(open('x').read())", "open"), ("int(__import__('os').environ['X'])", "environ"),
                           ("globals()['X']", "globals"), ("eval('X')", "eval")):
            self.assertIn(name, str(digest(factory(read))[1]))


class InADatabase(unittest.TestCase):
    def setUp(self):
        before = unmask._policy._Trials.LIMIT_S
        unmask._policy._Trials.LIMIT_S = 0.05
        self.addCleanup(setattr, unmask._policy._Trials, "LIMIT_S", before)

    base = dict(systems="dllm-serve", gpus="l40s", workloads="burst", rates=[0.3], requests=10)

    def test_a_policy_that_has_run_is_the_same(self):
        class Plain(unmask.Scheduler):
            def schedule(self, view, batch):
                if not batch.run_all():
                    for request in view.running:
                        batch.run(request)
                for request in view.waiting:
                    batch.admit(request)

        one = Plain()
        before = digest(one)
        unmask.run(scheduler=one, requests=4)  # copies it, of which copyreg keeps something in the class
        self.assertEqual(digest(one), before)

    def test_two_policies_in_one_sweep_are_two(self):
        few, many = factory(1), factory(16)
        alone = [unmask.sweep(**self.base, set={"scheduler": p})["latency_s.mean"].iloc[0] for p in (few, many)]
        self.assertNotEqual(*alone)
        both = unmask.sweep(**self.base, set={"scheduler": [few, many]})
        self.assertEqual(list(both["latency_s.mean"]), alone)

        class Counted(type(factory(2))):
            def __init__(self):
                self.n = 0

            def __deepcopy__(self, _):  # its copies count together
                return self

            def schedule(self, view, batch):
                self.n += not view.is_trial
                super().schedule(view, batch)

            def __repr__(self):
                return "Counted"

        alike = [Counted(), Counted()]
        unmask.sweep(**self.base, set={"scheduler": alike})
        self.assertGreater(alike[0].n, 0)
        self.assertEqual(alike[0].n, alike[1].n)

    def test_a_database_is_resumed_by_the_same_policy_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            db = os.path.join(folder, "r.db")
            for most, rows in ((1, 1), (1, 1), (16, 2)):
                unmask.sweep(**self.base, db=db, set={"scheduler": factory(most)})
                self.assertEqual(len(unmask.read(db)), rows)
            unknown = factory(16)
            unknown.log = open(os.devnull)
            for rows in (3, 4):
                with self.assertWarnsRegex(UserWarning, "Few are never resumed.*Few.log .a TextIOWrapper"):
                    unmask.sweep(**self.base, db=db, set={"scheduler": unknown})
                self.assertEqual(len(unmask.read(db)), rows)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                unmask.sweep(**self.base, set={"scheduler": unknown})
            unknown.log.close()


if __name__ == "__main__":
    unittest.main()
