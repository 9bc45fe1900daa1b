#!/usr/bin/env python3
"""Every count of ranks that `plan` calls legal gives the golden answers; every other is refused by name.

  ranks.py BINARY ORACLE_DIR [NAME ...]
"""
import json
import os
import sys

import numpy as np

from engine import Engine, Failed, Tally, legal_ranks

COUNTS = (1, 2, 3, 4, 5, 8)
# What is known to divide: a plan that calls less legal has lost something.
AT_LEAST = {"glm-dsa-tp8-kq": (1, 2, 4, 8)}


def golden(engine, model, gold, limit, n):
    """Logits of the shortest and the longest prompt within the limit, and the 64 greedy tokens of all three."""
    off, same = 0.0, True
    for p in ("p0", "p1", "p2"):
        ids, steps = gold[f"{p}_ids"].tolist(), len(gold[f"{p}_greedy_margin"])
        got = engine.logits(model, ids, "--tp", n)[gold[f"{p}_logit_pos"]]
        off = max(off, float(np.abs(got - gold[f"{p}_logits"]).max()))
        same &= engine.generate(model, ids[:-steps], steps, "--tp", n) == ids[-steps:]
    return off <= limit and same, f"max abs {off:.2g}/{limit}, greedy {'equal' if same else 'DIFFERENT'}"


def refused(engine, model, n, legal):
    try:
        engine.logits(model, [1, 2, 3], "--tp", n)
    except Failed as e:
        lines = [x for x in e.said.splitlines() if x.startswith("error")]
        good = e.status == 1 and len(lines) == 1 and all(str(k) in lines[0] for k in legal)
        return good, e.said.strip()[:160]
    return False, "ran although plan calls it illegal"


def main(binary, oracle, *only):
    engine, tally = Engine(binary), Tally()
    read = lambda name: json.load(open(os.path.join(oracle, "golden", name)))
    index, limits = read("index.json"), read("tolerances.json")
    for name in only or index:
        gold = np.load(os.path.join(oracle, "golden", f"{name}.npz"))
        for file in index[name]["files"]:
            model = os.path.join(oracle, "models", file)
            try:
                legal = legal_ranks(engine, model)
            except Failed as e:
                tally.say(False, f"{file} plan", str(e))
                continue
            must = AT_LEAST.get(name, (1, 2))
            tally.say(set(must) <= set(legal), f"{file} legal ranks", f"{legal}")
            for n in COUNTS:
                if n in legal:
                    tally.run(f"{file} over {n}", lambda: golden(engine, model, gold, limits[name]["exact"]["max_abs"], n))
                else:
                    tally.run(f"{file} over {n}", lambda: refused(engine, model, n, [k for k in legal if k <= 8]))
    tally.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
