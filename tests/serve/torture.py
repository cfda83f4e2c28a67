#!/usr/bin/env python3
"""A server under what clients do at their worst, and what it makes of it: a table.

    torture.py BUILD [SHARE] [NAME...]     SHARE of the requests (default: 1); these rows
"""
import contextlib
import http.client
import json
import os
import random
import re
import resource
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(sys.argv[1])
SHARE = float(sys.argv[2]) if len(sys.argv) > 2 else 1
PROGRAM = os.path.join(BUILD, "unmask")
ROWS = []
SMALL = 1 << 16


def row(function):
    ROWS.append(function)
    return function


@contextlib.contextmanager
def served(*words, status=0, **options):
    process = subprocess.Popen([PROGRAM, "serve", "--listen", "127.0.0.1:0", "--system", "sdar", "--gpu", "h100", *words],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **options)
    first = process.stderr.readline()
    assert "http://" in first, first
    process.port = int(first.rsplit(":", 1)[1])
    process.model = first.split("as '")[1].split("'")[0]
    try:
        yield process
        if process.poll() is None and status == 0:
            process.terminate()
        process.said = process.communicate(timeout=60)[1]
        assert process.returncode == status, (process.returncode, process.said)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def rss_kib(process):
    with open(f"/proc/{process.pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))


def client(name, *words, status=0):
    done = subprocess.run([f"{BUILD}/tests/serve/{name}", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)


def metric(process, name):
    c = http.client.HTTPConnection("127.0.0.1", process.port, timeout=20)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    c.close()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{"))


def idle(process):
    end = time.monotonic() + 30
    while metric(process, "vllm:num_requests_running") + metric(process, "vllm:num_requests_waiting") > 0:
        assert time.monotonic() < end, "requests are left"
        time.sleep(0.05)


def ask(process, body, **fields):
    text = body if isinstance(body, bytes) else json.dumps({"model": process.model, **body, **fields}).encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n").encode() + text


def connect(process, small=False):
    c = socket.socket()
    if small:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.settimeout(20)
    c.connect(("127.0.0.1", process.port))
    return c


def seconds_of(process, n):
    """The median of how long a request takes."""
    times = []
    for _ in range(n):
        begin = time.monotonic()
        with connect(process) as c:
            c.sendall(ask(process, {"prompt": [1], "max_tokens": 32}))
            assert b" 200 " in c.recv(SMALL)
        times.append(time.monotonic() - begin)
    return statistics.median(times)


@row
def memory():
    """memory stays as it was"""
    n = int(1e6 * SHARE)
    with served("--speed", "max", "--connections", "300", "--queue", "1000") as s:
        # The percentiles of 32,768 requests are kept; from then on nothing is.
        warm = client("load", s.port, s.model, 1e6, 0, 64, 4, 50000)
        before = rss_kib(s)
        seen = client("load", s.port, s.model, 1e6, 0, 64, 4, n)
        after = rss_kib(s)
        assert warm["errors"] == seen["errors"] == 0 and seen["done"] == n
        assert after <= 1.05 * before, (before, after)
    return f"{n} requests, {n / seen['seconds']:.0f} a second: {before} KiB before, {after} after ({after / before:.3f})"


@row
def disconnects():
    """no token lost or doubled, whoever leaves"""
    n = int(1e5 * SHARE)
    with served("--speed", "max", "--connections", "300", "--queue", "1000") as s:
        seen = client("flood", s.port, s.model, n, 128, 1)
        idle(s)
        done, left = metric(s, "vllm:request_success_total"), metric(s, "unmask:requests_cancelled_total")
        refused = metric(s, "unmask:requests_refused_total")
        assert seen["wrong"] == seen["failed"] == 0 and refused == 0
        assert seen["stayed"] <= done - 32 and done + left <= n + 32  # those with whom the texts were asked for
    return f"{n} streams, {seen['tokens']} tokens read, {n - seen['stayed']} left: 0 lost, 0 doubled; {int(left)} cancelled"


@row
def connections():
    """10,000 connections at once"""
    n = 10000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < n + 100:
        return f"left out: the system lets a program have {hard} files"
    with served("--speed", "max", "--connections", str(n), "--queue", "20000", "--set", "max_in_system=20000",
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))) as s:
        seen = client("load", s.port, s.model, 1e6, 0, n, 8, int(max(1e5 * SHARE, 2 * n)))
        assert seen["errors"] == 0 and seen["done"] == seen["requests"]
        size = rss_kib(s)
    return f"{seen['done']} streams over {n} connections, 0 errors; {size} KiB"


@row
def disk():
    """a disk that is full while it records"""
    with tempfile.TemporaryDirectory() as folder:
        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with served("--speed", "max", "--db", f"{folder}/a.db", "--levels", "steps", status=1, preexec_fn=small) as s:
            seen = client("load", s.port, s.model, 1e6, 0, 64, 64, int(20000 * SHARE) + 5000)
            assert seen["errors"] == 0
            time.sleep(2)
            s.terminate()
        told = [line for line in s.said.splitlines() if "nothing is recorded for now" in line]
        assert len(told) == 1 and "cannot record" in s.said.splitlines()[-1], s.said
        with contextlib.closing(sqlite3.connect(f"{folder}/a.db")) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return f"{seen['done']} requests served on; it says so once, ends with status 1, and the database is sound"


@row
def malformed():
    """bodies and requests that are none"""
    r, n, codes = random.Random(int(os.environ.get("SEED", "1"))), int(20000 * SHARE) + 500, {}
    with served("--speed", "max") as s:
        good = json.dumps({"model": s.model, "prompt": [1, 2, 3], "max_tokens": 4, "stop": ["xyz", "é"], "seed": 1,
                           "stream_options": None}).encode()
        c = connect(s)
        for _ in range(n):
            body = bytearray(good)
            for _ in range(r.randint(1, 4)):
                at = r.randrange(len(body))
                kind = r.randrange(4)
                body[at:at + r.choice((0, 1, 5))] = (bytes([r.randrange(256)]), b"\xc3", b'"', r.randbytes(3))[kind]
            raw = r.random() < 0.02
            try:
                c.sendall(bytes(body) if raw else ask(s, bytes(body)))
                if raw:
                    c.shutdown(socket.SHUT_WR)
                answer = b""
                while b"\r\n\r\n" not in answer:
                    part = c.recv(SMALL)
                    if not part:
                        break
                    answer += part
                head, _, rest = answer.partition(b"\r\n\r\n")
                size = int(re.search(rb"(?i)content-length: (\d+)", head).group(1)) if head else 0
                while len(rest) < size:
                    rest += c.recv(SMALL)
                code = int(head.split()[1]) if head else 0
                if head and not raw:
                    assert json.loads(rest)["error"]["message"] if code != 200 else json.loads(rest)["usage"], rest
            except TimeoutError:
                raise AssertionError((raw, bytes(body), answer)) from None
            except ConnectionError:
                code, raw = 0, True
            codes[code] = codes.get(code, 0) + 1
            assert code in (0, 200, 400, 404), (code, bytes(body))
            if raw or code == 0:
                c.close()
                c = connect(s)
        c.close()
        assert seconds_of(s, 5) < 1
    return f"{n} of them: " + ", ".join(f"{codes[code]} {code or 'closed'}" for code in sorted(codes))


@row
def pipelined():
    """pipelined and half-closed clients"""
    n, r = int(2000 * SHARE) + 50, random.Random(2)
    answered = 0
    with served("--speed", "max") as s:
        for _ in range(n):
            k = r.randint(1, 12)
            with connect(s) as c:
                c.sendall(b"".join(ask(s, {"prompt": [1], "max_tokens": 4, "seed": i}) for i in range(k)))
                if r.random() < 0.5:
                    c.shutdown(socket.SHUT_WR)  # it has left
                    with contextlib.suppress(ConnectionError):
                        while c.recv(SMALL):
                            pass
                    continue
                text = b""
                while text.count(b'"finish_reason"') < k:
                    part = c.recv(SMALL)
                    assert part
                    text += part
                names = [int(name) for name in re.findall(rb'"id":"cmpl-(\d+)"', text)]
                assert names == sorted(names) and len(set(names)) == k
                answered += k
        idle(s)
    return f"{n} clients: {answered} requests of those who stayed are answered, in their order"


@row
def slow():
    """clients that do not read hold up no one"""
    with served("--speed", "4", "--request-timeout", "20s") as s:
        alone = seconds_of(s, 15)
        lazy = [connect(s, small=True) for _ in range(48)]
        for c in lazy:
            c.sendall(ask(s, {"prompt": [1], "max_tokens": 1500, "stream": True}))
        # They end though no one reads, and what they held is free.
        end = time.monotonic() + 120
        while metric(s, "vllm:request_success_total") < 15 + len(lazy):
            assert time.monotonic() < end
            time.sleep(0.1)
        beside = seconds_of(s, 15)
        for c in lazy:
            c.close()
        assert beside < 1.5 * alone + 0.02, (alone, beside)
    return f"a request takes {alone * 1e3:.0f} ms alone, {beside * 1e3:.0f} ms with {len(lazy)} whole replies that no one reads"


def main():
    if not os.path.exists(os.path.join(BUILD, "libunmask_http.so")):
        print("serve-torture: this build has no libmicrohttpd")
        return
    chosen = sys.argv[3:]
    for function in ROWS:
        if not chosen or function.__name__ in chosen:
            begin = time.monotonic()
            said = function()
            print(f"{function.__doc__:44s} {said} [{time.monotonic() - begin:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
