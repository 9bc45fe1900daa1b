"""Cases of range, fairness and growth: N1, N2, O1, O2, O3."""
import contextlib
import json
import random
import socket
import statistics
import struct
import threading
import time

from document import MIB
from served_client import CHAT, TEXT, Answer, Refused, Said, asked, at_once, serve

LONG = 60_000
LEFT = 1_000


def n1(c):
    c.build("n1")
    want = Said("Hi you", finish="stop")
    for flags in ((), ("--tp", "2"), ("--tp", "8"), ("--activations", "f32"), ("--no-enable-prefix-caching",)):
        with serve(c, "n1.gguf", *flags) as s:
            prompts = ["B" * n + "A" for n in (0, 31, 63, 64, 65, 200)]
            for prompt in prompts:
                c.same(f"N1 {len(prompt) - 1} bytes before A {' '.join(flags)}", lambda: s.say(prompt), want)
            c.same(f"N1 all at once {' '.join(flags)}",
                   lambda: at_once([lambda p=p: s.say(p) for p in prompts * 4]), [want] * len(prompts) * 4)


def n2(c):
    c.build("n2")
    with serve(c, "n2.gguf") as s:
        fine = Said("Hi you", finish="stop")
        count = lambda: s.metrics()["non_finite_requests_total"]

        def beside():
            good = at_once([lambda p=p: s.say(p) if p == "A" else s.post(CHAT, asked(p)).status for p in "ANANANAN"])
            return good == [fine, 500] * 4, str(good)

        before = count()
        for path in (CHAT, TEXT):
            c.tally.run(f"N2 {path}: an error that names the place", lambda: broken(s, "N", path, "before layer 0 (`embd`)"))
        c.same("N2 each is counted once", lambda: settled(lambda: count() - before, 4), 4)
        c.tally.run("N2 within a longer prompt", lambda: broken(s, "B" * 70 + "NA", CHAT, "before layer 0 (`embd`)"))
        c.tally.run("N2 an A beside it is right", beside)
        c.same("N2 200 times A on the blocks that were freed", lambda: [s.say("A") for _ in range(100)], [fine] * 100)
        c.same("N2 none of those is counted", lambda: count() - before, 10)
    too_large(c, "n2_layer.gguf", "N")
    with serve(c, "n2_layer.gguf") as s:
        c.tally.run("N2 in a layer", lambda: broken(s, "N", CHAT, "layer 0 (`blk.0."))
        c.same("N2 others in that layer", lambda: s.say("A"), fine)


def settled(value, expected):
    """A number once it is as expected, or what it is after a second: a stream may end before its event is counted."""
    end = time.monotonic() + 1
    while value() != expected and time.monotonic() < end:
        time.sleep(0.02)
    return value()


def too_large(c, path, byte):
    """A file whose feed-forward multiplies what it gets for one token to more than 32 bits hold."""
    c.maker("chain", "chain")(path, [("A", [b"Hi", b" you"])], boom=1.0)
    at = {t["name"]: t["offset"] for t in json.loads(c.engine.call("inspect", path, "--json", "--tensors"))["tensors"]}
    with open(path, "r+b") as f:
        for name in ("gate", "up"):
            f.seek(at[f"blk.0.ffn_{name}.weight"] + 4 * 513 * ord(byte))     # on the diagonal, 512 wide
            f.write(struct.pack("<f", 1e30))


def broken(s, prompt, path, place):
    """An error that says where, the same as an event, and no text before it."""
    whole = s.post(path, asked(prompt, path))
    *before, (name, last), end = s.events(path, asked(prompt, path))
    good = whole.status == 500 and whole.error == last["error"] and name is None and end == (None, "[DONE]")
    error = whole.error
    good &= error["code"] == "non_finite_values" and "non-finite" in error["message"] and place in error["message"]
    return good and not any(text(data) for _, data in before), str(error)


def text(chunk):
    choice = chunk["choices"][0]
    return choice.get("text") or choice.get("delta", {}).get("content")


