#!/usr/bin/env python3
"""Has clients that others wrote ask a server, and holds what they measured against what the server recorded.

    clients.py BUILD [curl] [openai] [aiperf] [guidellm]

Each Python client is installed first, at the versions and hashes of tests/serve/clients/NAME.txt, into BUILD/clients/NAME; then it
runs without a way to the network. What cannot be installed is left out, with a line that says why.
"""
import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROGRAM = os.path.join(BUILD, "unmask")
TOKENIZER = os.path.join(ROOT, "experiments/train/models/llada-2m")
OFFLINE = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9",
           "NO_PROXY": "127.0.0.1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "COLUMNS": "200",
           "GUIDELLM__MAX_WORKER_PROCESSES": "1"}  # of several, each sends its share of the requests at once
# What is added between the server's stamp and the client's: its loop, on a machine that does other things.
RESOLUTION_S = float(os.environ.get("SERVE_CLIENTS_RESOLUTION", "0.03"))
NO_WAY = r"Temporary failure in name|NewConnectionError|Name or service not known|Network is unreachable|Connection refused|ConnectTimeout|" \
         r"Cannot connect to proxy|No route to host|Read timed out"


@contextlib.contextmanager
def server(*words):
    process = subprocess.Popen([PROGRAM, "serve", "--listen", "127.0.0.1:0", "--system", "sdar", "--gpu", "h100", "--tokenizer", TOKENIZER, *words],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    first = process.stderr.readline()
    assert "http://" in first, first
    try:
        yield "http://" + first.rsplit("http://", 1)[1].strip()
    finally:
        process.terminate()
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said


def run(words, folder, within=180):
    done = subprocess.run(words, cwd=folder, env={**os.environ, **OFFLINE}, capture_output=True, text=True, timeout=within)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def installed(name):
    """Its folder of programs; None without a network."""
    folder = os.path.join(BUILD, "clients", name)
    wanted = os.path.join(HERE, "clients", f"{name}.txt")
    mark = os.path.join(folder, "whole")
    with open(wanted, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    if os.path.exists(mark) and open(mark).read() == digest:
        return os.path.join(folder, "bin")
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True)
    done = made if made.returncode != 0 else subprocess.run(
        [f"{folder}/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes",
         "--only-binary", ":all:", "--retries", "1", "-r", wanted], capture_output=True, text=True)
    if done.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        kept = "there is no way to PyPI" if re.search(NO_WAY, done.stderr) else " ".join((done.stdout + done.stderr).split())[-200:]
        print(f"serve-clients: {name} is left out: it is not installed: {kept}")
        return None
    with open(mark, "w") as file:
        file.write(digest)
    return os.path.join(folder, "bin")


def compared(name, database, results):
    """What the client measured is what the server recorded, and a little later."""
    done = subprocess.run([PROGRAM, "validate", "--json", "--measured", database, "--client", results], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)["runs"][0]["quantities"]
    told = []
    for quantity in ("TTFT p50", "TTFT p95", "latency p50", "latency p95"):
        row = numbers[quantity]
        late = row["client"] - row["measured"]
        told.append(f"{quantity} {row['measured'] * 1e3:.1f} / {row['client'] * 1e3:.1f} ms")
        # The last text leaves before the step that only writes keys and values: a step earlier than the server's end.
        if not -0.02 < late < RESOLUTION_S:
            return f"{quantity} is {row['measured'] * 1e3:.1f} ms for the server, {row['client'] * 1e3:.1f} ms for the client"
    print(f"serve-clients: {name}: server / client {', '.join(told)}")
    return None


def curl():
    if shutil.which("curl") is None:
        print("serve-clients: curl is left out: it is not installed")
        return
    with server() as at, tempfile.TemporaryDirectory() as folder:
        base = ["curl", "--silent", "--show-error", "--fail", "--max-time", "20"]
        model = json.loads(run([*base, f"{at}/v1/models"], folder))["data"][0]["id"]
        body = {"model": model, "prompt": "one two", "max_tokens": 40, "seed": 1, "stream": True, "stream_options": {"include_usage": True}}
        text = run([*base, "--no-buffer", f"{at}/v1/completions", "--data", json.dumps(body)], folder)
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        assert text.endswith("data: [DONE]\n\n") and events[-1]["usage"]["completion_tokens"] == 40
        one = run([*base, "--http1.0", f"{at}/v1/completions", "--data", json.dumps({**body, "stream": False, "stream_options": None})], folder)
        assert json.loads(one)["choices"][0]["text"] == "".join(e["choices"][0]["text"] for e in events if e["choices"])
        assert "vllm:num_requests_running" in run([*base, f"{at}/metrics"], folder)
    print("serve-clients: curl: a list, a stream, a reply over HTTP/1.0, the counters")


def openai(programs):
    """None, or what does not agree."""
    with tempfile.TemporaryDirectory() as folder:
        with server("--db", f"{folder}/a.db") as at:
            said = run([f"{programs}/python", os.path.join(HERE, "clients/ask_openai.py"), at, f"{folder}/out.json"], folder)
        return compared("openai " + said.strip(), f"{folder}/a.db", f"{folder}/out.json")


def aiperf(programs):
    with tempfile.TemporaryDirectory() as folder:
        with server("--db", f"{folder}/a.db") as at:
            run([f"{programs}/aiperf", "profile", "--model", "sdar-8b", "--url", at, "--endpoint-type", "chat", "--streaming", "--tokenizer", TOKENIZER,
                 "--request-rate", "10", "--request-count", "60", "--synthetic-input-tokens-mean", "50", "--synthetic-input-tokens-stddev", "0",
                 "--output-tokens-mean", "64", "--output-tokens-stddev", "0", "--extra-inputs", "ignore_eos:true", "--extra-inputs",
                 "min_tokens:64", "--ui", "none"], folder)
        path = glob.glob(f"{folder}/artifacts/*/profile_export.jsonl")[0]
        with open(path) as file:
            rows = [json.loads(line) for line in file]
        assert len(rows) == 60 and all(row["error"] is None for row in rows if "error" in row)
        # Its own tokenizer counts each reply as the server's usage does.
        assert all(row["metrics"]["output_sequence_length"]["value"] == row["metrics"]["usage_completion_tokens"]["value"] == 64 for row in rows)
        return compared("aiperf", f"{folder}/a.db", path)


def guidellm(programs):
    with tempfile.TemporaryDirectory() as folder:
        with server("--db", f"{folder}/a.db") as at:
            run([f"{programs}/guidellm", "run", "--backend", f"kind=openai_http,target={at},model=sdar-8b", "--profile", "kind=poisson,rate=10",
                 "--constraint", "kind=max_requests,count=60", "--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}", "--data",
                 "kind=synthetic_text,prompt_tokens=50,output_tokens=64", "--output", f"kind=json,path={folder}/out.json",
                 "--disable-console-interactive"], folder)
        with open(f"{folder}/out.json") as file:
            requests = json.load(file)["benchmarks"][0]["requests"]
        assert len(requests["successful"]) == 60 and not requests["errored"] and not requests["incomplete"]
        return compared("guidellm", f"{folder}/a.db", f"{folder}/out.json")


def main():
    if not os.path.exists(os.path.join(BUILD, "libunmask_http.so")):
        print("serve-clients: this build has no libmicrohttpd")
        return
    for name in sys.argv[2:] or ["curl", "openai", "aiperf", "guidellm"]:
        if name == "curl":
            curl()
            continue
        programs = installed(name)
        if programs is None:
            continue
        # Other work of the machine comes between a server and its client, so that a try may say nothing.
        for left in (2, 1, 0):
            said = {"openai": openai, "aiperf": aiperf, "guidellm": guidellm}[name](programs)
            if said is None:
                break
            if left == 0:
                raise SystemExit(f"serve-clients: {name}: {said}, three times")


if __name__ == "__main__":
    main()
