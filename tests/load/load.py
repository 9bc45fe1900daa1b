"""Many clients at once, some of them rude: load.py BINARY SECONDS [STREAMS].

The demo model serves streams that are read to the end, left in the middle, read slowly, or asked for with bodies that
are no requests; one is always longer than its sparse attention selects. What must hold:

- every greedy answer, and every sampled one with a seed, equals the one that the same request got alone, from a
  server that finds nothing in its cache; alone, with and without that, the probabilities are the same to the bit;
- afterwards no cache block is held, no request runs or waits, no file is open that was not before;
- memory does not grow: the last third of the time needs at most 5 % more than the first, after the cache was filled and
  half a minute has gone by;
- what is no request is refused with 4xx, and nothing is answered with 5xx.

The gaps between tokens are reported; a machine that has other work makes them long, so only a stall fails.
"""
import asyncio, json, os, random, re, statistics, sys, time

import aiohttp

from server import process_of

SECONDS_STALLED = 60
CACHE_TOKENS, WARM = 16384, 30
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
CHAT, TEXT, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
BAD = [
    (CHAT, b"{"), (CHAT, b""), (CHAT, b"[]"), (CHAT, b"[" * 100_000), (CHAT, b'{"messages": "hi"}'),
    (CHAT, b'{"messages": [{"role": "alien"}]}'), (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "temperature": -1}'),
    (CHAT, b'{"messages": [{"role": "user", "content": "' + b"word " * 20_000 + b'"}]}'),
    (CHAT, b'{"messages": [{"role": "user", "content": "\xff"}]}'),
    (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "guided_regex": "(((("}'),
    (TEXT, b'{"prompt": [99999999]}'), (TEXT, b'{"prompt": "x", "max_tokens": -5}'), (TEXT, b'{"prompt": {"a": 1}}'),
    (MESSAGES, b"{}"), (MESSAGES, b'{"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}]}'),
]


def requests():
    """Requests whose answers are compared; the last one is longer than what the model's attention selects."""
    topics = ["a cat", "the sea", "a red ball", "two friends", "a lost key", "the moon", "a small house", "rain"]
    chat = lambda text, **more: (CHAT, {"messages": [{"role": "user", "content": text}], "max_tokens": 48, "temperature": 0, **OFF, **more})
    weather = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city",
               "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    all = [chat(f"Tell me a story about {topic}.") for topic in topics]
    all += [(TEXT, {"prompt": f"Once upon a time, {topic}", "max_tokens": 40, "temperature": 0}) for topic in topics[:4]]
    all += [(TEXT, {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 1, "seed": seed}) for seed in (1, 2, 3)]
    all += [chat("What is the weather in Paris?", tools=[weather], max_tokens=80), chat("Tell me a story.", stop=["."]),
            chat("Tell me a story about a dog.", temperature=0.8, seed=5)]
    all += [(MESSAGES, {"messages": [{"role": "user", "content": "Tell me a story about a bird."}], "max_tokens": 48,
                        "temperature": 0, "thinking": {"type": "disabled"}})]
    all += [chat("Go on with this story. " + " ".join(f"Then came {topic}, and all were glad." for topic in topics * 12))]
    return all


def text_of(event):
    """What an event adds to the answer, in any of the APIs."""
    if "error" in event:
        raise AssertionError(f"a stream ended with {event}")
    if event.get("type") == "content_block_delta":
        return event["delta"].get("text", "")
    choice = (event.get("choices") or [{}])[0]
    calls = (choice.get("delta") or {}).get("tool_calls") or []
    calls = "".join((call["function"].get("name") or "") + call["function"]["arguments"] for call in calls)
    return (choice.get("text") or (choice.get("delta") or {}).get("content") or "") + calls


