# %% [markdown]
# # unmask in a notebook
#
# `pip install unmask-*.whl` (from `make wheel`) brings the program, its data and a module; in a clone, where `make` has built
# the program, `python experiments/python/tutorial.py` runs as it is. Cells are those that Jupyter and VS Code know (`# %%`).

# %%
import pandas

import unmask

run = unmask.run(gpu="l40s", system="dllm-serve", workload="burst", rate=0.3, requests=200)
print(f"p99 latency {run['latency_s']['p99']:.1f} s, {run['throughput_tok_s']:.0f} tokens a second")
for warning in run["warnings"]:  # what could mislead in these numbers
    print(f"  {warning['code']}: {warning['text']}")

# %% [markdown]
# ## A grid of runs is a DataFrame
# Every field of `run` is a column. With `db="results.db"` the sweep is recorded, and resumed when it is called again.

# %%
table = unmask.sweep(systems=["fast-dllm", "sparse-dllm", "dllm-serve"], rates=[0.1, 0.2, 0.3, 0.4], seeds=2, gpus="l40s",
                     workloads="burst", requests=200, db="results.db")
print(table.pivot_table(index="rate", columns="system", values="latency_s.p99").round(1))

# %%
print(unmask.read("results.db", "requests").groupby("run")["steps"].mean().head())

# %% [markdown]
# ## Plots
# Means with 95 % intervals over seeds, on axes of matplotlib, where it is installed (`pip install matplotlib`); without it the
# program draws: `unmask.call("plot", ...)` writes SVG, PNG or PDF.

# %%
try:
    axes = unmask.plot(table, x="rate", y="latency_s.p99", by="system")
    axes.figure.savefig("p99.svg")
except ImportError as missing:
    print(missing)

# %% [markdown]
# ## Up to which rate?

# %%
found = unmask.capacity(gpu="l40s", systems=["fast-dllm", "dllm-serve"], slo="p99 latency<60s", no_curve=True)
print(found[["system", "state", "capacity_req_s.mean"]], "in", found.attrs["units"]["capacity_req_s.mean"])

# %% [markdown]
# ## Requests of your own

# %%
log = pandas.DataFrame({"ts": [0.0, 0.4, 0.9, 1.0, 3.5], "prompt": [812, 64, 301, 90, 1500], "output": [256, 32, 128, 64, 256]})
trace = unmask.Trace.from_df(log, time="ts", input="prompt", output="output")
print(unmask.run(workload=trace, gpu="h100")["latency_s"])

# %% [markdown]
# ## A scheduler of your own
# It sees what a scheduler in C sees, and is asked at every decision. What it raises comes out of `run`. Once it is worth it, the
# same in C (`share/doc/unmask/examples/template_scheduler.c`) is a thousand times faster.


# %%
class ShortestFirst(unmask.Scheduler):
    """The fewest output tokens first, but nobody is overtaken for longer than `patience_s`."""

    def __init__(self, patience_s):
        self.patience_ns = patience_s * 1e9

    def schedule(self, view, batch):
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        late = [r for r in view.waiting if view.now_ns - r.arrival_ns > self.patience_ns]
        for request in late:
            if not batch.admit(request):
                return
        for request in sorted(set(view.waiting) - set(late), key=lambda r: (r.output_tokens, r.id)):
            batch.admit(request)


# %%
load = dict(gpu="h100", system="dllm-serve", workload="sharegpt", rate=10, requests=300)
for name, scheduler in (("phase-multiplexed", None), ("shortest first", ShortestFirst(patience_s=60))):
    latency = unmask.run(**load, scheduler=scheduler)["latency_s"]
    print(f"{name:18} p50 {latency['p50']:6.1f} s, p99 {latency['p99']:6.1f} s")
