"""Recorded allocation streams: what PyTorch's CUDA caching allocator did, event by event.

Run from the repository root on a machine with a GPU and PyTorch:

    python3 experiments/study/reference/record_allocations.py all FOLDER && tar czf tests/golden/allocations.tar.gz --format=ustar -C FOLDER $(ls FOLDER)

Each stream comes from a process of its own, so that it begins with an empty allocator:

  llada-*   a LLaDA-shaped model with random weights (2 layers of the 8B model, its vocabulary) denoises
            canvases of several lengths: weights, forward passes over the whole canvas, full logits,
            float64 softmax and top-k as in the published generate.py (GSAI-ML/LLaDA-8B-Instruct).
  random-*  requests of random sizes around the allocator's limits, freed in random order.

under default settings, expandable_segments:True, max_split_size_mb:128, a memory limit
(set_per_process_memory_fraction) and garbage_collection_threshold. `sim/memory/stream.h` states the
format. Where each column comes from:

  event, id, bytes       the allocator's own trace (torch.cuda.memory._record_memory_history)
  address                likewise
  segment_address        of the segment that the allocator took from the driver for this event
  reserved_bytes         llada: summed over the trace's segment events, and equal to the profiler's
                         figure wherever there is one; random: torch.cuda.memory_stats
  allocated_bytes        llada: torch.profiler's "Total Allocated"; random: memory_stats
  inactive_bytes         random: memory_stats "inactive_split_bytes" (it excludes expandable segments)
  segments               as reserved_bytes (empty under expandable segments)

Only the functions that record need PyTorch; the conversion is plain Python.
"""

import datetime
import json
import os
import random
import subprocess
import sys
import tempfile

MIB = 1 << 20
COLUMNS = ["event", "id", "bytes", "address", "segment_address", "reserved_bytes",
           "allocated_bytes", "inactive_bytes", "segments"]

SETTINGS = {
    "default": dict(model="torch"),
    "expandable": dict(model="torch-expandable"),
    "max-split": dict(model="torch", max_split_bytes=128 * MIB),
    "limited": dict(model="torch", limit_bytes=9216 * MIB),
    "limited-expandable": dict(model="torch-expandable", limit_bytes=9216 * MIB),
    "limited-max-split": dict(model="torch", limit_bytes=9216 * MIB, max_split_bytes=128 * MIB),
    "collected": dict(model="torch", limit_bytes=9216 * MIB, gc_threshold=0.6),
    "compiled": dict(model="torch"),
}
RANDOM_LIMIT_BYTES = 2048 * MIB
LLADA_STREAMS = ["default", "expandable", "max-split", "limited", "limited-expandable", "compiled"]
RANDOM_STREAMS = ["default", "expandable", "max-split", "limited", "limited-expandable",
                  "limited-max-split", "collected"]


# ---- conversion: the allocator's trace to rows ----


class Segments:
    """Bytes taken from the driver and where, as the trace's segment events tell."""

    def __init__(self):
        self.reserved_bytes = 0
        self.count = 0

    def take(self, entry):
        sign = 1 if entry["action"] in ("segment_alloc", "segment_map") else -1
        self.reserved_bytes += sign * entry["size"]
        if entry["action"] in ("segment_alloc", "segment_free"):
            self.count += sign


def convert(trace, marks, is_expandable):
    """Rows from trace entries {action, addr, size, stream}, in order.

    `marks` are (number of traced rows that precede, "empty" or "graph") in order: what the program
    did between allocations, which the trace does not show. Segments given back behind the mark of an
    emptied cache belong to it, others to the allocation that follows. Every row gets the reserved
    bytes after it.
    """
    rows, ids, segments, marks = [], {}, Segments(), list(marks)
    n_ids, segment_address, n_traced = 0, None, 0
    streams = {e["stream"] for e in trace if e["action"] in ("alloc", "free_completed")}
    if len(streams) > 1:
        raise ValueError("the trace has allocations on %d CUDA streams, expected 1" % len(streams))

    def append(event, **values):
        row = dict(event=event, reserved_bytes=segments.reserved_bytes,
                   segments=None if is_expandable else segments.count, **values)
        rows.append(row)

    def append_marks(events=("empty", "graph")):
        while marks and marks[0][0] <= n_traced and marks[0][1] in events:
            append(marks.pop(0)[1])

    for entry in trace:
        action = entry["action"]
        if action in ("segment_alloc", "segment_map"):
            append_marks()
            segments.take(entry)
            segment_address = segment_address or entry["addr"]
        elif action in ("segment_free", "segment_unmap"):
            append_marks(("graph",))
            segments.take(entry)
        elif action in ("alloc", "oom"):
            append_marks()
            values = dict(id=n_ids, bytes=entry["size"], segment_address=segment_address)
            if action == "alloc":
                ids[entry["addr"]] = n_ids
                values["address"] = entry["addr"]
            append(action, **values)
            n_ids, n_traced, segment_address = n_ids + 1, n_traced + 1, None
        elif action == "free_requested":
            append_marks()
        elif action == "free_completed":
            append("free", id=ids.pop(entry["addr"]))
            n_traced += 1
    append_marks()
    return rows


