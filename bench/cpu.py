#!/usr/bin/env python3
"""Speed of the CPU backend: prompt and answer, tokens a second, over several process starts, a rival's in turn with ours.

    bench/cpu.py BINARY MODEL.gguf [--starts 3] [--threads N] [--activations auto|f32] [--rival LLAMA_BENCH] > bench/NAME.json

BINARY is `shardwright`; LLAMA_BENCH is llama.cpp's `llama-bench`, built with -DGGML_NATIVE=OFF and the options of the machine
(-DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON). Both read a prompt of 512 tokens, then
write 128 more. A benchmark, not a test: nothing depends on its numbers. Run it on an idle machine.

The glm-dsa file of 189 M weights in bench/*glm-dsa-189m.json:

    shardwright synth glm-5 --layers 6 --recipe q4_k_m --vocab 16384 --context 8192 --set embedding_length=768
        --set expert_count=16 --set expert_feed_forward_length=512 --set feed_forward_length=2048
        --set attention.head_count=12 --set attention.q_lora_rank=512 -o glm-dsa-189M-Q4_K_M.gguf
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess

PROMPT, ANSWER = 512, 128


def cpu():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), platform.processor())


def output(*command):
    return json.loads(subprocess.run(list(map(str, command)), capture_output=True, check=True, text=True).stdout)


def ours(a):
    got = output(a.binary, "bench", a.model, "-t", a.threads, "-p", PROMPT, "-n", ANSWER, "-r", 1, "--activations", a.activations, "--json")
    return [r["tok_s"] for r in got["results"]]


def theirs(a):
    """The prompt, then the answer after as many tokens."""
    common = [a.rival, "-m", a.model, "-t", a.threads, "-r", 1, "-o", "json"]
    prompt = output(*common, "-p", PROMPT, "-n", 0)
    answer = output(*common, "-p", 0, "-n", ANSWER, "-d", PROMPT)
    return [prompt[0]["avg_ts"], answer[0]["avg_ts"]]


def summary(name, rates):
    return {"name": name, "tok_s": round(statistics.median(rates), 1), "least": round(min(rates), 1), "most": round(max(rates), 1)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("binary")
    ap.add_argument("model")
    ap.add_argument("--starts", type=int, default=3)
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--activations", default="auto")
    ap.add_argument("--rival")
    a = ap.parse_args()
    engines = {"shardwright": ours} | ({"llama.cpp": theirs} if a.rival else {})
    runs = {name: [] for name in engines}
    load = os.getloadavg()[0]
    for _ in range(a.starts):
        for name, run in engines.items():
            runs[name].append(run(a))
    results = []
    for i, what in enumerate((f"prompt of {PROMPT}", f"{ANSWER} tokens after it")):
        for name in engines:
            results.append(summary(f"{name}: {os.path.basename(a.model)}, {what}", [r[i] for r in runs[name]]))
        if a.rival:
            results[-1]["ratio"] = round(results[-2]["tok_s"] / results[-1]["tok_s"], 2)
    version = subprocess.run([a.binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(json.dumps({"card": f"{cpu()}, {a.threads} threads", "date": datetime.date.today().isoformat(), "commit": version,
                      "load_before": load, "results": results}, indent=1))


if __name__ == "__main__":
    main()
