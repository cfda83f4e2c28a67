"""Draws runs: configurations out of what `unmask list` names, traces, and faults.

    python3 tests/torture/draw.py N      how often N seeds draw each live system, decoder and number of replicas
"""
import collections
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import program
from program import PLUGINS, ROOT

BLOCK_SYSTEMS = ("sdar", "lmdeploy", "sglang", "dc", "focus", "fast-dllm-v2", "dinfer-block")
BLOCK_CACHES = ("exact", "delayed", "neighbour", "focus")
EXACT_CACHES = (*BLOCK_CACHES, "small-blocks")
HOWS = {"alloc": ["once", "once", "on", "kill", "int", "term", "hup"],
        "file": ["once", "once", "on", "kill"], "device": ["once", "on", "kill", "int"],
        "io": ["once", "on", "kill", "power", "power", "lie"],
        "write": ["once", "short", "full", "torn"]}


class Lists:
    """What can be named, and the parameters of every kind of thing."""

    def __init__(self, library=None):
        self.library = library
        text = subprocess.run([program.PROGRAM, "list", "--json"], capture_output=True, check=True,
                              env=dict(os.environ, UNMASK_DATA=ROOT, ASAN_OPTIONS="detect_leaks=0"))
        lists = json.loads(text.stdout)
        self.live = [row["name"] for row in lists["systems"]["rows"] if row["live"] == "yes"]
        self.attention = {row["name"]: row["attention"] for row in lists["models"]["rows"]}
        self.names = {what: [row.get("name") for row in held["rows"]]
                      for what, held in lists.items()}
        self.parameters = {what: held.get("parameters", []) for what, held in lists.items()}

    def value(self, rng, parameter):
        """One within its range, most often near the one it has at first."""
        text = parameter["range"]
        if ".." not in text:
            return rng.choice(text.split("|"))
        low, high = (float(word) for word in text.split(".."))
        if rng.random() < 0.1:
            return "%g" % rng.choice([low, high])
        try:
            middle = max(float(parameter["initial"]), 1e-3)
        except ValueError:
            middle = math.sqrt(max(low, 1) * high)
        drawn = middle * math.exp(rng.gauss(0, 1)) if rng.random() < 0.7 else rng.uniform(low, high)
        drawn = min(max(drawn, low), high)
        return "%g" % drawn if parameter["unit"] == "1" and high < 10 else "%d" % drawn

    def settings(self, rng, policies, is_live):
        """--set of a few keys: of every system, and of what was chosen. Live replicas, of which each has
        an engine, are few."""
        found = []
        of = {what: [p for p in keys if p["of"].startswith("every ") or p["of"] in policies]
              for what, keys in self.parameters.items()}
        for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
            keys = of[rng.choice(["systems", "systems", "systems", "schedulers", "caches", "decoders",
                                  "runtimes", "hosts"])]
            if keys:
                parameter = rng.choice(keys)
                value = self.value(rng, parameter)
                value = str(min(int(value), 8)) if is_live and parameter["key"] == "replicas" else value
                found += ["--set", f"{parameter['key']}={value}"]
        return found


def attention(system):
    """Of the models that a system serves."""
    return ("autoregressive" if system.startswith("vllm") or system == "ar" else
            "block-causal" if system.startswith(BLOCK_SYSTEMS) else "bidirectional")


def suits(rng, seen, wanted):
    """Nearly always what fits together."""
    return seen == wanted or rng.random() < 0.02


def policies(lists, rng, seen):
    """Policies in the place of a system's own, some of them plug-ins, some of those bad; `seen`: how
    the model attends. Accidents (tests/plugins/accident.c) are left out: they leak, close files and
    start threads in the process that they share with a run, which only check-plugin watches for."""
    found = []
    plugin = rng.choice(sorted(name for name in os.listdir(PLUGINS)
                               if name.endswith(".so") and not name.startswith("accident_")))
    kinds = {"cache": "cache", "decoder": "decoder", "rule": "decoder", "dkv": "cache",
             "focus": "cache"}
    kind = next((kinds[word] for word in kinds if word in plugin), "scheduler")
    kind = kind if rng.random() < 0.12 else None
    for option, what, odds in (("scheduler", "schedulers", 0.3), ("cache", "caches", 0.15),
                               ("decoder", "decoders", 0.3), ("router", "routers", 0.3),
                               ("planner", "planners", 0.2), ("runtime", "runtimes", 0.15),
                               ("host", "hosts", 0.1)):
        names = [name for name in lists.names[what] if what != "caches" or
                 suits(rng, (name in BLOCK_CACHES), (seen != "bidirectional"))]
        if kind == option:
            found += ["--" + option, os.path.join(PLUGINS, plugin)]
        elif rng.random() < odds and names:
            found += ["--" + option, rng.choice(names)]
    return found