def o1(c):
    c.build("o1")
    with serve(c, "o1.gguf", "--max-num-seqs", "1") as s:
        for name, prompt, streamed, wait in (
                ("a stream after its first chunk", "A", True, None), ("an unstreamed answer after 0.2 s", "A", False, 0.2),
                ("a stream while its prompt is read", "b" * LONG, True, 0.5), ("the same unstreamed", "b" * LONG, False, 0.5)):
            def check():
                line = leave(s, prompt, streamed, wait)
                line.close()
                return soon(s)
            c.tally.run(f"O1 {name}: the slot is free", check)
        c.tally.run("O1 who leaves the queue is never run, who runs goes on", lambda: from_the_queue(s))
        c.tally.run(f"O1 {LEFT} who leave", lambda: many_leave(s))
        for name, tokens, streamed in (("at once", 1, False), ("after a while", 500, False), ("streamed", 500, True)):
            c.same(f"O1 half-closed, answered {name}", lambda: half_closed(s, tokens, streamed), (200, tokens))


def leave(s, prompt, streamed, wait):
    """A connection whose request runs, left after the first chunk or after a while."""
    line = s.socket(CHAT, asked(prompt, stream=streamed, max_tokens=LONG))
    if wait is None:
        got = b""
        while b"data:" not in got:
            more = line.recv(65536)
            if not more:
                raise ConnectionError(f"closed after {got[-300:]!r}")
            got += more
    else:
        time.sleep(wait)
    return line


def soon(s, seconds=2):
    """A request of one token is answered in time."""
    begun = time.monotonic()
    answer = s.good(CHAT, asked("A", max_tokens=1))
    took = time.monotonic() - begun
    return took <= seconds and answer["usage"]["completion_tokens"] == 1, f"{took:.2f} s"


def from_the_queue(s):
    s.wait_until_idle()
    before = s.metrics()
    with contextlib.closing(s.stream(CHAT, asked("A", max_tokens=1500))) as first:
        events = iter(first)
        next(events)
        second = s.socket(CHAT, asked("bbbA", max_tokens=7))
        s.wait_until("a queue", lambda m: m["num_requests_waiting"] == 1)
        second.close()
        s.wait_until("an empty queue", lambda m: m["num_requests_waiting"] == 0, 5)
        tokens = sum(bool(data != "[DONE]" and text(data)) for _, data in events)
    s.wait_until_idle()
    after = s.metrics()
    did = {name: after[f"{name}_total"] - before[f"{name}_total"] for name in ("prompt_tokens", "generation_tokens", "cancelled_requests")}
    return tokens == 1500 and did == {"prompt_tokens": 1, "generation_tokens": 1500, "cancelled_requests": 1}, f"{tokens}, {did}"


