"""How long Mosaic's released planner takes on this machine: the algorithm, written anew in plain Python, timed.

Run from the repository root; the table goes to standard output as CSV:

    python3 experiments/study/reference/mosaic_planner.py [--rounds N] [--ilp]

The released server (flashserve/Mosaic at 4441da1) plans in every forward pass, inside what its benchmarks time: graph_builder.py declares
a block's tensors with their sizes, finds what is live at each operator, lists it with names and sizes, and places tensors first fit;
online_searcher.py does that once for each number of chunks it tries, and llada_model.py once more for what was found. Nothing of that text
is here: this file follows what the code does, step by step, with the log lines that it writes (to a file that is thrown away). Where
PyTorch can be imported, a tensor's elements are counted by it, as released; without it, in Python, and the column `torch` says so.
`--ilp` needs pulp and its cbc: the integer program of graph_builder_ILP.py with the options that it passes (`ilp`), and with presolve, cuts
and heuristics off, as a commented block of it has them (`ilp-hard`).

What is timed, in milliseconds, each the median of the rounds: `plan` one declaration and analysis without chunks; `chunked` the same in
3 chunks of the FFN and 5 of the logits; `step` what a step that fits pays, a search of one plan and the plan itself; `grid` every
combination of 1 to 18 chunks of each; `ilp` and `ilp-hard` one plan by the integer program. All but the last two, which wait for the
process of cbc, are this process's own time, so that other work on the machine counts less.
"""

import argparse
import functools
import logging
import os
import statistics
import sys
import time

try:
    import torch
except ImportError:
    torch = None

GRID = 18
CANVASES = (1024, 2048, 4096, 8192, 16384, 32768)

# Model: width, rows of q, of k and v, FFN tensors as rows a token, their factor of tokens, vocabulary.
MODELS = {
    "llada-8b": (4096, 4096, 4096, (12288, 12288, 12288), 126464),
    "dream-7b": (3584, 3584, 512, (18944, 18944, 18944), 152064),
    "llada-moe": (2048, 2048, 2048, (8 * 2048, 8 * 1024, 8 * 2048), 157184),
}

log = logging.getLogger("planner")


def count_elements(shape):
    """As released where there is PyTorch: a tensor is made of the shape, multiplied up and read back."""
    if torch is not None:
        return torch.prod(torch.tensor(shape)).item()
    elements = 1
    for extent in shape:
        elements *= extent
    return elements


class Tensor:
    def __init__(self, name, made_by, reads, shape, element_bytes):
        self.name, self.made_by, self.reads, self.shape = name, made_by, reads, shape
        self.dtype = "int8" if element_bytes == 1 else "bfloat16"
        self.size = count_elements(shape) * element_bytes


class Block:
    """One layer and the head, as the released graphs have them."""

    def __init__(self):
        self.order, self.tensors, self.aliases = [], {}, {}

    def add(self, name, made_by, reads, *shape, element_bytes=2):
        if name in self.tensors:
            raise ValueError(f"{name} is there already")
        tensor = Tensor(name, made_by, reads, shape, element_bytes)
        self.tensors[name] = tensor
        self.order.append(tensor)