def add_totals(rows, totals):
    """Add allocated bytes from (is_alloc, address, allocated, reserved) of the profiler.

    Returns a sentence when the two recordings do not tell the same story; then nothing is added.
    """
    addresses = {}
    traced = [row for row in rows if row["event"] in ("alloc", "free")]
    if len(traced) != len(totals):
        return "%d traced events, %d profiled" % (len(traced), len(totals))
    for i, (row, (is_alloc, address, _, reserved)) in enumerate(zip(traced, totals)):
        if row["event"] == "alloc":
            addresses[row["id"]] = row["address"]
        if is_alloc != (row["event"] == "alloc") or address != addresses[row["id"]]:
            return "event %d is a different one in trace and profile" % i
        if reserved != row["reserved_bytes"]:
            return "event %d: the segments add up to %d bytes, the profile says %d" % (
                i, row["reserved_bytes"], reserved)
    allocated, following = 0, iter(totals)
    for row in rows:
        if row["event"] in ("alloc", "free"):
            allocated = next(following)[2]
        row["allocated_bytes"] = allocated
    return None


def add_stats(rows, stats, is_expandable):
    """Add memory_stats figures, one entry a row, and check the trace against them."""
    if len(rows) != len(stats):
        raise ValueError("%d rows, %d memory statistics" % (len(rows), len(stats)))
    for i, (row, stat) in enumerate(zip(rows, stats)):
        if row["reserved_bytes"] != stat["reserved"]:
            raise ValueError("row %d: the segments add up to %d bytes, memory_stats says %d" % (
                i, row["reserved_bytes"], stat["reserved"]))
        row["allocated_bytes"] = stat["allocated"]
        if not is_expandable:
            row["inactive_bytes"], row["segments"] = stat["inactive"], stat["segments"]


def write(path, settings, source, rows):
    with open(path, "w") as out:
        out.write("# source = %s\n" % source)
        for key, value in settings.items():
            out.write("# %s = %s\n" % (key, value))
        out.write(",".join(COLUMNS) + "\n")
        for row in rows:
            values = [row.get(column) for column in COLUMNS]
            out.write(",".join("" if v is None else str(v) for v in values) + "\n")


# ---- recording ----


class Recording:
    """The allocator's trace and the marks between its events, from an empty allocator on."""

    def __init__(self, settings):
        import torch

        self.torch, self.marks, self.settings = torch, [], settings
        torch.cuda.init()
        if "limit_bytes" in settings:
            total = torch.cuda.mem_get_info()[1]
            fraction = settings["limit_bytes"] / total
            settings["limit_bytes"] = int(fraction * total)
            torch.cuda.set_per_process_memory_fraction(fraction)
        torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=1 << 20)

    def mark(self, event):
        stats = self.torch.cuda.memory_stats()
        keys = ["allocation.all.allocated", "allocation.all.freed", "num_ooms"]
        self.marks.append((sum(stats.get(key, 0) for key in keys), event))

    def empty(self):
        self.mark("empty")
        self.torch.cuda.empty_cache()

    def rows(self):
        trace = self.torch.cuda.memory._snapshot()["device_traces"][0]
        entries = [dict(action=e["action"], addr=e.get("addr"), size=e["size"],
                        stream=e["stream"]) for e in trace]
        return convert(entries, self.marks, self.is_expandable())

    def is_expandable(self):
        return self.settings["model"] == "torch-expandable"

    def source(self, what):
        return "%s; PyTorch %s on %s, recorded %s" % (
            what, self.torch.__version__, self.torch.cuda.get_device_name(),
            datetime.date.today().isoformat())


