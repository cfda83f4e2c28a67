"""Tokens a pass of the MBD-LMs paper (arXiv 2606.29215, Tables 1 and 2a), printed and predicted, task by task.

Run from the repository root:  python3 experiments/study/reference/mbd_table.py [build/unmask]

A decode process is moved (confidence_drop) to where the paper has the model with one block on a task, the pass that
stores a block counted. MultiBD without training follows with no constant, under the thresholds that Diffulex's branch
`mbd-lms`, which the paper was made with, has for mathematics and for code.

Training makes a model surer by SURER logits for each unit of learning rate times optimizer steps, the same for all
models: that one constant is fitted to the mean of LLaDA2-Mini's four tasks. Learning rates are those of the training
files of SJTU-DENG-Lab/mbd-lms, steps those of the checkpoint that the branch loads where its name has them, else of the
paper's Table 5. Tokens a pass are counted as Diffulex counts them (diffulex/utils/output.py): positions written, over
steps, those that store a block among them.
"""

import json
import subprocess
import sys

REQUESTS = 60
# task: workload, what LLaDA2's process of it is called, and 0 for mathematics or 1 for code
TASKS = [("gsm8k", "gsm8k", 0), ("math", "math-500", 0), ("mbpp", "mbpp", 1), ("humaneval", "humaneval", 1)]
# thresholds for mathematics and for code: a block joins, commits in every step, a position is accepted
LLADA2 = ((0.1, 0.9, 0.95), (0.9, 0.9, 0.95))
# model of the paper; its shape here; positions of a block; blocks; thresholds; learning rate times steps for
# mathematics and for code; and printed by task with one block, with MultiBD, and after training
ROWS = [
    ("LLaDA2-Mini", "llada2-mini", 32, 2, LLADA2, (15000e-5, 6500e-5),
     (2.27, 2.83, 3.25, 5.53), (2.76, 3.53, 3.97, 7.37), (5.55, 6.02, 5.35, 7.85)),
    ("LLaDA2-Mini-DMax", "llada2-mini", 32, 2, ((0.1, 0.9, 0.5), (0.9, 0.9, 0.65)), (15000 * 2e-6, 4000 * 2e-6),
     (5.70, 6.13, 6.14, 7.44), (8.76, 9.08, 8.44, 10.96), (8.95, 9.31, 8.34, 10.78)),
    # the code model that the branch loads has 18,750 steps, Table 5's 1,670
    ("SDAR-8B-b32", "sdar-8b", 32, 4, LLADA2, (3125e-5, 18750e-5),
     (2.52, 3.81, 1.83, 2.00), (2.78, 5.06, 1.97, 2.24), (3.08, 5.08, 4.87, 4.82)),
    # Table 4 and the branch have (0.1, 0.25) and (0.75, 0.75) for it; see TABLE_4. These are the branch's defaults.
    ("SDAR-8B-b4", "sdar-8b", 4, 4, ((0.1, 0.9, 0.95), (0.1, 0.9, 0.95)), (1250e-5, 1250e-5),
     (1.33, 1.46, 1.13, 1.07), (2.39, 2.68, 1.55, 1.47), (2.28, 2.52, 2.62, 2.24)),
    # not trained: the paper's Table 2a
    ("LLaDA2.1-Mini", "llada2-mini", 32, 2, ((0.1, 0.9, 0.7), None), None, (4.12, 4.87), (5.80, 7.20), None),
    ("LLaDA2-Mini-CAP", "llada2-mini", 32, 2, LLADA2, None, (3.08, 3.71), (4.00, 4.94), None),
]
TABLE_4 = ((0.1, 0.25, 0.95), (0.75, 0.75, 0.95))
UNSURE = 12  # a drop at which a block of four commits one position a step


def tokens_a_pass(program, row, task, drop, blocks, thresholds=None):
    _, model, block, _, own = row[:5]
    workload, process, is_code = TASKS[task]
    join, complete, accept = (thresholds or own)[is_code]
    one = blocks == 1
    confidence = f"llada2-mini/{process}" if model == "llada2-mini" else "sdar-8b/mean-of-four"
    settings = {"confidence": confidence, "confidence_drop": f"{drop:.6f}", "block_tokens": block,
                "blocks_in_flight": blocks, "static_blocks": "off" if one else "on",
                "cache.cross_block": "off" if one else "on", "cache.commit_last": "off", "early_stop": "off",
                "decoder.threshold": accept, "decoder.complete": complete, "block_add_threshold": join}
    words = [program, "run", "--json", "--gpu", "h100", "--system", "multibd", "--model", model, "--workload", workload,
             "--requests", str(REQUESTS), "--rate", "1"]
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    run = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return run["tokens_committed"] / (run["request_steps"] - REQUESTS)  # each prompt is one more step


def bisect(rises, low, high):
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) else (middle, high)
    return (low + high) / 2


def mean(values):
    return sum(values) / len(values)


def off(value, printed):
    return f"{100 * (value / printed - 1):+.0f} %"


def moved(program, row):
    """Drops at which the row's process has the printed tokens a pass with one block, by task."""
    return [bisect(lambda d, t=t: tokens_a_pass(program, row, t, d, 1) < printed, -20, 15)
            for t, printed in enumerate(row[6])]


def several(program, row, drops, surer=0.0, thresholds=None):
    gain = row[5] or (0, 0)
    return [tokens_a_pass(program, row, t, drop - surer * gain[TASKS[t][2]], row[3], thresholds)
            for t, drop in enumerate(drops)]


def line(name, values, printed):
    by_task = "".join(f"{v:7.2f} ({p:5.2f})" for v, p in zip(values, printed))
    print(f"  {name:22}{mean(values):6.2f} ({mean(printed):5.2f}) {off(mean(values), mean(printed)):>6}   {by_task}")


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/unmask"
    drops = {row[0]: moved(program, row) for row in ROWS}
    first = ROWS[0]
    surer = bisect(lambda s: mean(several(program, first, drops[first[0]], s)) > mean(first[8]), 0, 60)
    print(f"surer by {surer:.1f} logits a unit of learning rate times steps, fitted to {first[0]}\n")
    print(f"  {'':22}{'mean (printed)  off':24}" + "".join(f"{task[0]:>15}" for task in TASKS))
    for row in ROWS:
        print(row[0])
        line("without training", several(program, row, drops[row[0]]), row[7])
        if row[8] is not None:
            line("trained" + (", fitted to" if row is first else ""), several(program, row, drops[row[0]], surer), row[8])
    row = next(row for row in ROWS if row[0] == "SDAR-8B-b4")
    print(f"{row[0]} under the thresholds of Table 4")
    line("without training", several(program, row, drops[row[0]], 0, TABLE_4), row[7])
    line("trained", several(program, row, drops[row[0]], surer, TABLE_4), row[8])
    line("never sure", several(program, row, [UNSURE] * 4, 0, TABLE_4), row[7])


if __name__ == "__main__":
    main()