def trace(rng, folder, is_tiny, name="trace.csv"):
    """A trace of one's own: lengths of all sizes, gaps of all sizes; of turns, now and then, and
    with answers."""
    longest, now, lines = (24 if is_tiny else rng.choice([64, 600, 3000])), 0, []
    talks, answers = rng.random() < 0.3, rng.random() < 0.3
    for _ in range(rng.randint(1, 8 if is_tiny else 40)):
        now += int(rng.choice([0, rng.expovariate(1e-4), rng.expovariate(1e-6)]))
        prompt, output = rng.randint(1, longest), rng.randint(1, longest)
        line = [now, prompt, output, rng.randint(0, 3), rng.randint(0, prompt)]
        line += [rng.randint(1, output)] if answers else []
        line += [rng.randint(0, 4), rng.choice([0, 1000, rng.randint(0, 10**7)])] if talks else []
        lines.append(",".join(str(word) for word in line) + "\n")
    with open(os.path.join(folder, name), "w") as file:
        file.write("arrival_us,input_tokens,output_tokens,tenant,prefix_tokens" +
                   (",answer_tokens" if answers else "") + (",session,think_us" if talks else "") +
                   "\n" + "".join(lines))
    return ["--workload", name]


def lengths(rng, most):
    """Lines of a workload's file on its lengths."""
    lines = []
    for side in ("input", "output"):
        model = rng.choice(["fixed", "uniform", "lognormal"])
        a, b = sorted(rng.randint(1, most) for _ in range(2))
        lines.append(f"{side} = {model}")
        lines += {"fixed": [f"{side}.tokens = {b}"],
                  "uniform": [f"{side}.min = {a}", f"{side}.max = {b}"],
                  "lognormal": [f"{side}.mean = {b}"]}[model]
    if rng.random() < 0.3:
        lines += ["answer = share", "provenance.answers = assumed"]
    return lines


def workload_file(rng, folder, name, is_tiny):
    """One of any process; times are drawn so that some fall together."""
    process = rng.choice(["closed-loop", "closed-loop", "sessions", "sessions", "poisson", "gamma",
                          "bursts", "all-at-once", "trace"])
    if process == "trace":
        trace(rng, folder, is_tiny, name + ".csv")
        lines = [f"trace = {name}.csv", "lengths = trace", "arrivals = trace",
                 "provenance.arrivals = synthetic"]
        lines += [f"requests = {rng.randint(1, 60)}"] if rng.random() < 0.3 else []
    else:
        lines = [f"arrivals = {process}", f"requests = {rng.randint(1, 6 if is_tiny else 30)}",
                 *lengths(rng, 16 if is_tiny else rng.choice([32, 300]))]
        think = rng.choice(["0", "0", "1ms", "300ms", "5s"])
        lines += {"closed-loop": [f"arrivals.clients = {rng.randint(1, 9)}",
                                  f"arrivals.think_ns = {think}"],
                  "sessions": [f"arrivals.turns = {rng.choice([1, 2, 6])}",
                               f"arrivals.think_ns = {think}"]}.get(process, [])
        if process not in ("closed-loop", "all-at-once"):
            lines.append("rate = %.3g" % math.exp(rng.uniform(-1, 5)))
    with open(os.path.join(folder, name), "w") as file:
        file.write("\n".join(["[workload]", *lines, "provenance.lengths = synthetic"]) + "\n")


