#!/usr/bin/env python3
"""Starts `unmask serve` on free ports and asks it as clients do, good ones and bad ones.

    serve_test.py BUILD            the whole suite
    serve_test.py BUILD NAME...    these tests
"""
import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
PROGRAM = os.path.join(BUILD, "unmask")
TOKENIZER = os.path.join(ROOT, "experiments/train/models/llada-2m")
TESTS = []
SLOW = float(os.environ.get("SERVE_TEST_SLOW", "1"))  # a sanitizer's program takes longer


def test(function):
    TESTS.append(function)
    return function


def fails(*words, **env):
    """The sentence of a command that ends with an error."""
    done = subprocess.run([PROGRAM, "serve", *words], capture_output=True, text=True, timeout=20 * SLOW, env={**os.environ, **env})
    assert done.returncode in (1, 2), (words, done)
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


class Server:
    def __init__(self, *words, listen="127.0.0.1:0", **files):
        self.process = subprocess.Popen([PROGRAM, "serve", "--listen", listen, *words], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, **files)
        first = self.process.stderr.readline()
        assert "http://" in first, first
        self.host, port = first.rsplit("http://", 1)[1].strip().rsplit(":", 1)
        self.port = int(port)
        self.model = first.split("as '")[1].split("'")[0]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None and kind is not None:
            self.process.kill()
            self.process.communicate()
        elif self.process.poll() is None:
            self.end()

    def end(self, status=0, within=10):
        self.process.send_signal(signal.SIGTERM)
        self.out, self.said = self.process.communicate(timeout=within * SLOW)
        assert self.process.returncode == status, (self.process.returncode, self.said)
        return self.said

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=20 * SLOW)

    def ask(self, method, path, body=None, headers=None, connection=None):
        c = connection or self.connect()
        c.request(method, path, body if isinstance(body, (bytes, type(None))) else json.dumps(body), headers or {})
        answer = c.getresponse()
        text = answer.read()
        if connection is None:
            c.close()
        return answer.status, answer, text

    def post(self, path="/v1/completions", status=200, connection=None, **fields):
        fields.setdefault("model", self.model)
        got, _, text = self.ask("POST", path, fields, connection=connection)
        assert got == status, (got, text, fields)
        return json.loads(text)

    def refused(self, status=400, path="/v1/completions", **fields):
        error = self.post(path, status, **fields)["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        return error

    def stream(self, path="/v1/completions", connection=None, **fields):
        fields.setdefault("model", self.model)
        c = connection or self.connect()
        c.request("POST", path, json.dumps({**fields, "stream": True}))
        answer = c.getresponse()
        text = answer.read().decode()
        if connection is None:
            c.close()
        assert answer.status == 200, text
        assert answer.getheader("Content-Type") == "text/event-stream"
        events = text.split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], events[-2:]
        assert all(event.startswith("data: ") for event in events[:-1])
        return [json.loads(event[6:]) for event in events[:-2]]

    def raw(self, data):
        s = socket.create_connection((self.host, self.port), timeout=20 * SLOW)
        s.sendall(data)
        return s

    def metric(self, name, **labels):
        _, _, text = self.ask("GET", "/metrics")
        for line in text.decode().splitlines():
            if line.startswith(name + "{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(name)

    def until(self, holds, within=10):
        end = time.monotonic() + within * SLOW
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.01)


def texts(events):
    return [event["choices"][0]["text"] for event in events if event["choices"]]


def http_bytes(body, head=""):
    return (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(body)}\r\n\r\n").encode() + body


