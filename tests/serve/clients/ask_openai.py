"""Asks a server by OpenAI's own package, and writes what it measured as vLLM's `bench serve` does.

    ask_openai.py http://ADDRESS:PORT OUT.json
"""
import asyncio
import importlib.metadata
import json
import sys
import time

import openai

BASE, OUT = sys.argv[1] + "/v1", sys.argv[2]
ask = openai.OpenAI(base_url=BASE, api_key="any", max_retries=0)
model = ask.models.list().data[0].id

whole = ask.completions.create(model=model, prompt="one two", max_tokens=40, seed=3)
parts = list(ask.completions.create(model=model, prompt="one two", max_tokens=40, seed=3, stream=True, stream_options={"include_usage": True}))
assert "".join(p.choices[0].text for p in parts if p.choices) == whole.choices[0].text and parts[-1].usage == whole.usage
messages = [{"role": "system", "content": "short"}, {"role": "user", "content": "two and three"}]
chat = ask.chat.completions.create(model=model, messages=messages, max_completion_tokens=40, seed=3, temperature=0)
assert chat.usage.completion_tokens == 40 and chat.choices[0].finish_reason == "length"
stop = " " + whole.choices[0].text.split(" ")[4]
cut = ask.completions.create(model=model, prompt="one two", max_tokens=40, seed=3, stop=stop)
assert cut.choices[0].finish_reason == "stop" and whole.choices[0].text.startswith(cut.choices[0].text + stop)

for fields, error in (({"model": "other"}, openai.NotFoundError), ({"n": 2}, openai.BadRequestError), ({"max_tokens": 10 ** 6}, openai.BadRequestError),
                      ({"logprobs": 3}, openai.BadRequestError)):
    try:
        ask.completions.create(**{"model": model, "prompt": "one", "max_tokens": 4, **fields})
        raise SystemExit(f"{fields} was taken")
    except error as said:
        assert said.body["message"], said

left = ask.completions.create(model=model, prompt="one", max_tokens=2000, stream=True)
next(iter(left))
left.close()  # it leaves in the middle

times = []


async def one(client, i):
    await asyncio.sleep(i * 0.05)
    start, seen = time.time(), []
    async for part in await client.completions.create(model=model, prompt="one two three", max_tokens=64, stream=True):
        if part.choices and part.choices[0].text:
            seen.append(time.time())
    times.append((start, seen))


async def many():
    async with openai.AsyncOpenAI(base_url=BASE, api_key="any", max_retries=0) as client:
        await asyncio.gather(*(one(client, i) for i in range(60)))


asyncio.run(many())
with open(OUT, "w") as out:
    json.dump({"start_times": [a for a, _ in times], "ttfts": [t[0] - a for a, t in times], "errors": [""] * len(times),
               "itls": [[y - x for x, y in zip(t, t[1:])] for _, t in times], "input_lens": [3] * len(times),
               "output_lens": [64] * len(times)}, out)
print(importlib.metadata.version("openai"))
