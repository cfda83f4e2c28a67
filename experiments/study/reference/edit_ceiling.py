"""How near could any smooth rule come that predicts LLaDA2.1-mini's tokens a pass by LLaDA2.0-mini's?

Run from the repository root:  python3 experiments/study/reference/edit_ceiling.py

A parabola through all tasks of LLaDA2.1's report (experiments/study/paper/edit_modes.csv; LLaDA2.0's numbers are those of
experiments/study/locations.csv), on logarithms, by least absolute deviations; and the same with a line of its own for code and
mathematics. It has seen what it predicts, so that no rule of this kind which has not can be expected to come nearer. OCNLI is left
out: LLaDA2.1 answers it in other words.
"""

import csv

import numpy

LEFT_OUT = "llada2-mini/ocnli"


def read(path):
    with open(path, encoding="utf-8") as f:
        return [row for row in csv.DictReader(f) if row["process"] != LEFT_OUT]


def fitted(x, y):
    weight = numpy.ones(len(y))
    for _ in range(100):
        root = numpy.sqrt(weight)
        line = numpy.linalg.lstsq(x * root[:, None], y * root, rcond=None)[0]
        weight = 1 / numpy.maximum(abs(y - x @ line), 0.03)
    return x @ line


def main():
    before = {row["process"]: row for row in read("experiments/study/locations.csv")}
    rows = read("experiments/study/paper/edit_modes.csv")
    for by_domain in (False, True):
        near = few = 0
        for mode in "SQ":
            of = [row for row in rows if row["mode"] == mode]
            x = numpy.log([float(before[row["process"]]["printed"]) for row in of])
            y = numpy.log([float(row["tokens_per_pass"]) for row in of])
            code = numpy.array([before[row["process"]]["domain"] == "structured" for row in of], float)
            terms = [numpy.ones_like(x), x, x * x] + ([code, code * x] if by_domain else [])
            off = numpy.exp(fitted(numpy.stack(terms, 1), y) - y) - 1
            near += int((abs(off) <= 0.2).sum())
            few += int((abs(off[:10]) <= 0.2).sum())  # the tasks of the page come first
        print(f"{'by domain' if by_domain else 'one curve':10} {near} of {len(rows)} within a fifth; of the page's ten tasks {few} of 20")


if __name__ == "__main__":
    main()
