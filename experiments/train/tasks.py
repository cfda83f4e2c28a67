"""Problems in text: a question, a worked solution that ends with '#### answer', and the answer.

The task gsm comes from reasoning-gym's gsm_symbolic (85 templates with worked solutions); the other generated tasks are
here. gsm8k is read from a checkout of openai/grade-school-math. A question whose hash says so is held out: no training
text holds it, on its own or among others.
"""

import functools
import hashlib
import importlib
import importlib.util
import json
import os
import re
import sys
import types
from dataclasses import dataclass
from random import Random

HELD_OUT = 24  # one question of so many is for tests alone
# Sixteen templates with few and small numbers, which a model of 2 M parameters can learn.
EASY_TEMPLATES = (6, 10, 15, 16, 26, 31, 36, 40, 42, 45, 51, 54, 58, 66, 69, 82)
# Templates whose generators reasoning-gym itself leaves out.
BROKEN_TEMPLATES = {32, 35, 37, 61, 63, 65, 74, 76, 77, 79, 86, 87, 90, 97, 98}
NAMES = ("Ada Ali Amy Ana Ben Bob Cal Dan Dora Eli Emma Eve Finn Gus Hana Ida Ines Ivan Jade Joan Juan Kai Kim Lara "
         "Leo Lina Lola Luis Mara Max Mia Mira Nell Nina Noah Nora Omar Otto Owen Pia Ravi Rosa Ruth Sami Sara Sean "
         "Tara Theo Tom Uma Vera Wei Yara Yusuf Zara Zoe").split()
THINGS = ("apples bags balls books boxes bricks cards chairs coins cups desks dolls eggs forks hats jars keys lamps "
          "maps mugs nails pans pears pens plates pots rings rugs shoes spoons stamps stones tiles toys vases").split()


@dataclass
class Problem:
    task: str
    prompt: str  # all that stands before the output
    solution: str  # the output, without the end of text
    answer: str


def prompt_of(question):
    return f"Q: {question}\nA:\n"


def final_answer(text):
    """What stands behind the last '####', or None."""
    found = re.findall(r"####\s*(.+)", text)
    return found[-1].strip().rstrip(".").replace(",", "") if found else None


def is_right(text, answer):
    """The same text, or the same number (102.0 is 102)."""
    found, answer = final_answer(text), answer.replace(",", "")
    try:
        return found == answer or (found is not None and float(found) == float(answer))
    except ValueError:
        return False


def is_held_out(question):
    return int.from_bytes(hashlib.blake2b(question.encode(), digest_size=4).digest(), "little") % HELD_OUT == 0


# ---- gsm_symbolic ----

@functools.cache
def _gsm_generators():
    """The generators alone: reasoning_gym's own __init__ would import every task's needs."""
    wheel = os.environ.get("REASONING_GYM_WHEEL")
    if wheel:
        sys.path.insert(0, os.path.abspath(wheel))
    spec = importlib.util.find_spec("reasoning_gym")
    if spec is None:
        raise SystemExit("reasoning_gym is not installed (pip install --no-deps reasoning-gym==0.1.25), "
                         "and REASONING_GYM_WHEEL names no wheel of it")
    root = list(spec.submodule_search_locations)[0]
    for name in ("", ".arithmetic", ".arithmetic.gsm_symbolic"):
        package = types.ModuleType("reasoning_gym" + name)
        package.__path__ = [os.path.join(root, *name.split(".")[1:])]
        sys.modules["reasoning_gym" + name] = package
    found = {}
    for part in ("generators_00_49", "generators_50_99"):
        module = importlib.import_module("reasoning_gym.arithmetic.gsm_symbolic." + part)
        found.update({int(n[9:]): f for n, f in vars(module).items() if n.startswith("generate_")})
    return [found[k] for k in sorted(found) if k not in BROKEN_TEMPLATES]


NUMBER = r"[$€£]?\d[\d,]*(?:\.\d+)?%?"
EQUATION = re.compile(rf"(?<![\d.,/*+x(-])(?<![-+*/x] )({NUMBER}(?: ?[-+*/x] ?{NUMBER})+) ?= ?({NUMBER})(?![\d(]|\.\d| ?[-+*/x] ?[\d$(])")
UNITS = re.compile(r"(?<=[\d%]) (?:[A-Za-z][\w/-]* )+(?=[-+*/=] ?[$€£\d])")


