#!/usr/bin/env python3
"""Speed of the exact CPU backend: prompt and answer, tokens a second, over several process starts.

    bench/cpu.py BINARY MODEL.gguf [--starts 3] [--answer 64] [--threads N] > bench/NAME.json

A benchmark, not a test: nothing depends on its numbers. Run it on an idle machine.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess

PROMPT = " ".join(f"Sentence number {i} says that the quick brown fox jumps over the lazy dog." for i in range(30))


def cpu():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), platform.processor())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("binary")
    ap.add_argument("model")
    ap.add_argument("--starts", type=int, default=3)
    ap.add_argument("--answer", type=int, default=64)
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    a = ap.parse_args()
    command = [a.binary, "run", a.model, "--raw", "-p", PROMPT, "-n", a.answer, "--temp", 0, "-t", a.threads, "--ignore-eos", "--json"]
    runs = [json.loads(subprocess.run(list(map(str, command)), capture_output=True, check=True).stdout) for _ in range(a.starts)]
    results = []
    for what in ("prompt", "answer"):
        rates = [r[f"{what}_tokens"] / r[f"{what}_seconds"] for r in runs]
        results.append({"name": f"{os.path.basename(a.model)} {what} of {runs[0][f'{what}_tokens']}",
                        "tok_s": round(statistics.median(rates), 2), "least": round(min(rates), 2), "most": round(max(rates), 2)})
    version = subprocess.run([a.binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(json.dumps({"card": f"{cpu()}, {a.threads} threads", "date": datetime.date.today().isoformat(), "commit": version,
                      "load_before": os.getloadavg()[0], "results": results}, indent=1))


if __name__ == "__main__":
    main()