class Load:
    def __init__(self, base, session, seed):
        self.base, self.session, self.random = base, session, random.Random(seed)
        self.gaps, self.counts, self.wrong = [], {}, []
        self.alone, self.fresh = None, []

    async def stream(self, request, leave_after=None, pause=0.0):
        """Reads a streamed answer; its text, or None if it was left."""
        path, body = request
        text, last, pieces = "", None, 0
        async with self.session.post(self.base + path, json={**body, "stream": True}) as response:
            if response.status != 200:
                raise AssertionError(f"{path} answered {response.status}: {await response.text()}")
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                piece = text_of(json.loads(line[6:]))
                if not piece:
                    continue
                now = time.monotonic()
                if last is not None and not pause:
                    self.gaps.append(now - last)
                last = now
                text, pieces = text + piece, pieces + 1
                if leave_after is not None and pieces >= leave_after:
                    response.close()
                    return None
                if pause:
                    await asyncio.sleep(pause)
        return text

    async def post(self, request, **more):
        path, body = request
        async with self.session.post(self.base + path, json={**body, **more}) as response:
            answer = await response.json()
            if response.status != 200:
                raise AssertionError(f"{path} answered {response.status}: {answer}")
        return answer

    async def bits(self, request):
        """The answer's tokens and all that is known of their probabilities."""
        report = {CHAT: {"logprobs": True, "top_logprobs": 5}, TEXT: {"logprobs": 5}, MESSAGES: {}}[request[0]]
        answer = await self.post(request, **report)
        return answer["content"] if request[0] == MESSAGES else answer["choices"][0]["logprobs"]

    async def whole(self, request):
        path, answer = request[0], await self.post(request)
        if path == MESSAGES:
            return "".join(block.get("text", "") for block in answer["content"])
        choice = answer["choices"][0]
        if path == TEXT:
            return choice["text"]
        message = choice["message"]
        calls = "".join(call["function"]["name"] + call["function"]["arguments"] for call in message.get("tool_calls") or [])
        return (message["content"] or "") + calls

    async def leave(self, request):
        """A client that waits for a whole answer and goes."""
        try:
            return await asyncio.wait_for(self.whole(request), self.random.uniform(0.01, 1.0))
        except asyncio.TimeoutError:
            return None

    async def bad(self):
        path, body = self.random.choice(BAD)
        async with self.session.post(self.base + path, data=body, headers={"content-type": "application/json"}) as response:
            answer = await response.text()
            if not 400 <= response.status < 500 or "error" not in json.loads(answer):
                raise AssertionError(f"{body[:80]} was answered with {response.status}: {answer}")

    async def half(self):
        """A client that promises a body and goes before it has sent all of it."""
        host, port = self.base.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{")
        await writer.drain()
        await asyncio.sleep(self.random.uniform(0, 0.2))
        writer.transport.abort()

    def compare(self, which, text):
        if text is not None and text != self.alone[which]:
            self.wrong.append((which, text, self.alone[which]))

    async def new(self):
        """A prompt that was never there before, so that the cache must let go of others."""
        words = " ".join(self.random.choice(["cat", "sea", "ball", "key", "moon", "rain"]) for _ in range(self.random.randrange(10, 120)))
        request = (CHAT, {"messages": [{"role": "user", "content": f"Tell me a story of {words}."}], "max_tokens": 32, "temperature": 0, **OFF})
        self.fresh.append((request, await self.stream(request)))

    async def fill(self):
        """Prompts that leave something in every block of the cache: its memory counts as used only then."""
        for _ in range(0, CACHE_TOKENS + 2000, 2000):
            prompt = [self.random.randrange(300, 3900) for _ in range(2000)]
            await self.whole((TEXT, {"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}))

    async def again(self, most):
        """Some of those alone."""
        for request, text in self.random.sample(self.fresh, min(most, len(self.fresh))):
            alone = await self.whole(request)
            if text != alone:
                self.wrong.append((request[1]["messages"][0]["content"], text, alone))

    async def one(self, long):
        which = len(self.alone) - 1 if long else self.random.randrange(len(self.alone))
        request = requests()[which]
        kinds = ["stream"] * 8 + ["whole", "left", "new"] * 3 + ["gone", "slow", "bad", "bad", "half"]
        kind = "stream" if long else self.random.choice(kinds)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        match kind:
            case "stream":
                self.compare(which, await self.stream(request))
            case "whole":
                self.compare(which, await self.whole(request))
            case "left":
                self.compare(which, await self.stream(request, leave_after=self.random.randrange(1, 20)))
            case "gone":
                self.compare(which, await self.leave(request))
            case "slow":
                self.compare(which, await self.stream(request, pause=0.1))
            case "new":
                await self.new()
            case "bad":
                await self.bad()
            case "half":
                await self.half()

    async def client(self, end, long):
        while time.monotonic() < end:
            try:
                await self.one(long)
            except (aiohttp.ClientError, asyncio.TimeoutError) as e:
                raise AssertionError(f"a client got no answer: {e!r}; {await self.metrics()}") from e

    async def metrics(self):
        async with self.session.get(self.base + "/metrics") as response:
            text = await response.text()
        find = lambda name: float(re.search(rf"^shardwright:{name}\{{[^}}]*\}} (\S+)$", text, re.M)[1])
        return {name: find(name) for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
                                              "generation_tokens_total", "prefix_cache_hits_total", "num_preemptions_total")}


def memory(process):
    """Bytes that are the process's own, swapped or not."""
    fields = dict(line.split(":", 1) for line in open(f"/proc/{process.pid}/status"))
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "VmSwap"))


def files(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


async def watch(process, end, samples):
    while time.monotonic() < end:
        samples.append(memory(process))
        await asyncio.sleep(0.5)


async def quiet(load):
    """Waits until nothing runs."""
    end = time.monotonic() + SECONDS_STALLED
    while True:
        metrics = await load.metrics()
        if metrics["num_requests_running"] == 0 and metrics["num_requests_waiting"] == 0:
            return metrics
        assert time.monotonic() < end, f"after {SECONDS_STALLED} s without clients there is still work: {metrics}"
        await asyncio.sleep(0.1)


def session():
    timeout = aiohttp.ClientTimeout(total=None, sock_read=SECONDS_STALLED * 10)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0, force_close=True))