def many_leave(s):
    s.wait_until_idle()
    before, chance = s.files(), random.Random(1)
    for i in range(LEFT // 10):
        lines = [s.socket(CHAT, asked(f"{i} {k} " + "b" * chance.randrange(900) + "A", stream=k % 2 == 0, max_tokens=LONG))
                 for k in range(10)]
        time.sleep(chance.uniform(0, 0.1))
        for line in lines:
            if chance.random() < 0.3:        # a reset instead of a goodbye
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            line.close()
    good, took = soon(s)
    s.wait_until_idle()
    s.wait_until("closed connections", lambda _: s.files() <= before, 5)
    held = s.metrics()["kv_cache_usage_perc"]
    return good and held == 0, f"then one token in {took}; {s.files() - before} files more, {held} of the cache held"


def half_closed(s, tokens, streamed):
    connection = s.begin("POST", CHAT, asked("A", max_tokens=tokens, stream=streamed))
    connection.sock.shutdown(socket.SHUT_WR)
    with contextlib.closing(connection):
        answer = Answer(connection.getresponse())
    if not streamed:
        return answer.status, answer.json["usage"]["completion_tokens"]
    data = [line[6:] for line in answer.raw.decode().splitlines() if line.startswith("data: ")]
    return answer.status, sum(bool(text(json.loads(d))) for d in data[:-1])


class Reader(threading.Thread):
    """Reads a stream and keeps when something came."""

    def __init__(self, s, prompt, tokens):
        super().__init__(daemon=True)
        self.begun, self.times, self.failed, self.finish = time.monotonic(), [], None, None
        self.s, self.body = s, asked(prompt, max_tokens=tokens)
        self.open = None
        self.start()

    def run(self):
        try:
            self.open = self.s.stream(CHAT, self.body, timeout=900)
            for _, data in self.open:
                if data != "[DONE]" and "error" in data:
                    raise Refused(data["error"])
                if data != "[DONE]" and text(data):
                    self.times.append(time.monotonic())
                if data != "[DONE]" and data["choices"]:
                    self.finish = data["choices"][0]["finish_reason"]
        except Exception as e:
            self.failed = e

    def leave(self):
        if self.is_alive():
            self.open.leave()
            self.join()

    def first(self):
        return self.times[0] - self.begun if self.times else None

    def gap(self, since, until):
        """The longest time without anything."""
        times = [since, *(t for t in self.times if since <= t <= until), until]
        return max(b - a for a, b in zip(times, times[1:]))


def o2(c):
    c.build("o1")
    # The fast path: by the exact one, which files of 32 bits get otherwise, such a prompt takes many minutes. The cache
    # holds one of the long prompts at a time.
    with serve(c, "o1.gguf", "--activations", "q8") as s:
        for size, count in ((8_000, 5), (50_000, 1)):
            c.tally.run(f"O2 four streams, five prompts of {size} bytes, a short one; {count} of the five to the end",
                        lambda: fairness(s, size, count))


def fairness(s, size, count, patience=240):
    """Who runs goes on, who is short begins soon, who is long ends."""
    streams = [Reader(s, "b" * i + "A", LONG) for i in range(4)]
    time.sleep(3)
    began = time.monotonic()
    usual = statistics.median(b - a for r in streams for a, b in zip(r.times, r.times[1:]))
    long = [Reader(s, "c" * size + "A", 2)]
    time.sleep(0.5)
    long += [Reader(s, letter * size + "A", 2) for letter in "defg"]
    time.sleep(0.5)
    short = Reader(s, f"{size} A", 2)
    for reader in (short, *long[:count]):
        reader.join(max(0, began + patience - time.monotonic()))
    ended = time.monotonic()
    gap, most = max(r.gap(began, ended) for r in streams), max(1, 10 * usual)
    broken = [str(r.failed) for r in (*streams, *long, short) if r.failed]
    for reader in (*streams, *long):
        reader.leave()
    s.wait_until_idle()
    firsts = [round(r.first(), 1) for r in long if r.times]
    good = gap <= most and short.first() and short.first() <= 3 and len(firsts) >= count and not broken
    return bool(good), (f"longest pause {gap:.2f} s of at most {most:.2f}, usual {usual * 1e3:.1f} ms; first tokens: the short one's "
                        f"after {short.first() or patience:.2f} s, of the long ones after {firsts} s {broken}")


def o3(c):
    c.build("a1")
    with serve(c, "a1.gguf") as s:
        c.tally.run("O3 memory and files after 2,000 requests as after 300", lambda: growth(s))


def growth(s):
    found = []
    for numbers in (range(300), range(300, 2000)):
        at_once([lambda k=k: [one_of_many(s, n) for n in numbers[k::4]] for k in range(4)])
        s.wait_until_idle()
        time.sleep(1)
        found.append((s.memory(), s.files()))
    (memory, files), (more, open_files) = found
    return more - memory <= 20 * MIB and open_files <= files, \
        f"{memory / MIB:.1f} and {more / MIB:.1f} MiB, {files} and {open_files} files"


def one_of_many(s, n):
    """A request of 50 tokens: a third streamed, a third with logprobs; some are left, some cannot be answered.

    The first 300 are long enough to have touched all of the cache, whose memory counts from its first use on.
    """
    body = asked(f"request {n} {'b' * (400 if n < 300 else n % 100)}A", max_tokens=50)
    if n % 20 == 7:
        assert s.post(CHAT, {**body, "top_p": 7}).status == 400
    elif n % 20 == 13:
        s.socket(CHAT, {**body, "stream": n % 3 == 0}).close()
    elif n % 3 == 0:
        assert sum(bool(text(data)) for _, data in s.events(CHAT, body)[:-1]) == 50
    else:
        more = {"logprobs": True, "top_logprobs": 5} if n % 3 == 1 else {}
        choice = s.good(CHAT, {**body, **more})["choices"][0]
        assert choice["message"]["content"] == "x" * 50
        assert not more or len(choice["logprobs"]["content"]) == 50