# Sizes of LLaDA-8B (GSAI-ML/LLaDA-8B-Instruct, config.json) but for the number of layers.
HIDDEN, HEADS, HEAD_DIM, FFN, VOCAB, LAYERS, MASK = 4096, 32, 128, 12288, 126464, 2, 126336
LENGTHS = [256, 1024, 700, 2048, 1500, 3072, 512, 2600, 1800, 1024]


class Llada:
    def __init__(self, torch):
        def matrix(rows, columns):
            return torch.empty(rows, columns, dtype=torch.bfloat16, device="cuda").normal_(std=0.02)

        def norm():
            return torch.ones(HIDDEN, dtype=torch.bfloat16, device="cuda")

        self.torch = torch
        self.embed = matrix(VOCAB, HIDDEN)
        self.layers = [dict(attn_norm=norm(), ffn_norm=norm(), q=matrix(HIDDEN, HIDDEN),
                            k=matrix(HIDDEN, HIDDEN), v=matrix(HIDDEN, HIDDEN),
                            o=matrix(HIDDEN, HIDDEN), gate=matrix(FFN, HIDDEN),
                            up=matrix(FFN, HIDDEN), down=matrix(HIDDEN, FFN))
                       for _ in range(LAYERS)]
        self.norm, self.head = norm(), matrix(VOCAB, HIDDEN)

    def rms_norm(self, x, weight):
        wide = x.float()
        wide = wide * self.torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return weight * wide.to(x.dtype)

    def rotary(self, length):
        torch = self.torch
        inverse = 1.0 / (500000.0 ** (torch.arange(0, HEAD_DIM, 2, device="cuda").float() / HEAD_DIM))
        angles = torch.outer(torch.arange(length, device="cuda").float(), inverse)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    def rotate(self, x, cos, sin):
        wide = x.float()
        half = wide.shape[-1] // 2
        turned = self.torch.cat((-wide[..., half:], wide[..., :half]), dim=-1)
        return (wide * cos + turned * sin).to(x.dtype)

    def layer(self, x, w, cos, sin):
        F = self.torch.nn.functional
        h = self.rms_norm(x, w["attn_norm"])
        q, k, v = (F.linear(h, w[n]).view(1, -1, HEADS, HEAD_DIM).transpose(1, 2) for n in "qkv")
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + F.linear(a.transpose(1, 2).reshape(1, -1, HIDDEN), w["o"])
        h = self.rms_norm(x, w["ffn_norm"])
        return x + F.linear(F.silu(F.linear(h, w["gate"])) * F.linear(h, w["up"]), w["down"])

    def step(self, canvas, layer, mark):
        """One denoising step: full logits, confidences in float64, the surest masked position."""
        torch = self.torch
        mark("graph")
        x = torch.nn.functional.embedding(canvas, self.embed)
        cos, sin = self.rotary(canvas.shape[1])
        for weights in self.layers:
            mark("graph")
            x = layer(x, weights, cos, sin)
        mark("graph")
        logits = torch.nn.functional.linear(self.rms_norm(x, self.norm), self.head)
        tokens = torch.argmax(logits, dim=-1)
        probabilities = torch.nn.functional.softmax(logits.to(torch.float64), dim=-1)
        confidence = torch.gather(probabilities, -1, tokens.unsqueeze(-1)).squeeze(-1)
        masked = canvas == MASK
        confidence = torch.where(masked, confidence, float("-inf"))
        tokens = torch.where(masked, tokens, canvas)
        chosen = torch.topk(confidence[0], k=8).indices
        canvas[0, chosen] = tokens[0, chosen]


