#!/usr/bin/env python3
"""SmolLM2-135M against llama.cpp and transformers on the same weights in float32.

  smollm2.py BINARY MODEL.gguf REFERENCE.json

640 greedy tokens must be equal; logits after ten prompts and the loss of sixteen windows agree within limits that
are 8 times what the two references differ by themselves (6e-5 and 9e-7).
"""
import json
import sys

import numpy as np

from engine import Engine, Tally, log_softmax

LOGIT = 5e-4
LOSS = 1e-5
PERPLEXITY = 1e-4


def prompt(engine, model, want):
    logits = engine.logits(model, want["ids"])[-1]
    off = max(abs(float(logits[i]) - x) for i, x in want["first_top10"])
    first = log_softmax(logits)[want["first_top10"][0][0]] - want["first_logprob_top1"]
    greedy = engine.generate(model, want["ids"], len(want["greedy"]))
    same = next((i for i, (a, b) in enumerate(zip(greedy, want["greedy"])) if a != b), len(greedy))
    good = off <= LOGIT and abs(first) <= LOGIT and greedy == want["greedy"]
    return good, f"greedy {same} of {len(want['greedy'])}, logits off by {off:.2g}/{LOGIT}"


def window(engine, model, ids):
    scores = log_softmax(engine.logits(model, ids)[:-1])
    return -scores[np.arange(len(ids) - 1), ids[1:]].mean()


def main(binary, model, reference):
    engine, tally = Engine(binary), Tally()
    with open(reference) as f:
        doc = json.load(f)
    want, size = doc["dequantized_f32"], doc["window"]
    for p in want["prompts"]:
        tally.run(f"smollm2 {p['text'][:32]!r}", lambda: prompt(engine, model, p))
    losses = []
    for i, reference in enumerate(want["window_nll"]):
        def check():
            losses.append(window(engine, model, doc["text_ids"][i * size:(i + 1) * size]))
            return abs(losses[-1] - reference) <= LOSS, f"loss {losses[-1]:.6f}, reference {reference:.6f}"
        tally.run(f"smollm2 window {i}", check)
    ppl = float(np.exp(np.mean(losses))) if len(losses) == len(want["window_nll"]) else float("nan")
    tally.say(abs(ppl - want["ppl"]) <= PERPLEXITY, "smollm2 perplexity", f"{ppl:.5f}, reference {want['ppl']}")
    tally.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
