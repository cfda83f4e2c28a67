#!/usr/bin/env python3
"""Forms that a card's power may have, each fitted to the held steps of calibrations: root mean squares of
time and of power, and the misfit (a hundredth of time counts as much as three of power). Steps of over
60 ms, whose first is not at the highest clock, are left out. Needs numpy and scipy.

Usage: forms.py calibrate-MODEL.json...
"""
import json
import math
import sys

import numpy as np
from scipy.optimize import minimize

# Joules of a step beside idling, x times as long where operations bind: a picojoules of operations, b of
# bytes, c watts while operators run, d watts more while operations bind, v how operations' joules fall,
# w how bytes' do. s has first (operators' time at the highest clock), now (as long as it takes), compute,
# gap in seconds; flops and bytes in 1e12.
FORMS = {
    "operations, bytes, all falling (as before)": ("abv", lambda p, s, x: (p["a"] * s["flops"] + p["b"] * s["bytes"]) * x ** -p["v"]),
    "bytes at any clock": ("abv", lambda p, s, x: p["a"] * s["flops"] * x ** -p["v"] + p["b"] * s["bytes"]),
    "bytes falling by themselves": ("abvw", lambda p, s, x: p["a"] * s["flops"] * x ** -p["v"] + p["b"] * s["bytes"] * x ** -p["w"]),
    "busy, all falling alike": ("abcv", lambda p, s, x: (p["c"] * s["first"] + p["a"] * s["flops"] + p["b"] * s["bytes"]) * x ** -p["v"]),
    "busy": ("abcv", lambda p, s, x: p["c"] * s["now"] * x ** (-1 - p["v"]) + p["a"] * s["flops"] * x ** -p["v"] + p["b"] * s["bytes"]),
    "busy, in gaps, too": ("abcv", lambda p, s, x: p["c"] * (s["now"] + s["gap"]) * x ** (-1 - p["v"]) + p["a"] * s["flops"] * x ** -p["v"] + p["b"] * s["bytes"]),
    "active": ("abdv", lambda p, s, x: (p["d"] * s["compute"] + p["a"] * s["flops"]) * x ** -p["v"] + p["b"] * s["bytes"]),
    "active, no operations": ("bdv", lambda p, s, x: p["d"] * s["compute"] * x ** -p["v"] + p["b"] * s["bytes"]),
    "busy and active (as now)": ("abcdv", lambda p, s, x: p["c"] * s["now"] * x ** (-1 - p["v"]) + (p["d"] * s["compute"] + p["a"] * s["flops"]) * x ** -p["v"] + p["b"] * s["bytes"]),
    "busy and active, in gaps, too": ("abcdv", lambda p, s, x: p["c"] * (s["now"] + s["gap"]) * x ** (-1 - p["v"]) + (p["d"] * s["compute"] + p["a"] * s["flops"]) * x ** -p["v"] + p["b"] * s["bytes"]),
}
FIRST = {"a": 0.5, "b": 50, "c": 300, "d": 150, "v": 1, "w": 1, "L": 700}


def held_steps(path):
    with open(path, encoding="ascii") as file:
        report = json.load(file)
    steps = [{"first": h["first_ns"] * 1e-9, "settled": h["settled_ns"] * 1e-9, "gap": h["gap_ns"] * 1e-9,
              "compute": h["compute_ns"] * 1e-9, "flops": h["flops"] * 1e-12, "bytes": h["bytes"] * 1e-12, "watts": h["watts"]}
             for h in (step["held"] for step in report["steps"]) if h is not None and h["first_ns"] < 60e6]
    return report["power"]["idle_w"], steps


def watts(form, p, idle, s, x):
    s["now"] = s["first"] + s["compute"] * (x - 1)
    return idle + form(p, s, x) / (s["now"] + s["gap"])


def settled(form, p, idle, s):
    low, high = 1.0, 3.0
    if watts(form, p, idle, s, 1) <= p["L"]:
        return low
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if watts(form, p, idle, s, middle) > p["L"] else (low, middle)
    return low


def errors(form, p, idle, steps):
    for s in steps:
        x = settled(form, p, idle, s)
        drawn = watts(form, p, idle, s, x)
        yield math.log(s["now"] / s["settled"]), math.log(drawn / s["watts"])


def fit(names, form, idle, steps):
    names += "L"

    def misfit(z):
        p = dict(zip(names, np.exp(np.clip(z, -9, 9))))
        return sum((t / 0.01) ** 2 + (w / 0.03) ** 2 for t, w in errors(form, p, idle, steps))

    best = None
    for scale in (1, 0.6, 1.6):
        z = np.log([FIRST[n] * (1 if n == "L" else scale) for n in names])
        for _ in range(3):
            found = minimize(misfit, z, method="Nelder-Mead", options={"maxiter": 1500, "xatol": 1e-5, "fatol": 1e-4})
            z = found.x
        best = found if best is None or found.fun < best.fun else best
    rms = np.sqrt(np.mean(np.square(list(errors(form, dict(zip(names, np.exp(best.x))), idle, steps))), axis=0))
    return best.fun, 100 * rms[0], 100 * rms[1]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        idle, steps = held_steps(path)
        for name, (names, form) in FORMS.items():
            print(f"{path}: {name:<45} misfit {'%5.1f, time %.2f %%, power %.2f %%' % fit(names, form, idle, steps)}", flush=True)