def record_llada(name, path):
    settings = dict(SETTINGS[name])
    recording = Recording(settings)
    torch = recording.torch
    torch.manual_seed(1)
    n_failed = 0
    with torch.no_grad(), torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        model = Llada(torch)
        layer = torch.compile(model.layer, dynamic=True) if name == "compiled" else model.layer
        for i, length in enumerate(LENGTHS):
            try:
                canvas = torch.full((1, length), MASK, dtype=torch.long, device="cuda")
                for _ in range(2):
                    model.step(canvas, layer, recording.mark)
            except torch.OutOfMemoryError:
                n_failed += 1
            if i == 4:
                recording.empty()
        torch.cuda.synchronize()
    rows = recording.rows()
    problem = add_totals(rows, profiled_totals(profile))
    source = recording.source("LLaDA-shaped, %d layers, canvases of %s tokens, 2 steps each" % (
        LAYERS, " ".join(map(str, LENGTHS))))
    write(path, settings, source, rows)
    print("%-28s %5d rows, %d of %d canvases ran out of memory; %s" % (
        os.path.basename(path), len(rows), n_failed, len(LENGTHS),
        problem or "trace and profile agree"), flush=True)


def profiled_totals(profile):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profile.export_chrome_trace(file.name)
        with open(file.name) as text:
            events = json.load(text)["traceEvents"]
    events = [e for e in events if e.get("name") == "[memory]" and e["args"]["Device Type"] == 1]
    events.sort(key=lambda e: e["ts"])
    return [(e["args"]["Bytes"] > 0, e["args"]["Addr"], e["args"]["Total Allocated"],
             e["args"]["Total Reserved"]) for e in events]


def random_bytes(rng, max_bytes):
    edges = [512, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 32 * MIB, 128 * MIB, 148 * MIB]
    kind = rng.random()
    if kind < 0.25:
        return max(1, rng.choice(edges) + rng.choice([-4096, -512, -1, 0, 1, 512, 4096]))
    if kind < 0.5:
        return rng.randint(1, MIB)
    if kind < 0.85:
        return rng.randint(MIB, 24 * MIB)
    return rng.randint(24 * MIB, max_bytes)


def record_random(name, path):
    settings = dict(SETTINGS[name])
    if "limit_bytes" in settings:
        settings["limit_bytes"] = RANDOM_LIMIT_BYTES
    recording = Recording(settings)
    torch, rng, live, stats, n_failed = recording.torch, random.Random(7), [], [], 0

    def note():
        s = torch.cuda.memory_stats()
        stats.append(dict(reserved=s["reserved_bytes.all.current"],
                          allocated=s["allocated_bytes.all.current"],
                          inactive=s["inactive_split_bytes.all.current"],
                          segments=s["segment.all.current"]))

    for i in range(1400):
        if rng.random() < 0.004:
            recording.empty()
        elif live and rng.random() < (0.2 if i % 300 < 120 else 0.55):
            live.pop(rng.randrange(len(live)))
        else:
            try:
                live.append(torch.empty(random_bytes(rng, 400 * MIB), dtype=torch.uint8,
                                        device="cuda"))
            except torch.OutOfMemoryError:
                n_failed += 1
        note()
    while live:
        live.pop()
        note()
    recording.empty()
    note()
    rows = recording.rows()
    add_stats(rows, stats, recording.is_expandable())
    write(path, settings, recording.source("random sizes"), rows)
    print("%-28s %5d rows, %d out of memory; trace and memory_stats agree" % (
        os.path.basename(path), len(rows), n_failed), flush=True)


def options_of(settings):
    given = []
    if settings["model"] == "torch-expandable":
        given.append("expandable_segments:True")
    if "max_split_bytes" in settings:
        given.append("max_split_size_mb:%d" % (settings["max_split_bytes"] // MIB))
    if "gc_threshold" in settings:
        given.append("garbage_collection_threshold:%s" % settings["gc_threshold"])
    return ",".join(given)


def record_all(folder, kinds):
    """All streams at once, a process each: they share the device's memory but no allocator."""
    running = []
    for kind, names in kinds:
        for name in names:
            path = os.path.join(folder, "%s-%s.csv" % (kind, name))
            environment = dict(os.environ)
            options = options_of(SETTINGS[name])
            if options:
                environment["PYTORCH_CUDA_ALLOC_CONF"] = options
            command = [sys.executable, os.path.abspath(__file__), kind, name, path]
            running.append(subprocess.Popen(command, env=environment))
    return max(process.wait() for process in running)


def main(words):
    if len(words) == 2 and words[0] == "all":
        return record_all(words[1], [("llada", LLADA_STREAMS), ("random", RANDOM_STREAMS)])
    if len(words) == 3 and words[0] in ("llada", "random") and words[1] in SETTINGS:
        (record_llada if words[0] == "llada" else record_random)(words[1], words[2])
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