def steps(path):
    """Every single step, with who was in it and what it committed. Where the card's clock follows its power a record of several
    steps has their mean alone."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT s.repeat, s.start_ns, s.end_ns, s.gpu_ns, s.requests, s.tokens, s.commits, m.batch FROM steps s"
                          " JOIN members m ON m.run = s.run AND m.number = s.members ORDER BY s.idx").fetchall()
        out = []
        for repeat, start, end, *rest in rows:
            for i in range(repeat):
                out.append((start + i * ((end - start) // repeat), *rest))
        left = db.execute("SELECT id, arrival_ns, finished_ns, state, reason, steps, answer_tokens FROM requests ORDER BY id")
        return out, left.fetchall()


@test
def a_completion_and_its_stream_say_the_same():
    with Server("--speed", "100") as s:
        whole = s.post(prompt=[1, 2, 3], max_tokens=70, seed=7)
        events = s.stream(prompt=[1, 2, 3], max_tokens=70, seed=7, stream_options={"include_usage": True})
        assert whole["object"] == events[0]["object"] == "text_completion"
        assert "".join(texts(events)) == whole["choices"][0]["text"]
        assert len(whole["choices"][0]["text"].split()) == 70
        assert [len(text.split()) for text in texts(events)] == [32, 32, 6, 0]
        assert events[-1]["usage"] == whole["usage"] == {
            "prompt_tokens": 3, "completion_tokens": 70, "total_tokens": 73, "prompt_tokens_details": {"cached_tokens": 0}}
        assert [e["choices"][0]["finish_reason"] for e in events[:-1]] == [None, None, None, "length"]
        assert all(e["usage"] is None for e in events[:-1])
        assert all("usage" not in e for e in s.stream(prompt=[1], max_tokens=4))
        assert s.post(prompt=[9, 9], max_tokens=70, seed=7)["choices"] == whole["choices"]
        assert s.post(prompt=[1, 2, 3], max_tokens=70, seed=8)["choices"] != whole["choices"]
        assert len({s.post(prompt=[5], max_tokens=3)["id"] for _ in range(3)}) == 3
        assert s.metric("vllm:generation_tokens_total") == 70 * 4 + 4 + 9


@test
def chats_are_counted_and_answered_by_the_tokenizer():
    with Server("--speed", "max", "--tokenizer", TOKENIZER) as s:
        asked = {"messages": [{"role": "user", "content": "two and three"}], "max_completion_tokens": 40, "seed": 3}
        whole = s.post("/v1/chat/completions", **asked)
        message = whole["choices"][0]["message"]
        assert whole["object"] == "chat.completion" and message["role"] == "assistant"
        assert whole["usage"]["completion_tokens"] == 40
        events = s.stream("/v1/chat/completions", **asked)
        assert events[0]["object"] == "chat.completion.chunk" and events[0]["choices"][0]["delta"]["role"] == "assistant"
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == message["content"]
        # A reply's text has as many tokens as its usage counts.
        for seed in range(40):
            reply = s.post(prompt="one", max_tokens=1 + seed, seed=seed)
            again = s.post(prompt=reply["choices"][0]["text"], max_tokens=1)
            assert again["usage"]["prompt_tokens"] == reply["usage"]["completion_tokens"], reply
        parts = [{"type": "text", "text": "two "}, {"type": "text", "text": "and three"}]
        same = s.post("/v1/chat/completions", messages=[{"role": "user", "content": parts}], max_tokens=40, seed=3)
        assert same["usage"] == whole["usage"]
        two = [{"role": "system", "content": "short"}, {"role": "user", "content": "two and three"}]
        assert s.post("/v1/chat/completions", messages=two)["usage"]["prompt_tokens"] > whole["usage"]["prompt_tokens"]
        for bad in ([], [{}], [{"role": "tool", "content": "x"}], [{"role": "user", "content": [{"type": "image_url"}]}],
                    [{"role": "user", "content": "x", "tool_calls": [1]}], "x", [{"role": "user"}]):
            assert s.refused(400, "/v1/chat/completions", messages=bad)["param"] == "messages"
    with Server("--speed", "max", "--tokenizer", TOKENIZER, "--text", "echo") as s:
        assert s.post(prompt="one two", max_tokens=2)["choices"][0]["text"].startswith("one")


@test
def a_stop_ends_the_reply_where_it_is_whole_and_frees_the_rest():
    with Server("--speed", "max", "--system", "sdar") as s:
        ask = {"prompt": [1, 2], "max_tokens": 400, "seed": 5}
        whole = s.post(**ask)["choices"][0]["text"]
        words = whole.split(" ")[1:]
        # A word, the end of one word and the beginning of the next, and several of which the first counts.
        for stop in (" " + words[40], words[60][-2:] + " " + words[61][:1], [words[90], " " + words[70] + " ", "never"]):
            stops = [stop] if isinstance(stop, str) else stop
            end, used = min((whole.find(one) + len(one), one) for one in stops if one in whole)
            reply = s.post(**ask, stop=stop)
            text = whole[:end - len(used)]
            assert reply["choices"][0] == {"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}
            # Up to and with the word in which the stop is whole.
            assert reply["usage"]["completion_tokens"] == whole[:end].count(" ")
            assert s.post(**ask, stop=stop, include_stop_str_in_output=True)["choices"][0]["text"] == whole[:end]
            for shows in (False, True):
                events = s.stream(**ask, stop=stop, include_stop_str_in_output=shows, stream_options={"include_usage": True})
                assert "".join(texts(events)) == (whole[:end] if shows else text) and events[-1]["usage"] == reply["usage"]
                assert events[-2]["choices"][0]["finish_reason"] == "stop"
        assert s.post(**ask, stop="never")["choices"][0]["finish_reason"] == "length"
        steps = s.metric("unmask:request_steps_total")
        s.post(**ask)
        all_of_it, begin = s.metric("unmask:request_steps_total") - steps, s.metric("unmask:request_steps_total")
        s.post(**ask, stop=" " + words[0])
        assert s.metric("unmask:request_steps_total") - begin < all_of_it / 4
        for bad in (5, ["a", 5], [""], ["x"] * 17, "x" * 257, {}):
            assert s.refused(**ask, stop=bad)["param"] == "stop"
        assert s.refused(**ask, stop="x", min_tokens=3)["param"] == "min_tokens"
        each = s.stream(**ask, stream_options={"include_usage": True, "continuous_usage_stats": True})
        counts = [event["usage"]["completion_tokens"] for event in each]
        assert counts == sorted(counts) and counts[0] < counts[-1] == 400
    with Server("--backend", "cpu", "--model", "llada-tiny", "--system", "fast-dllm", "--runtime", "unmask",
                "--set", "early_stop=block") as s:
        ask = {"prompt": [1, 2, 3, 4], "max_tokens": 96}
        whole = s.post(**ask)["choices"][0]["text"]
        stop = " " + whole.split(" ")[5]
        text = whole[:whole.index(stop)]
        reply = s.post(**ask, stop=stop)
        assert reply["choices"][0]["text"] == text and reply["choices"][0]["finish_reason"] == "stop"
        assert reply["usage"]["completion_tokens"] == text.count(" ") + 1
        assert "".join(texts(s.stream(**ask, stop=stop))) == text
        kept = s.metric("unmask:tokens_committed_total")
        s.post(**ask, stop=stop)
        assert s.metric("unmask:tokens_committed_total") - kept < 96
        both = concurrent.futures.ThreadPoolExecutor(6)
        for i, got in enumerate(both.map(lambda i: s.post(**ask, **({"stop": stop} if i % 2 else {})), range(6))):
            assert got["choices"][0]["text"] == (text if i % 2 else whole)


def every_reply_counts(s, reply, text):
    assert s.post(prompt=text, max_tokens=1)["usage"]["prompt_tokens"] == reply["usage"]["completion_tokens"], (reply, text)


@test
def every_reply_is_read_again_as_many_tokens_as_its_usage_counts():
    prompts = ["one two  three\\n\\n", "It's 12345 apples, naïve 🍎!", "  x", "the quick brown fox " * 20]
    random_weights = ("--backend", "cpu", "--model", TOKENIZER, "--weights", "random:1")
    for words in ((), ("--text", "echo"), ("--answers", "lognormal,mean=30,cv=1"), random_weights):
        clock = () if "cpu" in words else ("--speed", "max")
        with Server(*clock, "--tokenizer", TOKENIZER, *words) as s:
            r = random.Random(1)
            for i in range(8 if clock == () else 60):
                ask = {"prompt": prompts[i % 4], "max_tokens": r.randint(1, 60), "ignore_eos": r.random() < 0.3}
                reply = s.post(**ask, seed=i)
                text = reply["choices"][0]["text"]
                every_reply_counts(s, reply, text)
                events = s.stream(**ask, seed=i, stream_options={"include_usage": True})
                assert "".join(texts(events)) == text and events[-1]["usage"] == reply["usage"]
                # The same bytes for a seed, but for the name and the time.
                again = s.post(**ask, seed=i)
                assert {**again, "id": 0, "created": 0} == {**reply, "id": 0, "created": 0}
                message = s.post("/v1/chat/completions", messages=[{"role": "user", "content": ask["prompt"]}],
                                 max_tokens=ask["max_tokens"], seed=i)
                every_reply_counts(s, message, message["choices"][0]["message"]["content"])
                # A stop at the end of a token: with it the text counts, too.
                if len(text.split(" ")) > 4 and not any(c in text for c in "\\n🍎1") and "  " not in text:
                    cut = s.post(**ask, seed=i, stop=" " + text.split(" ")[3], include_stop_str_in_output=True)
                    if words != random_weights and "--text" not in words:
                        every_reply_counts(s, cut, cut["choices"][0]["text"])
    with Server("--speed", "max", "--tokenizer", TOKENIZER, "--text", "echo") as s:
        assert s.post(prompt=prompts[1], max_tokens=60)["choices"][0]["text"].startswith(prompts[1])


@test
def what_cannot_be_honoured_is_refused_and_neutral_values_are_taken():
    with Server("--speed", "max", "--queue", "50") as s:
        ask = {"prompt": [1, 2], "max_tokens": 4}
        for neutral in ({"n": 1}, {"best_of": 1}, {"logprobs": None}, {"logprobs": False}, {"stop": None}, {"stop": []}, {"stop": ""}, {"bad_words": []}, {"min_tokens": 2},
                        {"presence_penalty": 0.0}, {"temperature": 0}, {"top_p": 0.9}, {"top_k": -1}, {"user": "u"},
                        {"repetition_penalty": 1.0}, {"logit_bias": {}}, {"response_format": {"type": "text"}},
                        {"ignore_eos": True}, {"stream": False}, {"echo": False}, {"max_tokens": 4, "max_completion_tokens": 4}):
            s.post(**{**ask, **neutral})
        for bad in ({"n": 2}, {"logprobs": 1}, {"logprobs": True}, {"stop": [3]}, {"bad_words": ["x"]}, {"min_tokens": 5}, {"presence_penalty": 0.1}, {"temperature": 1},
                    {"top_p": 0}, {"top_k": -2}, {"echo": True}, {"tools": []}, {"nonsense": 1}, {"max_tokens": 0},
                    {"max_tokens": 1.5}, {"max_tokens": "4"}, {"max_tokens": 5000}, {"seed": 1.5}, {"arrival_us": 5},
                    {"request_id": 5}, {"stream": 1}, {"stream_options": {"include_usage": True}}, {"suffix": "x"},
                    {"response_format": {"type": "json_object"}}, {"max_tokens": 4, "max_completion_tokens": 5}):
            field = list(bad)[-1]
            error = s.refused(**{**ask, **bad})
            assert error["param"] == field and error["type"] == "invalid_request_error", error
        for prompt in ([], "text", [1, "x"], [-1], [2 ** 31], [[1], [2]], [1.0], {}, None, [True]):
            assert s.refused(prompt=prompt)["param"] == "prompt"
        assert s.post(prompt=[[1, 2]], max_tokens=4)["usage"]["prompt_tokens"] == 2
        error = s.refused(404, prompt=[1], model="other")
        assert error["code"] == "model_not_found"
        assert s.refused(prompt=[1] * 4000, max_tokens=100)["code"] == "context_length_exceeded"
        assert s.refused(max_tokens=4)["param"] == "prompt"
        for body in (b"", b"{", b"[]", b"null", b'{"a":1,"a":2}', b"\xff\xfe", b'{"model":"\xc3("}', b'{"prompt":"\\u0000"}',
                     b"[" * 100000, b'{"model":"\\ud800"}', b"{" + b'"x":1e999}'):
            status, _, text = s.ask("POST", "/v1/completions", body)
            assert status == 400 and json.loads(text)["error"]["message"], (body[:20], text)
        for method, path, status in (("GET", "/v1/completions", 405), ("GET", "/nowhere", 404), ("POST", "/health", 405),
                                     ("DELETE", "/v1/models", 405), ("GET", "/v1/models/../..", 404), ("GET", "/" + "a" * 3000, 404)):
            got, _, text = s.ask(method, path)
            assert got == status and json.loads(text)["error"]["message"], (method, path, got)
        models = json.loads(s.ask("GET", "/v1/models")[2])
        assert models["data"][0]["id"] == "llada-8b" and models["data"][0]["max_model_len"] == 4096
        assert s.metric("unmask:requests_refused_total", cause="request") > 40
    with Server("--speed", "max", "--set", "sampling=on", "--set", "temperature=0.7") as s:
        for asked in ({"temperature": 0.7}, {"temperature": 0}, {"temperature": 1.5, "top_p": 0.9, "top_k": 5, "seed": 3}):
            s.post(prompt=[1], max_tokens=4, **asked)
        assert s.refused(prompt=[1], temperature=0.001)["param"] == "temperature"


@test
def what_clients_ask_of_draws_is_on_record_and_served_again():
    words = ("--system", "fast-dllm", "--set", "sampling=on", "--set", "probabilities=kept", "--set", "decoder=threshold", "--set", "skip_ahead=off")
    asked = ({}, {"temperature": 0}, {"temperature": 1.5, "top_p": 0.9, "seed": -1}, {"top_k": 5, "seed": 3}, {"top_k": -1}, {})
    query = "SELECT temperature_millionths, top_p_millionths, top_k, sampling_seed FROM requests ORDER BY id"
    with tempfile.TemporaryDirectory() as folder:
        with Server("--speed", "max", *words, "--db", f"{folder}/a.db", "--levels", "steps") as s:
            for more in asked:
                s.post(prompt=[1, 2, 3], max_tokens=90, **more)
        subprocess.run([PROGRAM, "run", *words, "--workload", f"{folder}/a.db", "--db", f"{folder}/b.db", "--levels", "steps"],
                       check=True, capture_output=True)
        assert steps(f"{folder}/a.db") == steps(f"{folder}/b.db")
        for name in "ab":
            with contextlib.closing(sqlite3.connect(f"{folder}/{name}.db")) as db:
                assert db.execute(query).fetchall() == [(None,) * 4, (0, None, None, None), (1500000, 900000, None, 2 ** 63 - 1),
                                                        (None, None, 5, 3), (None, None, 0, None), (None,) * 4]


@test
def a_command_line_that_makes_no_sense_ends_with_a_sentence():
    with Server() as s:
        assert "another program does" in fails("--listen", f"127.0.0.1:{s.port}")
    assert "no address of this machine" in fails("--listen", "192.0.2.1:0")
    assert "no cuda device" in fails("--backend", "cuda", "--listen", "127.0.0.1:0", CUDA_VISIBLE_DEVICES="")
    for words in (("--listen", "localhost"), ("--listen", "1.2.3.4:99999"), ("--speed", "0"), ("--speed", "fast"), ("--clients", "3"),
                  ("--clock", "virtual", "--speed", "2"), ("--backend", "cuda", "--speed", "2"), ("--backend", "cpu", "--speed", "2"), ("--text", "x"),
                  ("--answers", "nonsense"), ("--answers", "fixed,tokens"), ("--chat", "none"), ("--tokenizer", "/nowhere"),
                  ("--model", "nonsense"), ("--levels", "steps"), ("--connections", "0"), ("--workload", "osc")):
        fails(*words)
    with tempfile.NamedTemporaryFile("w") as key:
        key.write("secret\n")
        key.flush()
        os.chmod(key.name, 0o644)
        assert "chmod 600" in fails("--api-key-file", key.name)
        os.chmod(key.name, 0o600)
        with Server("--speed", "max", "--api-key-file", key.name) as s:
            for header in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "Bearer secrets"}, {"Authorization": "secret"}):
                status, answer, text = s.ask("GET", "/v1/models", headers=header)
                assert status == 401 and answer.getheader("WWW-Authenticate") == "Bearer", text
                assert json.loads(text)["error"]["code"] == "invalid_api_key"
            assert s.ask("GET", "/v1/models", headers={"Authorization": "Bearer secret"})[0] == 200
            assert s.ask("GET", "/health")[0] == 200


@test
def a_full_server_says_429_and_a_body_over_the_limit_413():
    with Server("--speed", "0.001", "--queue", "2", "--max-body", "2000", "--drain", "50ms") as s:
        held = [s.raw(http_bytes(json.dumps({"model": s.model, "prompt": [1], "max_tokens": 64}).encode())) for _ in range(2)]
        s.until(lambda: s.metric("vllm:num_requests_running") + s.metric("vllm:num_requests_waiting") == 2)
        status, answer, _ = s.ask("POST", "/v1/completions", {"model": s.model, "prompt": [1]})
        assert status == 429 and int(answer.getheader("Retry-After")) >= 1
        assert s.ask("POST", "/v1/completions", b"x" * 3000)[0] == 413
        c = s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(10):
                c.sendall(b"1f4\r\n" + b"x" * 500 + b"\r\n")
            c.sendall(b"0\r\n\r\n")
        assert b" 413 " in c.recv(100)
        big = s.raw(b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 60000 + b"\r\n\r\n")
        assert b" 431 " in big.recv(100)
        said = s.end()
        assert "0 requests served, 2 given up" in said, said
        assert all(b" 503 " in c.recv(100) for c in held)


@test
def who_leaves_frees_what_was_held_and_others_go_on():
    with Server("--speed", "1", "--system", "sdar", "--gpu", "h100") as s:
        ask = json.dumps({"model": s.model, "prompt": [1] * 50, "max_tokens": 2000}).encode()
        streamed = json.dumps({"model": s.model, "prompt": [1] * 50, "max_tokens": 2000, "stream": True}).encode()
        kept = concurrent.futures.ThreadPoolExecutor(1).submit(s.post, prompt=[1] * 20, max_tokens=64)
        gone = [s.raw(http_bytes(ask)), s.raw(http_bytes(streamed)), s.raw(http_bytes(ask))]
        gone.append(s.raw(http_bytes(streamed)))
        s.until(lambda: s.metric("vllm:num_requests_running") == 5)
        gone[1].recv(200)
        gone[0].close()
        gone[1].close()
        gone[2].shutdown(socket.SHUT_WR)  # a client that has closed its side has left
        gone[3].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        gone[3].close()
        s.until(lambda: s.metric("unmask:requests_cancelled_total") == 4)
        assert kept.result()["usage"]["completion_tokens"] == 64
        s.until(lambda: s.metric("vllm:num_requests_running") == 0)
        assert s.metric("vllm:request_success_total", finished_reason="length") == 1
        s.end()
        assert "cancelled 4" in s.out


@test
def slow_and_broken_clients_hold_up_no_one():
    with Server("--speed", "100", "--request-timeout", "1s", "--connections", "64") as s:
        good = {"model": s.model, "prompt": [1], "max_tokens": 8}
        body = json.dumps(good).encode()
        slow = [s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n") for _ in range(10)]
        slow += [s.raw(http_bytes(body)[:-5]) for _ in range(10)]
        slow += [s.raw(b"") for _ in range(10)]
        for junk in (b"\0\1\2\3\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", http_bytes(b"{", "Content-Length: 99\r\n"),
                     b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", os.urandom(5000)):
            s.raw(junk).close()
        start = time.monotonic()
        assert s.post(prompt=[1], max_tokens=8)["usage"]["completion_tokens"] == 8
        assert time.monotonic() - start < 1 * SLOW
        # Pipelined requests are answered in their order.
        piped = s.raw(http_bytes(body) * 3)
        text = b""
        while text.count(b"finish_reason") < 3:
            part = piped.recv(4096)
            assert part
            text += part
        assert text.index(b"cmpl-2") < text.index(b"cmpl-3") < text.index(b"cmpl-4")
        for _ in range(30):  # they drip on, and are ended all the same
            time.sleep(0.1)
            for c in slow[:10]:
                with contextlib.suppress(OSError):
                    c.sendall(b"X: y\r\n")
        for c in slow:
            c.settimeout(5 * SLOW)
            with contextlib.suppress(ConnectionResetError):
                while c.recv(4096):
                    pass
        # A client that has left is let go of, whatever it sent of a request, the first or a later one.
        for before in (b"", http_bytes(body)):
            c = s.raw(before)
            while before and not c.recv(4096).count(b"finish_reason"):
                pass
            c.sendall(b'{"model')
            c.shutdown(socket.SHUT_WR)
            start = time.monotonic()
            with contextlib.suppress(ConnectionResetError):
                assert c.recv(100) == b""
            assert time.monotonic() - start < 0.8 * SLOW
        # One that does not read its reply holds no batch.
        lazy = s.raw(http_bytes(json.dumps({**good, "max_tokens": 4000, "stream": True}).encode()))
        s.until(lambda: s.metric("vllm:request_success_total", finished_reason="length") == 6)
        lazy.close()


@test
def a_server_that_is_asked_to_end_lets_requests_end_and_takes_no_more():
    with Server("--speed", "1", "--gpu", "h100") as s, concurrent.futures.ThreadPoolExecutor(4) as pool:
        idle = s.connect()
        assert s.ask("GET", "/health", connection=idle)[0] == 200
        waiting = [pool.submit(s.post, prompt=[1], max_tokens=64), pool.submit(s.stream, prompt=[1], max_tokens=64)]
        s.until(lambda: s.metric("vllm:num_requests_running") == 2)
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert s.ask("GET", "/health", connection=idle)[0] == 503
        try:
            s.post(prompt=[1], status=503)
            raise AssertionError("a new connection was taken")
        except ConnectionRefusedError:
            pass
        assert waiting[0].result()["usage"]["completion_tokens"] == 64
        assert sum(len(text.split()) for text in texts(waiting[1].result())) == 64
        idle.close()
        s.out, s.said = s.process.communicate(timeout=10 * SLOW)
        assert s.process.returncode == 0 and "2 requests served, 0 given up" in s.said, s.said
        assert "completed    2" in s.out or "2 of 2" in s.out or "completed" in s.out, s.out


def traffic(n, seed):
    r = random.Random(seed)
    at, rows = 0, []
    for i in range(n):
        at += int(r.expovariate(8) * 1e6)
        rows.append((at if i else 0, r.randint(5, 600), r.randint(4, 200)))
    first = rows[0][0]
    return [(a - first, p, o) for a, p, o in rows]


@test
def the_virtual_clock_gives_the_steps_of_the_same_arrivals_from_a_file():
    rows = traffic(40, 3)
    for words in (("--system", "dllm-serve"), ("--system", "sdar"), ("--system", "vllm-ar", "--replicas", "2")):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/rows.csv", "w") as out:
                out.write("arrival_us,input_tokens,output_tokens,answer_tokens\n")
                out.writelines(f"{a},{p},{o},{o}\n" for a, p, o in rows)
            subprocess.run([PROGRAM, "run", *words, "--workload", f"{folder}/rows.csv", "--db", f"{folder}/file.db", "--levels", "steps"],
                           check=True, capture_output=True)
            with Server("--clock", "virtual", "--clients", str(len(rows)), "--db", f"{folder}/served.db", "--levels", "steps", *words) as s:
                order = list(range(len(rows)))
                random.Random(9).shuffle(order)  # who comes first by the machine's clock is all one
                with concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
                    def go(i):
                        a, p, o = rows[i]
                        return s.post(prompt=[i + 1] * p, max_tokens=o, arrival_us=a, request_id=i)
                    replies = list(pool.map(go, order))
                assert all(r["usage"]["completion_tokens"] == rows[i][2] for i, r in zip(order, replies))
            with contextlib.closing(sqlite3.connect(f"{folder}/file.db")) as a, contextlib.closing(sqlite3.connect(f"{folder}/served.db")) as b:
                # Who was in a step is kept by number, which says when it was written, too.
                columns = [c[1] for c in a.execute("PRAGMA table_info(steps)") if c[1] != "members"]
                for query in ("SELECT * FROM requests", f"SELECT {', '.join('s.' + c for c in columns)}, m.batch FROM steps s"
                              " JOIN members m ON m.run = s.run AND m.number = s.members ORDER BY s.idx"):
                    rows_a = a.execute(query).fetchall()
                    assert rows_a and rows_a == b.execute(query).fetchall(), (words, query)


@test
def the_virtual_clock_stands_until_each_client_has_said_what_it_does():
    def run(delay, system):
        with tempfile.TemporaryDirectory() as folder:
            with Server("--system", system, "--clock", "virtual", "--clients", "3", "--db", f"{folder}/a.db", "--levels", "steps") as s:
                lock, ids = threading.Lock(), iter(range(1000))

                def client(k):
                    c = s.connect()  # a closed loop: the next request when the one before is answered
                    for i in range(4):
                        time.sleep(delay * random.random())
                        s.post(prompt=[1] * (20 + 9 * k + i), max_tokens=20 + 30 * k, request_id=k * 100 + i, arrival_us=0 if i else 1000 * k, connection=c)
                    c.close()
                threads = [threading.Thread(target=client, args=(k,)) for k in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert lock and ids
            return steps(f"{folder}/a.db")
    for system in ("dllm-serve", "vllm-ar"):  # which has prefixes to find
        assert run(0, system) == run(0.05, system)


@test
def the_virtual_clock_records_who_left_and_gives_the_same_steps_once_more():
    for words in (("--system", "sdar", "--gpu", "h100", "--set", "skip_ahead=off"), ("--system", "vllm-ar", "--replicas", "2")):
        with tempfile.TemporaryDirectory() as folder:
            with Server(*words, "--clock", "virtual", "--clients", "6", "--db", f"{folder}/a.db", "--levels", "steps") as s:
                def client(k):
                    r = random.Random(k)
                    for i in range(5):
                        body = json.dumps({"model": s.model, "prompt": [1] * r.randint(5, 400), "max_tokens": r.randint(100, 600), "stream": True,
                                           "request_id": 100 * k + i, "arrival_us": 1000 * k})
                        c = s.raw(http_bytes(body.encode(), "Connection: close\r\n"))
                        if r.random() < 0.4:
                            c.recv(300)
                        else:
                            while c.recv(65536):
                                pass
                        c.close()
                with concurrent.futures.ThreadPoolExecutor(6) as pool:
                    list(pool.map(client, range(6)))
            subprocess.run([PROGRAM, "run", *words, "--workload", f"{folder}/a.db", "--db", f"{folder}/b.db", "--levels", "steps"],
                           check=True, capture_output=True)
            a, b = steps(f"{folder}/a.db"), steps(f"{folder}/b.db")
            assert a == b, (words, [(x, y) for x, y in zip(a[1], b[1]) if x != y][:5], len(a[0]), len(b[0]))
            assert any(row[4] == 15 for row in a[1]), "no client left in time"


@test
def recorded_traffic_gives_the_same_steps_once_more():
    for words in (("--system", "dllm-serve", "--gpu", "h100", "--set", "skip_ahead=off"), ("--system", "sdar", "--replicas", "2"),
                  ("--system", "dllm-serve", "--gpu", "l40s"), ("--system", "vllm-ar")):
        with tempfile.TemporaryDirectory() as folder:
            with Server("--speed", "30", "--db", f"{folder}/a.db", "--levels", "steps", *words) as s:
                def client(k):
                    r = random.Random(k)
                    for _ in range(6):
                        time.sleep(r.random() * 0.05)
                        body = json.dumps({"model": s.model, "prompt": [1] * r.randint(5, 500), "max_tokens": r.randint(8, 300), "stream": True})
                        c = s.raw(http_bytes(body.encode(), "Connection: close\r\n"))
                        if r.random() < 0.3:
                            time.sleep(r.random() * 0.05)
                        else:
                            while c.recv(65536):
                                pass
                        c.close()
                with concurrent.futures.ThreadPoolExecutor(8) as pool:
                    list(pool.map(client, range(8)))
            subprocess.run([PROGRAM, "run", *words, "--workload", f"{folder}/a.db", "--db", f"{folder}/b.db", "--levels", "steps"],
                           check=True, capture_output=True)
            a, b = steps(f"{folder}/a.db"), steps(f"{folder}/b.db")
            assert len(a[0]) > 50 and 30 < len(a[1]) <= 48  # some leave before the loop knows of them
            assert a[1] == b[1], words
            assert a[0] == b[0], (words, [(x, y) for x, y in zip(a[0], b[0]) if x != y][:6], len(a[0]), len(b[0]))
            cancelled = [row for row in a[1] if row[4] == 15]
            assert cancelled, "no client left in time"
            replayed = subprocess.run([PROGRAM, "replay", "--db", f"{folder}/a.db", "--run", "1"], capture_output=True, text=True)
            assert replayed.returncode == 0, replayed.stderr


@test
def a_client_measures_what_the_server_recorded():
    with tempfile.TemporaryDirectory() as folder:
        with Server("--system", "sdar", "--gpu", "h100", "--db", f"{folder}/a.db") as s:
            def client(i):
                time.sleep(i * 0.05)
                c = s.connect()
                start = time.time()
                c.request("POST", "/v1/completions", json.dumps({"model": s.model, "prompt": [1] * 20, "max_tokens": 32, "stream": True}))
                answer, times = c.getresponse(), []
                for line in answer:
                    if b'"text":" ' in line:
                        times.append(time.time())
                c.close()
                return start, times
            with concurrent.futures.ThreadPoolExecutor(20) as pool:
                seen = list(pool.map(client, range(20)))
        with open(f"{folder}/client.json", "w") as out:
            json.dump({"start_times": [a for a, _ in seen], "ttfts": [t[0] - a for a, t in seen], "input_lens": [20] * 20,
                       "output_lens": [32] * 20, "itls": [[y - x for x, y in zip(t, t[1:])] for _, t in seen], "errors": [""] * 20}, out)

        def validate(*words):
            done = subprocess.run([PROGRAM, "validate", "--json", *words], capture_output=True, text=True, check=True)
            return json.loads(done.stdout)["runs"][0]["quantities"]
        for name, row in validate("--measured", f"{folder}/a.db", "--client", f"{folder}/client.json").items():
            assert row["measured"] == row["simulated"] and row["within"], (name, row)  # the record of a simulation
            if name in ("TTFT p50", "latency p50"):
                assert row["measured"] - 0.02 < row["client"] < row["measured"] + 0.03 * SLOW, (name, row)
        own = validate("--measured", f"{folder}/client.json", "--system", "sdar", "--gpu", "h100")
        assert abs(own["makespan"]["measured"] / own["makespan"]["simulated"] - 1) < 0.1 * SLOW, own["makespan"]


@test
def a_conversation_keeps_its_prefix():
    with tempfile.TemporaryDirectory() as folder:
        words = ("--system", "vllm-ar", "--gpu", "h100")
        with Server(*words, "--speed", "max", "--tokenizer", TOKENIZER, "--db", f"{folder}/a.db", "--levels", "steps") as s:
            text, cached = "one two three four five six seven eight nine ten one two three four five six seven eight nine ten", []
            for turn in range(4):
                reply = s.post(prompt=text, max_tokens=40, seed=turn)
                cached.append(reply["usage"]["prompt_tokens_details"]["cached_tokens"])
                before = reply["usage"]["prompt_tokens"]
                text += reply["choices"][0]["text"]  # the next turn has all of it, and a little more
                text += " and two"
                if turn > 0:
                    assert cached[-1] > 0.7 * (before - 20), (cached, before)  # whole pages of 16
            assert cached[0] == 0 and cached == sorted(cached)
            events = s.stream(prompt=text, max_tokens=40, stream_options={"include_usage": True})
            assert events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] > cached[-1]
            assert s.post(prompt="two " + text, max_tokens=4)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
            # Ids have no text to go on from, and share what prompts share.
            ids = [s.post(prompt=list(range(100, 100 + n)), max_tokens=4)["usage"]["prompt_tokens_details"]["cached_tokens"] for n in (50, 90, 70)]
            assert ids[0] == 0 and ids[1] >= 32 and ids[2] >= 48, ids
            assert s.metric("unmask:cached_tokens_total") == sum(cached) + sum(ids) + events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]
        subprocess.run([PROGRAM, "run", *words, "--workload", f"{folder}/a.db", "--db", f"{folder}/b.db", "--levels", "steps"],
                       check=True, capture_output=True)
        assert steps(f"{folder}/a.db") == steps(f"{folder}/b.db")
        done = subprocess.run([PROGRAM, "validate", "--measured", f"{folder}/a.db", "--json"], capture_output=True, text=True)
        assert all(row["within"] for row in json.loads(done.stdout)["runs"][0]["quantities"].values()), done
    with Server("--system", "sdar", "--gpu", "h100", "--speed", "max") as s:  # caches none
        assert [s.post(prompt=[5] * 60, max_tokens=4)["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)] == [0, 0]


@test
def what_was_set_of_the_server_is_set_of_its_simulation():
    def validate(path, *words):
        done = subprocess.run([PROGRAM, "validate", "--json", "--measured", path, *words], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["runs"][0]["quantities"]

    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(ROOT, "experiments/train/models/sdar-2m")
        for name, words in (("a", ("--decoder", "fixed", "--set", "decoder.steps=2", "--set", "max_requests=2")), ("b", ("--model", model))):
            path = f"{folder}/{name}.db"
            with Server("--system", "sdar", "--gpu", "h100", *words, "--db", path) as s:
                with concurrent.futures.ThreadPoolExecutor(6) as pool:
                    list(pool.map(lambda i: s.post(prompt=[1] * 20, max_tokens=48, seed=i), range(6)))
            for row in validate(path).values():
                assert row["measured"] == row["simulated"], (words, row)
        # What is given again counts, and another system has its own settings.
        for words in (("--decoder", "threshold"), ("--set", "max_requests=6"), ("--system", "lmdeploy")):
            assert validate(f"{folder}/a.db", *words)["latency mean"]["simulated"] != validate(f"{folder}/a.db")["latency mean"]["simulated"], words


@test
def a_conversation_with_the_engine_keeps_its_prefix_and_its_replies():
    def talk(caches):
        with Server("--backend", "cpu", "--weights", TOKENIZER.replace("llada-2m", "sdar-2m"), "--system", "sglang", "--set", "page_tokens=32",
                    "--set", "max_batched_tokens=512", "--set", "early_stop=block", "--set", f"prefix_caching={caches}") as s:
            text, replies, cached = "Q: Tom has 12 red balls and buys 5 blue balls. How many balls does he have now?\nA:\n" * 2, [], []
            asked = []
            for _ in range(3):
                reply = s.post(prompt=text, max_tokens=48)
                replies.append(reply["choices"][0]["text"])
                cached.append(reply["usage"]["prompt_tokens_details"]["cached_tokens"])
                asked.append(reply["usage"]["prompt_tokens"])
                text += replies[-1] + "\nQ: Tom loses 3 of the blue balls. How many balls does he have now?\nA:\n"
            return replies, cached, asked

    (with_it, cached, asked), (without, none, _) = talk("on"), talk("off")
    assert with_it == without, (with_it, without)
    # Of the answers, too.
    assert none == [0, 0, 0] and cached[0] == 0 and asked[0] < cached[1] and asked[1] < cached[2], (asked, cached)


@test
def answers_are_drawn_and_the_rest_is_freed():
    with Server("--speed", "max", "--system", "sdar", "--answers", "lognormal,mean=50,cv=0.5") as s:
        replies = [s.post(prompt=[1] * 9, max_tokens=400, seed=i) for i in range(20)]
        lengths = [r["usage"]["completion_tokens"] for r in replies]
        assert 20 < sum(lengths) / 20 < 110 and len(set(lengths)) > 10
        for r in replies:
            assert len(r["choices"][0]["text"].split()) == r["usage"]["completion_tokens"]
            assert r["choices"][0]["finish_reason"] == ("stop" if r["usage"]["completion_tokens"] < 400 else "length")
        again = s.stream(prompt=[1] * 9, max_tokens=400, seed=3)
        assert "".join(texts(again)) == replies[3]["choices"][0]["text"] and again[-1]["choices"][0]["finish_reason"] == "stop"
        assert s.post(prompt=[1], max_tokens=400, seed=3, ignore_eos=True)["usage"]["completion_tokens"] == 400


@test
def the_engine_on_the_cpu_gives_each_request_the_tokens_that_it_gets_alone():
    model = ("--backend", "cpu", "--model", "llada-tiny", "--system", "fast-dllm", "--runtime", "unmask")
    with Server(*model) as s:
        alone = s.post(prompt=[1, 2, 3, 4], max_tokens=24)
        ids = [int(word) for word in alone["choices"][0]["text"].split()]
        assert len(ids) == 24
        streamed = s.stream(prompt=[1, 2, 3, 4], max_tokens=24)
        assert "".join(texts(streamed)) == alone["choices"][0]["text"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for reply in pool.map(lambda _: s.post(prompt=[1, 2, 3, 4], max_tokens=24), range(16)):
                assert reply["choices"] == alone["choices"]
        assert s.refused(prompt=[10 ** 6])["param"] == "prompt"
        c = s.raw(http_bytes(json.dumps({"model": s.model, "prompt": [1] * 40, "max_tokens": 200}).encode()))
        s.until(lambda: s.metric("vllm:num_requests_running") == 1)
        c.close()
        s.until(lambda: s.metric("unmask:requests_cancelled_total") == 1)
        assert s.post(prompt=[1, 2, 3, 4], max_tokens=24)["choices"] == alone["choices"]
    # Several engines, each of which is asked by a thread of its own.
    with Server(*model, "--replicas", "3") as s, concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert s.post(prompt=[1, 2, 3, 4], max_tokens=24)["choices"] == alone["choices"]
        left = []
        for i in range(6):
            left.append(s.raw(http_bytes(json.dumps({"model": s.model, "prompt": [1] * 10, "max_tokens": 150, "stream": i % 2 > 0}).encode())))
        s.until(lambda: s.metric("vllm:num_requests_running") > 2)
        streams = [pool.submit(s.stream, prompt=[1, 2, 3, 4], max_tokens=24) for _ in range(9)]
        for c in left:
            c.close()
        for got in streams:
            assert "".join(texts(got.result())) == alone["choices"][0]["text"]
        for reply in pool.map(lambda _: s.post(prompt=[1, 2, 3, 4], max_tokens=24), range(9)):
            assert reply["choices"] == alone["choices"]
        s.until(lambda: s.metric("vllm:num_requests_running") == 0)
        # Some may have left before they were read.
        over = s.metric("unmask:requests_cancelled_total") + s.metric("vllm:request_success_total", finished_reason="length")
        assert 25 - 3 <= over <= 25, over
        left = [s.raw(http_bytes(json.dumps({"model": s.model, "prompt": [1] * 10, "max_tokens": 150}).encode())) for _ in range(3)]
        s.until(lambda: s.metric("vllm:num_requests_running") > 1)
        s.process.send_signal(signal.SIGTERM)  # while they compute
        for c in left:
            assert b" 200 " in c.recv(4096)
        s.out, s.said = s.process.communicate(timeout=10 * SLOW)
        assert s.process.returncode == 0 and "0 given up" in s.said, s.said
    with Server("--backend", "cpu", "--weights", TOKENIZER) as s:
        reply = s.post(prompt="one two three", max_tokens=16)
        streamed = s.stream(prompt="one two three", max_tokens=16)
        assert "".join(texts(streamed)) == reply["choices"][0]["text"]
        chat = {"messages": [{"role": "user", "content": "2 + 3 ="}], "max_tokens": 16}
        s.post("/v1/chat/completions", **chat)
        s.refused(400, "/v1/chat/completions", messages=chat["messages"] * 2)


@test
def nothing_is_lost_or_doubled_under_random_disconnects():
    with Server("--speed", "max", "--queue", "500") as s:
        done, lock = [0, 0], threading.Lock()

        def client(k):
            r = random.Random(k)
            for i in range(25):
                n = r.randint(1, 150)
                if r.random() < 0.3:
                    c = s.raw(http_bytes(json.dumps({"model": s.model, "prompt": [1], "max_tokens": n, "stream": True}).encode()))
                    if r.random() < 0.5:
                        c.recv(100)
                    c.close()
                    with lock:
                        done[1] += 1
                    continue
                seed = 1000 * k + i
                events = s.stream(prompt=[1, 2], max_tokens=n, seed=seed)
                text = "".join(texts(events))
                assert len(text.split()) == n
                assert text == s.post(prompt=[3], max_tokens=n, seed=seed)["choices"][0]["text"]
                with lock:
                    done[0] += 2
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(client, range(16)))
        s.until(lambda: s.metric("vllm:num_requests_running") + s.metric("vllm:num_requests_waiting") == 0)
        finished = s.metric("vllm:request_success_total", finished_reason="length")
        cancelled = s.metric("unmask:requests_cancelled_total")
        # Of those who left some were done before that was noticed.
        assert done[0] <= finished <= done[0] + done[1] and finished + cancelled <= sum(done), (finished, cancelled, done)


def main():
    if not os.path.exists(os.path.join(BUILD, "libunmask_http.so")):
        said = fails()
        assert "libmicrohttpd" in said, said
        print("serve: this build has no libmicrohttpd, and says so")
        return
    chosen = sys.argv[2:]
    start = time.monotonic()

    def run(function):
        begin = time.monotonic()
        try:
            function()
        except BaseException:
            print(f"serve: {function.__name__} failed", file=sys.stderr)
            raise
        if chosen or os.environ.get("V"):
            print(f"  {time.monotonic() - begin:5.2f} s  {function.__name__}")
    # They wait for clocks more than they compute.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(run, [function for function in TESTS if not chosen or function.__name__ in chosen]))
    print(f"serve: {len(chosen or TESTS)} tests passed in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