def classes(rng, folder, is_tiny):
    """A workload of one's own, or several as classes of one; equal ones among them."""
    names = [f"class{i}.ini" for i in range(rng.randint(1, 3))]
    for name in names:
        workload_file(rng, folder, name, is_tiny)
    if len(names) == 1 and rng.random() < 0.5:
        return ["--workload", "./" + names[0]]
    with open(os.path.join(folder, "all.ini"), "w") as file:
        file.write("[workload]\nclasses = " +
                   ", ".join(rng.choice(names) for _ in range(rng.randint(1, 4))) + "\n")
    return ["--workload", "./all.ini"]


def workload(lists, rng, folder, is_tiny):
    found = ["--seed", str(rng.randint(1, 99))]
    kind = rng.random()
    if kind < 0.2:
        found += trace(rng, folder, is_tiny)
    elif kind < 0.55:
        found += classes(rng, folder, is_tiny)
    else:
        found += ["--requests", str(rng.randint(1, 6 if is_tiny else 40))]
        if rng.random() < 0.2:
            found += ["--arrivals", rng.choice(lists.names["arrivals"])]
        elif rng.random() < 0.5:
            found += ["--workload", "burst", "--rate", "%.3g" % math.exp(rng.uniform(-2, 4))]
        elif not is_tiny:
            found += ["--workload", rng.choice(lists.names["workloads"])]
        if is_tiny or rng.random() < 0.4:
            most = 24 if is_tiny else 700
            found += ["--input-tokens", str(rng.randint(1, most)),
                      "--output-tokens", str(rng.randint(1, most))]
    return found


def extras(rng, is_live):
    """What changes what a run says, not what it does."""
    found = []
    for word in ("--slo-latency", "--slo-ttft", "--slo-tpot"):
        if rng.random() < 0.15:
            found += [word, "%.3gs" % math.exp(rng.uniform(-4, 3))]
    if not is_live:
        found += ["--bound"] if rng.random() < 0.25 else []
        found += ["--roofline"] if rng.random() < 0.15 else []
    return found


def overload(lists, rng, folder):
    """More than is served: a thousand at once, ten times what can be, memory for a few, one long among
    short ones. What waits is short, so that all of it is served in seconds."""
    kind = rng.choice(["once", "over", "few", "long"])
    if kind == "long":
        with open(os.path.join(folder, "trace.csv"), "w") as file:
            file.write("arrival_us,input_tokens,output_tokens\n" + "".join(
                "%d,%d,%d\n" % (i * 20000, *((2000, 300) if i == 5 else (rng.randint(1, 200), 32)))
                for i in range(300)))
        return ["--workload", "trace.csv"]
    words = ["--requests", str({"once": rng.randint(600, 1100), "over": 300, "few": 60}[kind]),
             "--workload", rng.choice(["burst", "azure", "osc"]), "--output-tokens", str(rng.choice([8, 32, 64])),
             "--seed", str(rng.randint(1, 99))]
    words += ["--rate", "%.3g" % rng.uniform(5, 50)] if kind == "over" else ["--arrivals", "all-at-once"]
    return words + (["--set", "page_tokens=16", "--set", f"pool_pages={rng.randint(150, 500)}"]
                    if kind == "few" else [])


def swapping(lists, rng, own, is_live):
    """Memory of the host, plenty or hardly any, and the scheduler in `own`, or another one, that preempts by it."""
    words = ["--set", f"swap.host_bytes={rng.choice(['1MiB', '64MiB', '1GiB', '64GiB'])}"]
    can = sorted(p["of"] for p in lists.parameters["schedulers"] if p["key"] == "scheduler.preempts")
    if "--scheduler" not in own:
        own = ["--scheduler", rng.choice(can + [os.path.join(PLUGINS, "swapping_scheduler.so")])]
        words += own
    words += ["--set", "scheduler.preempts=swap"] if own[own.index("--scheduler") + 1] in can else []
    return words + (["--set", "swap.overlaps=on"] if not is_live and rng.random() < 0.3 else [])


