#!/usr/bin/env python3
"""Speed of the server: what a prompt gains whose beginning is in the cache, and what sixteen answers at a time gain.

    bench/serve.py BINARY [MODEL.gguf] [--threads N] [--repeats 5] > bench/NAME.json

Without a file the demo model. A benchmark, not a test: nothing depends on its numbers. Run it on an idle machine.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "clients"))
from cpu import cpu
from server import serve

PREFIX, TAIL, ANSWER, STREAMS = 1000, 24, 64, 16


def ids(seed, count):
    """Token ids that are words in any vocabulary, another text for each seed."""
    return [300 + (seed * 7919 + i * 104729) % 3000 for i in range(count)]


def ask(base, prompt, tokens):
    """When each piece of the answer came, after the request was sent."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True, "logprobs": 0}
    request = urllib.request.Request(base + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    sent, times = time.perf_counter(), []
    with urllib.request.urlopen(request) as response:
        for line in response:
            if line.startswith(b"data: {"):
                pieces = json.loads(line[6:])["choices"][0]["logprobs"]
                times += [time.perf_counter() - sent] * len(pieces["tokens"] if pieces else [])
    assert len(times) == tokens, f"{len(times)} of {tokens} tokens came"
    return times


def prefix(base, seed):
    """Time to the first token of two prompts with the same beginning, in milliseconds."""
    shared = ids(seed, PREFIX)
    return [ask(base, shared + ids(seed + 1000 + i, TAIL), 4)[0] * 1e3 for i in range(2)]


def rate(base, seed, streams):
    """Tokens a second, of all streams together, from the last prompt's end to the first answer's."""
    times = [None] * streams
    began = time.perf_counter()

    def one(i):
        sent = time.perf_counter() - began
        times[i] = [sent + t for t in ask(base, ids(seed + i, 32), ANSWER)]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, last = max(t[0] for t in times), min(t[-1] for t in times)
    return sum(first < t <= last for all in times for t in all) / (last - first)


def summary(name, unit, values):
    return {"name": name, unit: round(statistics.median(values), 1), "least": round(min(values), 1), "most": round(max(values), 1)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("binary")
    ap.add_argument("model", nargs="?")
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--repeats", type=int, default=5)
    a = ap.parse_args()
    load = os.getloadavg()[0]
    with serve(a.binary, *([a.model] if a.model else ["--demo"]), "-t", str(a.threads), "--max-model-len", "2048",
               "--cache-tokens", "32768") as base:
        ask(base, ids(9999, 8), 4)
        first, second = zip(*(prefix(base, 10 * i) for i in range(a.repeats)))
        one = [rate(base, 100_000 + 1000 * i, 1) for i in range(a.repeats)]
        many = [rate(base, 200_000 + 1000 * i, STREAMS) for i in range(a.repeats)]
    results = [
        summary(f"first token, prompt of {PREFIX + TAIL}", "ms", first),
        summary(f"first token, the same with {PREFIX} tokens in the cache", "ms", second)
        | {"of_first": round(statistics.median(b / a for a, b in zip(first, second)), 3)},
        summary("one stream", "tok_s", one),
        summary(f"{STREAMS} streams", "tok_s", many) | {"of_one": round(statistics.median(many) / statistics.median(one), 2)},
    ]
    version = subprocess.run([a.binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(json.dumps({"card": f"{cpu()}, {a.threads} threads", "model": os.path.basename(a.model or "demo"),
                      "date": datetime.date.today().isoformat(), "commit": version, "load_before": load, "results": results}, indent=1))


if __name__ == "__main__":
    main()
