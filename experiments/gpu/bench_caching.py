"""What PyTorch's caching of memory segments saves: one eager denoising step with and without it.

    python3 experiments/gpu/bench_caching.py OUT.csv [CONTEXT...]

The model is the LLaDA-shaped one of experiments/reference/record_allocations.py with all 32 layers of
the 8B model: full logits and a float64 softmax, as the published generate.py has them. Each mode is a
process of its own (PYTORCH_NO_CUDA_MEMORY_CACHING=1 turns caching off); the modes take turns for
ROUNDS rounds, each step is timed after a warm one. Mosaic, section 3 and figure 5: without caching 46
to 72 % more.
"""

import csv
import os
import statistics
import subprocess
import sys

ROUNDS, STEPS = 2, 3
HERE = os.path.dirname(os.path.abspath(__file__))


def child(contexts):
    sys.path.insert(0, os.path.join(HERE, "..", "reference"))
    import torch
    import record_allocations as reference
    reference.LAYERS = 32
    torch.manual_seed(1)
    with torch.no_grad():
        model = reference.Llada(torch)
        for length in contexts:
            times = []
            for i in range(1 + STEPS):
                canvas = torch.full((1, length), reference.MASK, dtype=torch.long, device="cuda")
                before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda.synchronize()
                before.record()
                model.step(canvas, model.layer, lambda name: None)
                after.record()
                torch.cuda.synchronize()
                if i > 0:
                    times.append(before.elapsed_time(after))
            print(length, *times, flush=True)


def run(contexts, caches):
    environment = dict(os.environ)
    environment.pop("PYTORCH_NO_CUDA_MEMORY_CACHING", None)
    if not caches:
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    text = subprocess.run([sys.executable, __file__, "--child", *map(str, contexts)], env=environment,
                          check=True, capture_output=True, text=True).stdout
    return {int(line.split()[0]): [float(w) for w in line.split()[1:]] for line in text.splitlines()}


def main(words):
    if words[:1] == ["--child"]:
        return child([int(w) for w in words[1:]])
    contexts = [int(w) for w in words[1:]] or [2048, 8192, 32768]
    times = {(length, caches): [] for length in contexts for caches in (True, False)}
    for _ in range(ROUNDS):
        for caches in (True, False):
            for length, steps in run(contexts, caches).items():
                times[length, caches] += steps
    with open(words[0], "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["context", "cached_ms", "uncached_ms", "increase_percent", "steps"])
        for length in contexts:
            cached, uncached = (statistics.median(times[length, caches]) for caches in (True, False))
            out.writerow([length, "%.3f" % cached, "%.3f" % uncached,
                          "%.1f" % (100 * (uncached / cached - 1)), len(times[length, True])])
    print(open(words[0]).read(), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