def overloaded(lists, rng, folder):
    """`unmask run ...` of any scheduler with any cache policy under overload: nothing may starve."""
    cache = rng.choice(lists.names["caches"])
    system = "sdar" if cache in EXACT_CACHES else "dllm-serve"
    scheduler = rng.choice(lists.names["schedulers"])
    args = ["run", "--json", "--system", system, "--gpu", rng.choice(["l40s", "h200", "rtx4090"]),
            "--scheduler", scheduler, "--cache", cache]
    args += ["--set", "kv=slab"] if cache == "dllm-cache" or rng.random() < 0.1 else []
    args += ["--replicas", "2"] if rng.random() < 0.1 else []
    args += ["--set", "decides_ahead=on"] if rng.random() < 0.2 else []
    args += swapping(lists, rng, ["--scheduler", scheduler], False) if rng.random() < 0.3 else []
    keys = [p for p in lists.parameters["schedulers"]
            if p["of"] == scheduler and p["key"] != "scheduler.preempts"]
    for parameter in rng.sample(keys, min(len(keys), rng.choice([0, 0, 1, 2]))):
        args += ["--set", f"{parameter['key']}={lists.value(rng, parameter)}"]
    return args + overload(lists, rng, folder)


def run(lists, rng, folder, live=0.35):
    """`unmask run ...`, simulated or, with that probability, on the CPU or lists.library's device, without
    what is recorded."""
    is_live = rng.random() < live
    served = [name for name in lists.names["systems"]
              if not name.startswith(("native", "mosaic-torch", "mosaic-compile"))]
    system, model = rng.choice(lists.live if is_live and rng.random() < 0.85 else served), None
    models = [name for name in sorted(lists.attention)
              if (name.endswith("tiny") or not is_live) and
              suits(rng, lists.attention[name], attention(system))]
    if is_live or rng.random() < 0.4:
        model = rng.choice(models)
    own = policies(lists, rng, attention(system))
    own += swapping(lists, rng, own, is_live) if rng.random() < 0.15 else []
    args = ["run", "--json", "--system", system, *own]
    args += ["--model", model] if model else []
    if is_live:
        args += (["--backend", "cuda", "--library", lists.library, "--set", "memory_utilization=0.03"]
                 if lists.library else ["--backend", "cpu", "--clock", "virtual"])
        args += ["--runtime", "unmask"] if "--runtime" not in own else []
    else:
        args += ["--gpu", rng.choice(lists.names["gpus"])]
    args += ["--replicas", str(rng.randint(2, 4))] if rng.random() < (0.2 if is_live else 0.3) else []
    if is_live and rng.random() < 0.15:
        args += ["--set", "tensor_parallel=2"]
    args += lists.settings(rng, own, is_live) + extras(rng, is_live)
    return args + workload(lists, rng, folder, is_live), is_live


def sweep(lists, rng, folder):
    """`unmask sweep`: several points, on several threads."""
    text = ["[sweep]", "systems = " + ", ".join(rng.sample(lists.names["systems"], rng.randint(1, 3))),
            "gpus = " + rng.choice(lists.names["gpus"]), "workloads = burst",
            # each once: equal points are run as often as asked for, but one on record stands for all of them
            "rates = " + ", ".join(dict.fromkeys("%.2g" % rng.uniform(0.1, 3) for _ in range(rng.randint(1, 3)))),
            f"requests = {rng.randint(1, 12)}"]
    with open(os.path.join(folder, "sweep.ini"), "w") as file:
        file.write("\n".join(text) + "\n")
    return ["sweep", "sweep.ini", "--json", "-j", str(rng.choice([1, 1, 2, 4]))]


def fault(rng, chances):
    """One of the kinds that have a chance; now and then one that never comes."""
    kinds = [kind for kind in HOWS if chances.get(kind)]
    if not kinds or rng.random() < 0.1:
        return None
    kind = rng.choice(kinds)
    at = rng.randint(1, chances[kind])
    if rng.random() < 0.05:
        at = 10 * chances[kind]
    return f"{kind}:{at}:{rng.choice(HOWS[kind])}"


def seeded(seed):
    return random.Random(seed)


def main(n):
    lists, seen = Lists(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(n):
            args, is_live = run(lists, seeded(seed), folder)
            words = dict(zip(args, args[1:]))
            seen.update(f"{option[2:]} {words[option]}" for option in ("--system", "--decoder", "--replicas")
                        if is_live and option in words)
    for what, count in sorted(seen.items()):
        print(f"{count:6} {what}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