class Gsm:
    def __init__(self):
        self.generators = _gsm_generators()

    def draw(self, r, held_out, template=None):
        """A template's number, question, solution, answer; held out or not, as asked."""
        while True:
            k = r.randrange(len(self.generators)) if template is None else template
            made = self.generators[k](Random(r.getrandbits(48)), 1.0)
            question = made["question"].strip()
            if is_held_out(question) == held_out:
                return k, question, made["metadata"]["answer_cot"].strip(), str(made["answer"])
            if template is not None and r.random() < 0.02:  # a template with few questions
                template = None

    def gsm(self, r, held_out):
        _, question, solution, answer = self.draw(r, held_out)
        return Problem("gsm", prompt_of(question), solution, answer)

    def easy(self, r, held_out):
        k = None
        while k not in EASY_TEMPLATES:  # a template with few held-out questions gives way to another
            k, question, solution, answer = self.draw(r, held_out, r.choice(EASY_TEMPLATES))
        return Problem("easy", prompt_of(question), solution, answer)

    def drill(self, r, held_out, templates=None):
        """The sums of several solutions without their words."""
        sums, n = [], r.randint(3, 8)
        while len(sums) < n:
            _, _, solution, _ = self.draw(r, held_out, templates and r.choice(templates))
            sums += [e for e in EQUATION.findall(UNITS.sub(" ", solution)) if len(e[1]) <= 10 and e not in sums]
        sums = r.sample(sums, n)
        asked = "Calculate " + ", ".join(left for left, _ in sums) + "."
        lines = "\n".join(f"{left} = {value}" for left, value in sums)
        return Problem("drill", prompt_of(asked), f"{lines}\n#### {sums[-1][1]}", sums[-1][1])

    def easy_drill(self, r, held_out):
        return self.drill(r, held_out, EASY_TEMPLATES)

    def shots(self, r, held_out):
        """One to four worked examples in front, half of the time of the question's own template."""
        k, question, solution, answer = self.draw(r, held_out)
        front = ""
        for _ in range(r.randint(1, 4)):
            _, q, s, _ = self.draw(r, held_out, k if r.random() < 0.5 else None)
            front += prompt_of(q) + s + "\n\n"
        return Problem("shots", front + prompt_of(question), solution, answer)

    def pick(self, r, held_out):
        """Several questions, of which the last line names one: losing the prompt loses the answer."""
        asked = [self.draw(r, held_out) for _ in range(r.randint(2, 5))]
        i = r.randrange(len(asked))
        listed = "\n".join(f"[{n + 1}] {a[1]}" for n, a in enumerate(asked))
        return Problem("pick", prompt_of(f"{listed}\nAnswer question {i + 1}."), asked[i][2], asked[i][3])


# ---- generated here ----

def _number(r, least_digits, most_digits):
    n = r.randint(least_digits, most_digits)
    return r.randint(10 ** (n - 1), 10 ** n - 1)


def multiply(r):
    a, b = _number(r, 2, 4), _number(r, 1, 3)
    lines, terms = [], []
    for i, digit in enumerate(reversed(str(b))):
        if digit != "0":
            part = int(digit) * 10 ** i
            lines.append(f"{a} * {part} = {a * part}")
            terms.append(a * part)
    total = terms[0]
    for term in terms[1:]:
        lines.append(f"{total} + {term} = {total + term}")
        total += term
    return f"Work out {a} * {b} step by step.", "\n".join(lines), total


def add(r):
    numbers = [_number(r, 2, 5) for _ in range(r.randint(3, 7))]
    lines, total = [], numbers[0]
    for n in numbers[1:]:
        up = total < n or r.random() < 0.7
        lines.append(f"{total} + {n} = {total + n}" if up else f"{total} - {n} = {total - n}")
        total = total + n if up else total - n
    shown = " ".join([lines[0].split(" ")[0]] + [" ".join(line.split(" ")[1:3]) for line in lines])
    return f"Work out {shown} step by step.", "\n".join(lines), total


def lookup(r):
    """A table with distractors; some of its rows are asked for, in another order, and added up."""
    n = r.randint(6, 24)
    names = r.sample(NAMES, n)
    thing = r.choice(THINGS)
    rows = [(name, _number(r, 2, 4)) for name in names]
    asked = r.sample(rows, r.randint(1, 3))
    table = "\n".join(f"{name}: {value} {thing}" for name, value in rows)
    wanted = " and ".join(name for name, _ in asked)
    lines = [f"{name}: {value}" for name, value in asked]
    total = asked[0][1]
    for _, value in asked[1:]:
        lines.append(f"{total} + {value} = {total + value}")
        total += value
    return f"{table}\nHow many {thing} do {wanted} have?", "\n".join(lines), total


def hops(r):
    """A chain to be followed through a shuffled list of links."""
    n, steps = r.randint(8, 20), r.randint(2, 6)
    names = r.sample(NAMES, n)
    links = [(names[i], names[i + 1]) for i in range(steps)]
    rest = names[steps + 1:]
    links += [(a, r.choice(names)) for a in rest]
    r.shuffle(links)
    listed = "\n".join(f"{a} knows {b}." for a, b in links)
    chain = "\n".join(f"{names[i]} knows {names[i + 1]}." for i in range(steps))
    return f"{listed}\nStart at {names[0]} and go {steps} steps.", chain, names[steps]


GENERATED = {"multiply": multiply, "add": add, "lookup": lookup, "hops": hops}


def generated(task, r, held_out):
    while True:
        question, lines, answer = GENERATED[task](r)
        if is_held_out(question) == held_out:
            return Problem(task, prompt_of(question), f"{lines}\n#### {answer}", str(answer))


# ---- GSM8K ----

def read_gsm8k(folder, split):
    """Problems of a checkout of openai/grade-school-math (MIT), without the calculator's annotations."""
    for path in (os.path.join(folder, "grade_school_math", "data", split + ".jsonl"),
                 os.path.join(folder, split + ".jsonl")):
        if os.path.exists(path):
            break
    else:
        raise SystemExit(f"{folder}: no {split}.jsonl of GSM8K in it")
    out = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            e = json.loads(line)
            solution = re.sub(r"<<[^>]*>>", "", e["answer"]).strip()
            out.append(Problem("gsm8k", prompt_of(e["question"].strip()), solution, final_answer(solution)))
    return out
