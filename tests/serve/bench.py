#!/usr/bin/env python3
"""What the endpoint adds, by the server's own stamps, while a client on another core asks for streams.

    bench.py BUILD [RATE] [SECONDS] [RUNS]
"""
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

BUILD = sys.argv[1]
RATE, SECONDS, RUNS = (float(word) for word in (sys.argv[2:] + ["500", "60", "3"][len(sys.argv) - 2:])[:3])
STREAMS, TOKENS = 1000, 160


def quantile(text, name, share):
    """The bound under which a share of the numbers lies, and how many there are."""
    rows = [(float(le), int(n)) for le, n in re.findall(name + r'_bucket\{[^}]*le="([^"]+)"\} (\d+)', text)]
    total = rows[-1][1]
    return next((bound for bound, n in rows if n >= share * total), float("inf")), total


def run():
    words = ["taskset", "-c", "0"] if os.cpu_count() > 1 else []
    server = subprocess.Popen(words + [f"{BUILD}/unmask", "serve", "--listen", "127.0.0.1:0", "--system", "sdar", "--gpu", "h100", "--replicas", "16",
                                       "--speed", "0.8", "--connections", "1200", "--queue", "2000", "--set", "max_in_system=4000"],
                              stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    first = server.stderr.readline()
    at, model = first.rsplit("http://", 1)[1].strip(), first.split("as '")[1].split("'")[0]
    words = ["taskset", "-c", "1"] if os.cpu_count() > 1 else []
    client = subprocess.run(words + [f"{BUILD}/tests/serve/load", at.rsplit(":", 1)[1], model, str(RATE), str(SECONDS), str(STREAMS),
                                     str(TOKENS)], capture_output=True, text=True)
    text = urllib.request.urlopen(f"http://{at}/metrics").read().decode()
    server.send_signal(signal.SIGTERM)
    server.communicate()
    seen = json.loads(client.stdout)
    taken, n = quantile(text, "unmask:taken_seconds", 0.99)
    written, m = quantile(text, "unmask:written_seconds", 0.99)
    print(f"{seen['requests']} requests, {seen['errors']} errors, {seen['late']} waits for a free stream, {seen['events']} events in "
          f"{seen['seconds']:.1f} s ({seen['events'] / seen['seconds']:.0f}/s); client: first event p50 {seen['first_p50_s']:.4f} s, "
          f"whole p99 {seen['whole_p99_s']:.3f} s")
    print(f"  added at p99: at most {taken * 1e3:g} ms to be taken ({n}), at most {written * 1e3:g} ms to be written ({m})")
    return taken + written


worst = max(run() for _ in range(int(RUNS)))
print(f"serve-bench: p99 of what the endpoint adds, the worst of {int(RUNS)} runs at {RATE:g} requests/s: at most {worst * 1e3:g} ms")