async def answers(base):
    """What each request is answered with alone: text and bits."""
    async with session() as one:
        load = Load(base, one, seed=0)
        return [await load.whole(r) for r in requests()], [await load.bits(r) for r in requests()]


async def press(base, process, seconds, streams, alone, bits):
    async with session() as one:
        load = Load(base, one, seed=1)
        load.alone = alone
        assert all(alone), alone
        for _ in range(2):
            assert bits == [await load.bits(request) for request in requests()], "what is found in the cache changes answers"
        assert alone == [await load.stream(request) for request in requests()], "streamed answers are others"
        await load.fill()
        load.gaps.clear()
        await quiet(load)
        opened = files(process)
        crowd = lambda until: asyncio.gather(*(load.client(until, long=i == 0) for i in range(streams)))
        await crowd(time.monotonic() + WARM)
        began = await load.metrics()
        warm, samples = len(load.gaps), []
        end = time.monotonic() + seconds
        await asyncio.gather(watch(process, end, samples), crowd(end))
        after = await quiet(load)
        gaps = sorted(load.gaps[warm:])
        await load.again(30)
    for _ in range(100):
        if files(process) <= opened:
            break
        await asyncio.sleep(0.1)
    third = len(samples) // 3
    first, last = statistics.median(samples[:third]), statistics.median(samples[-third:])
    tokens = after["generation_tokens_total"] - began["generation_tokens_total"]
    return load.wrong, {
        "streams": streams, "seconds": seconds, "requests": load.counts, "tokens": int(tokens), "tok_s": round(tokens / seconds, 1),
        "prompt_tokens_reused": int(after["prefix_cache_hits_total"]), "wrong_answers": len(load.wrong), "cache_held": after["kv_cache_usage_perc"], "preemptions": int(after["num_preemptions_total"]),
        "files_more": files(process) - opened, "memory_mb": [round(first / 1e6, 1), round(last / 1e6, 1)],
        "memory_growth": round(last / first - 1, 4), "gap_p50_ms": round(gaps[len(gaps) // 2] * 1e3, 1),
        "gap_p99_ms": round(gaps[len(gaps) * 99 // 100] * 1e3, 1), "gap_max_ms": round(gaps[-1] * 1e3, 1),
        "load_average": os.getloadavg()[0],
    }


def main():
    binary, seconds = sys.argv[1], float(sys.argv[2])
    streams = int(sys.argv[3]) if len(sys.argv) > 3 else 64
    arguments = ["--demo", "--cache-tokens", str(CACHE_TOKENS), "--threads", "2"]
    with process_of(binary, *arguments, "--no-enable-prefix-caching") as (base, _):
        alone, bits = asyncio.run(answers(base))
    with process_of(binary, *arguments) as (base, process):
        wrong, found = asyncio.run(press(base, process, seconds, streams, alone, bits))
    print(json.dumps(found, indent=1))
    for which, text, alone in wrong[:3]:
        print(f"request {which} was answered with {text!r}, alone with {alone!r}")
    assert not wrong, f"{len(wrong)} answers differ from those to the same requests alone"
    assert found["cache_held"] == 0, "cache blocks are held that belong to nobody"
    assert found["files_more"] <= 0, "files stay open"
    assert found["memory_growth"] <= 0.05, "memory grows"
    assert found["gap_max_ms"] < SECONDS_STALLED * 1e3, "a stream stood still"
    assert set(found["requests"]) == {"stream", "whole", "left", "new", "gone", "slow", "bad", "half"}, "not all kinds of clients came"


if __name__ == "__main__":
    main()