def declare(model, tokens, outputs, ffn_chunks, logit_chunks):
    width, q_rows, kv_rows, ffn, vocabulary = MODELS[model]
    log.info("Declaring the graph of a block of %s ...", model)
    rows = -(-tokens // ffn_chunks)
    block = Block()
    block.add("x", "input", [], tokens, width)
    block.add("normed", "norm", ["x"], tokens, width)
    block.add("q", "product", ["normed"], tokens, q_rows)
    block.add("k", "product", ["normed"], tokens, kv_rows)
    block.add("v", "product", ["normed"], tokens, kv_rows)
    block.add("attended", "attention", ["q", "k", "v"], tokens, q_rows // 128, 128)
    block.add("projected", "product", ["attended"], tokens, width)
    block.add("normed_again", "add and norm", ["x", "projected"], tokens, width)
    block.add("residual", "add and norm", ["x", "projected"], tokens, width)
    block.add("ffn_first", "product", ["normed_again"], rows, ffn[0])
    second_reads = ["ffn_first"] if model == "llada-moe" else ["normed_again"]
    block.add("ffn_second", "product", second_reads, rows, ffn[1])
    third_reads = ["ffn_second"] if model == "llada-moe" else ["ffn_first", "ffn_second"]
    block.add("ffn_third", "product", third_reads, rows, ffn[2])
    block.add("ffn_out", "product", ["ffn_third"], tokens, width)
    if ffn_chunks > 1:
        parts = ["ffn_first", "ffn_second", "ffn_third", "ffn_out"]
        block.add("loop_barrier", "barrier", parts, 1, element_bytes=1)
        block.add("norm_barrier", "barrier", ["normed_again"], 1, element_bytes=1)
    block.add("output", "add", ["residual", "ffn_out"], tokens, width)
    log.info("The memory of '%s' is that of '%s'.", "output", "x")
    if block.tensors["output"].size > block.tensors["x"].size:
        raise ValueError("an alias is larger than what it stands in")
    block.aliases["output"] = "x"
    block.add("logits", "head", ["output"], -(-outputs // logit_chunks), vocabulary)
    log.info("The graph of the block is declared.")
    return block


def find_live(block):
    """By the name of what an operator makes: what is read after it."""
    after, live = {}, set()
    for tensor in reversed(block.order):
        after[tensor.name] = live.copy()
        live.discard(tensor.name)
        live.update(tensor.reads)
    return after


def find_peak(block, after):
    """The most bytes that are live at one time, and whose they are."""
    peak, holders = 0, set()
    for tensor in block.order:
        held = after[tensor.name] | {tensor.name}
        total = sum(block.tensors[name].size for name in held)
        if total > peak:
            peak, holders = total, held
    return peak, {name: f"{block.tensors[name].size / 2**20:.4f} MB" for name in holders}


def list_times(block, after, peak):
    """One entry an operator, with each live tensor's size, shape and type: the searcher reads the sums."""
    times = []
    for step, tensor in enumerate(block.order):
        held = after[tensor.name] | {tensor.name}
        total = sum(block.tensors[name].size for name in held)
        share = total / peak if peak > 0 else 0.0
        times.append({
            "step": step, "name": tensor.name, "made_by": tensor.made_by,
            "total_mib": total / 2**20, "share": share, "percent": 100 * share, "live": len(held),
            "tensors": {name: {"mib": block.tensors[name].size / 2**20,
                               "shape": list(block.tensors[name].shape),
                               "dtype": str(block.tensors[name].dtype)} for name in held},
        })
    return times


def lifetimes(block):
    births = {tensor.name: i for i, tensor in enumerate(block.order)}
    deaths = dict.fromkeys(block.tensors, -1)
    for i, tensor in enumerate(block.order):
        for name in tensor.reads:
            deaths[name] = i
    return births, deaths


def first_fit(block):
    """Each tensor into the first gap between those still live, in the order of making."""
    births, deaths = lifetimes(block)
    placed, plan, total = [], {}, 0
    for tensor in block.order:
        if tensor.size == 0:
            continue
        live = sorted((held for held in placed if deaths[held["name"]] >= births[tensor.name]),
                      key=lambda held: held["start"])
        if tensor.name in block.aliases:
            offset = plan[block.aliases[tensor.name]]["offset"]
            log.info("'%s' is placed at %d, where '%s' is.", tensor.name, offset, block.aliases[tensor.name])
        else:
            offset = 0
            for held in live:
                if held["start"] - offset >= tensor.size:
                    break
                offset = held["end"]
        plan[tensor.name] = {"offset": offset, "size": tensor.size, "shape": tensor.shape, "dtype": tensor.dtype}
        placed.append({"name": tensor.name, "start": offset, "end": offset + tensor.size})
        total = max(total, max(held["end"] for held in placed))
    return total, plan


def analyse(block, place=first_fit):
    log.info("Analysing the memory of the graph ...")
    after = find_live(block)
    peak, holders = find_peak(block, after)
    times = list_times(block, after, peak)
    total, plan = place(block)
    log.info("The analysis is done.")
    return {"total": total, "plan": plan, "times": times, "holders": holders}


def plan_once(model, tokens, ffn_chunks=1, logit_chunks=1, place=first_fit):
    return analyse(declare(model, tokens, tokens // 2, ffn_chunks, logit_chunks), place)


def peaks_by_part(times):
    """What the searcher calls the bottleneck: the most that is live while FFN, head or the rest runs."""
    peaks = {"ffn": 0, "logits": 0, "rest": 0}
    for entry in times:
        part = ("logits" if "logits" in entry["name"] else
                "ffn" if any(word in entry["name"] for word in ("ffn", "barrier")) else "rest")
        peaks[part] = max(peaks[part], entry["total_mib"])
    return peaks


def search(model, tokens, available, place=first_fit):
    """One chunk more of whatever holds the peak until it fits, then the plan once more."""
    chunks = {"ffn": 1, "logits": 1}
    log.info("Searching for %d tokens in %.2f GiB ...", tokens, available / 2**30)
    while True:
        found = plan_once(model, tokens, chunks["ffn"], chunks["logits"], place)
        total, peaks = found["total"], peaks_by_part(found["times"])
        log.info("%s: %.3f GiB, rest %.2f, ffn %.2f, logits %.2f MiB", chunks, total / 2**30, peaks["rest"],
                 peaks["ffn"], peaks["logits"])
        if total <= available:
            log.info("%s fits: %.3f of %.3f GiB.", chunks, total / 2**30, available / 2**30)
            break
        largest = max(peaks.values())
        part = "logits" if peaks["logits"] == largest else "ffn"
        if peaks[part] <= peaks["rest"]:
            raise MemoryError("what is in no loop does not fit")
        chunks[part] += 1
    return plan_once(model, tokens, chunks["ffn"], chunks["logits"], place), chunks


def grid(model, tokens):
    for ffn_chunks in range(1, GRID + 1):
        for logit_chunks in range(1, GRID + 1):
            plan_once(model, tokens, ffn_chunks, logit_chunks)


def integer_program(hard, block):
    """Offsets that never overlap in time and place, the highest end least: one 0/1 choice a pair."""
    import pulp
    births, deaths = lifetimes(block)
    names = [tensor.name for tensor in block.order if tensor.size > 0]
    size = {name: block.tensors[name].size for name in names}
    far = sum(size.values())
    problem = pulp.LpProblem("placement", pulp.LpMinimize)
    at = {name: pulp.LpVariable(f"at_{name}", lowBound=0, cat="Continuous") for name in names}
    end = pulp.LpVariable("end", lowBound=0, cat="Continuous")
    problem += end, "least_end"
    for name in names:
        problem += at[name] + size[name] <= end, f"below_{name}"
    for name, target in block.aliases.items():
        problem += at[name] == at[target], f"same_{name}"
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1:]
             if not (deaths[a] < births[b] or deaths[b] < births[a])]
    for i, (a, b) in enumerate(pairs):
        first = pulp.LpVariable(f"first_{i}", cat="Binary")
        problem += at[a] + size[a] <= at[b] + far * (1 - first), f"apart_{i}_a"
        problem += at[b] + size[b] <= at[a] + far * first, f"apart_{i}_b"
    slow = ["presolve off", "cuts off", "heuristics off", "preprocess off", "strong branching off"]
    quick = ["randomSeed 42", "randomCbcSeed 42", "perturbation off"]
    problem.solve(pulp.PULP_CBC_CMD(msg=0, timeLimit=60, options=(slow if hard else quick) + ["threads 1"]))
    return round(end.varValue), {name: round(at[name].varValue) for name in names}


def median_ms(rounds, what, clock):
    what()
    times = []
    for _ in range(rounds):
        start = clock()
        what()
        times.append(1e3 * (clock() - start))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=101, help="of each plan; a tenth of it of the slower ones")
    parser.add_argument("--ilp", action="store_true", help="the integer program as well (pulp and its cbc)")
    asked = parser.parse_args()
    log.addHandler(logging.StreamHandler(open(os.devnull, "w")))
    log.handlers[0].setFormatter(logging.Formatter("%(asctime)s - %(levelname)s - %(message)s"))
    log.setLevel(logging.INFO)
    slow = max(3, asked.rounds // 10)
    print("model,canvas,what,ms,torch")
    for model in MODELS:
        for tokens in CANVASES:
            timed = {"plan": (asked.rounds, lambda: plan_once(model, tokens)),
                     "chunked": (asked.rounds, lambda: plan_once(model, tokens, 3, 5)),
                     "step": (asked.rounds, lambda: search(model, tokens, 1 << 50)),
                     "grid": (slow, lambda: grid(model, tokens))}
            for name, hard in (("ilp", False), ("ilp-hard", True)) if asked.ilp else ():
                timed[name] = (slow, functools.partial(plan_once, model, tokens,
                                                       place=functools.partial(integer_program, hard)))
            for name, (rounds, what) in timed.items():
                version = torch.__version__ if torch is not None else "none"
                clock = time.perf_counter if name.startswith("ilp") else time.process_time
                print(f"{model},{tokens},{name},{median_ms(rounds, what, clock):.4f},{version}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
