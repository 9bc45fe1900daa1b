#!/usr/bin/env python3
"""Cases from the field that need a model file: the right outcome of each, asked of the binary.

  cases.py BINARY CASES.md [ID ...]

CASES.md holds the builders of the files (`chain.py`, `ref.py`) and each case's own lines that call them, as fenced
blocks named in the fence. They are run from there, in a folder of their own; what must come out is written here.
"""
import json
import os
import sys

import numpy as np

import document
from engine import Failed, legal_ranks, log_softmax

TOLERANCE = 0.01
PARIS = list(b"Paris is the capital of")
ZEBRA = list(b"zebra")


class Cases(document.Cases):
    """Questions about logits."""

    def logprobs(self, model, ids, *flags):
        """After the last of these ids."""
        return log_softmax(self.engine.logits(model, ids, *flags)[-1])

    def top(self, name, model, ids, want, *flags):
        """The likeliest next ids, in order, and their logprobs."""
        def check():
            got = self.logprobs(model, ids, *flags)
            order = [int(i) for i in np.argsort(-got)[:len(want)]]
            off = max(abs(got[i] - x) for i, x in want)
            return order == [i for i, _ in want] and off <= TOLERANCE, f"{order}, off by {off:.2g}"
        self.tally.run(name, check)

    def near(self, name, model, ids, reference, tolerance=TOLERANCE, *flags):
        """All logprobs after the prompt against a reference row of logits."""
        def check():
            off = np.abs(self.logprobs(model, ids, *flags) - log_softmax(np.asarray(reference))).max()
            return off <= tolerance, f"off by {off:.2g}/{tolerance}"
        self.tally.run(name, check)


def g1(c):
    say = [("A", [b"Hi", b" you"])]
    c.build("g1")
    ids = c.maker("chain", "chain")("g1_plain.gguf", say)
    want = [ids[b"Hi"], ids[b" you"], ids["<eos>"]]
    parts = [f"snap/{f}" for f in sorted(os.listdir("snap"))]
    parts += sorted(f for f in os.listdir() if f.startswith("sz-"))
    assert len(parts) >= 5, parts
    for part in parts:
        c.tally.run(f"G1 {part}", lambda: (lambda got: (got == want, got))(c.engine.generate(part, [ids["A".encode()]], 3)))


def g2(c):
    bad = c.build("g2")["bad"]
    for name in bad:
        c.refused(f"G2 {name}", ["inspect", f"bad_{name}.gguf"], [f"bad_{name}.gguf"])


def g3(c):
    c.build("g3")
    for align in (8, 16, 64, 4096):
        def check():
            wrong = [n for n in range(32) if values(c, f"al_{align}_{n}.gguf") != {"a": 1.0, "b": 2.0, "c": 3.0}]
            return not wrong, f"wrong with names of {wrong} letters" if wrong else "32 files"
        c.tally.run(f"G3 alignment {align}", check)
    for align in (0, 3, 24, 2**31):
        c.refused(f"G3 alignment {align}", ["inspect", f"al_bad_{align}.gguf"], ["general.alignment"])


def values(c, path):
    """What stands at the offsets that `inspect` reports: the number that all four elements have, else None."""
    found = {}
    with open(path, "rb") as f:
        data = f.read()
    for tensor in json.loads(c.engine.call("inspect", path, "--json", "--tensors"))["tensors"]:
        four = set(np.frombuffer(data, "<f4", 4, tensor["offset"]).tolist())
        found[tensor["name"]] = four.pop() if len(four) == 1 else None
    return found


def g4(c):
    g = c.build("g2")["g"]
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 402000000000\n"
    files = {
        "v1": (g(ver=1), ["1"]),
        "v4": (g(ver=4), ["4"]),
        "big": (b"GGUF" + (3).to_bytes(4, "big") + bytes(16), ["big-endian"]),
        "empty": (b"", ["not a GGUF file"]),
        "short": (b"GGU", ["not a GGUF file"]),
        "ggjt": (b"ggjt" + bytes(60), ["not a GGUF file", "ggjt"]),
        "html": (b"<!DOCTYPE html><html></html>", ["not a GGUF file", "<!DO"]),
        "pointer": (pointer.encode(), ["pointer", "download"]),
    }
    for name, (data, says) in files.items():
        with open(f"g4_{name}.gguf", "wb") as f:
            f.write(data)
        c.refused(f"G4 {name}", ["inspect", f"g4_{name}.gguf"], says)
    c.maker("chain", "chain")("g4_v3.gguf", [("A", [b"Hi"])])
    with open("g4_v3.gguf", "rb") as f:
        data = bytearray(f.read())
    for version in (2, 3):
        data[4] = version
        with open(f"g4_v{version}.gguf", "wb") as f:
            f.write(data)
        c.tally.run(f"G4 v{version}", lambda: (c.engine.generate(f"g4_v{version}.gguf", [65], 1) == [258], ""))


Q1_TOP = {"mla": [(58, -0.2568), (81, -2.7349), (23, -3.0080)], "q": [(72, -0.7541), (164, -2.0227), (11, -2.0440)], "dsa": []}


def q1(c):
    orders = c.build("q1")["orders"]
    for family, want in Q1_TOP.items():
        files = [f"q1_{family}_{order}.gguf" for order in orders]
        if want:
            c.top(f"Q1 {files[0]}", files[0], PARIS, want)
        for n in (1, 2, 4, 8):
            def check():
                flags = ("--tp", n)
                if n not in legal_ranks(c.engine, files[0]):
                    return all(not_legal(c, f, n) for f in files), "refused"
                first, *rest = [c.engine.logits(f, PARIS, *flags).tobytes() for f in files]
                return all(r == first for r in rest), "bit-identical" if all(r == first for r in rest) else "differ"
            c.tally.run(f"Q1 {family} over {n}, four orders of tensors", check)


def not_legal(c, model, n):
    """Is this count of ranks refused, with the counts that are legal?"""
    try:
        c.engine.logits(model, ZEBRA, "--tp", n)
        return False
    except Failed as e:
        return e.status == 1 and all(str(k) in e.said for k in legal_ranks(c.engine, model))


def q2(c):
    c.build("q2")
    mla = c.maker("ref", "mla")
    c.top("Q2 q2_mixed", "q2_mixed.gguf", PARIS, [(72, -1.0794), (164, -1.5399), (11, -2.1099)])
    for t in ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        forward = mla(f"q2_{t}.gguf", types={"exps": t, "attn_q_a": t, "attn_kv_a_mqa": t})
        c.near(f"Q2 q2_{t}", f"q2_{t}.gguf", PARIS, forward(PARIS)[-1])
    # 41 (Q1_0) has a decoder here, so that file's fault is a tensor that does not fill its place; 153 has none.
    with open("q2_type41.gguf", "rb") as f:
        data = bytearray(f.read())
    for name in (b"blk.0.ffn_down.weight", b"blk.1.ffn_down.weight"):
        at = data.index(name) + len(name) + 4 + 16
        data[at:at + 4] = (153).to_bytes(4, "little")
    with open("q2_type153.gguf", "wb") as f:
        f.write(data)
    for kind, says in ((41, ["q2_type41.gguf"]), (153, ["IQ2_KT", "2 tensors", "ffn_down.weight"])):
        run = ["logits", "--model", f"q2_type{kind}.gguf", "--ids", c.engine.ids(ZEBRA), "--out", "q2.out"]
        c.refused(f"Q2 q2_type{kind}", run, says)


Q3_MODELS = {
    "F1408": dict(F=1408, types={"down_exps": "Q8_0"}),
    "F1536": dict(F=1536, types={"exps": "Q8_0"}),
    "F2048": dict(F=2048, types={"exps": "Q4_0"}),
    "H20": dict(H=20),
}


def q3(c):
    mla = c.maker("ref", "mla")
    for name, sizes in Q3_MODELS.items():
        path = f"q3_{name}.gguf"
        alone = mla(path, **sizes)(ZEBRA)[-1]
        for n in (1, 2, 4, 8, 16):
            if n in legal_ranks(c.engine, path):
                c.near(f"Q3 {name} over {n}", path, ZEBRA, alone, TOLERANCE, "--tp", n)
            else:
                c.tally.run(f"Q3 {name} over {n}", lambda: (not_legal(c, path, n), "refused"))


def m1(c):
    c.build("m1")
    mla = c.maker("ref", "mla")
    c.top("M1 no key, bias", "m1_a.gguf", ZEBRA, [(82, -0.4331)])
    c.top("M1 no key, no bias", "m1_b.gguf", ZEBRA, [(82, -0.0090)])
    for name, gating, chosen in (("a", 0, "sigmoid"), ("b", 0, "softmax")):
        c.engine.logits(f"m1_{name}.gguf", ZEBRA)
        said = c.engine.stderr.lower()
        c.tally.say(chosen in said and "expert_gating_func" in said and "bias" in said, f"M1 {name} says what it chose and why", said.strip()[:200])
    for name, gating in (("c", 1), ("d", 2)):
        forward = mla(f"m1_{name}.gguf", gating=gating)
        c.near(f"M1 gating {gating}", f"m1_{name}.gguf", ZEBRA, forward(ZEBRA)[-1])
    run = ["logits", "--model", "m1_e.gguf", "--ids", c.engine.ids(ZEBRA), "--out", "m1.out"]
    c.refused("M1 gating 9", run, ["expert_gating_func", "9"])


def m3(c):
    mla = c.maker("ref", "mla")
    mla("y2.gguf", mult=0.707)
    mla("y0.gguf", yarn=None)
    c.top("M3 log multiplier 0.0707", "y2.gguf", ZEBRA, [(82, -0.2997), (162, -2.2521)])
    c.top("M3 no YaRN", "y0.gguf", ZEBRA, [(82, -0.7723), (25, -1.3536)])


def m4(c):
    space = c.build("m4")
    c.top("M4 m4_sparse", "m4_sparse.gguf", PARIS, [(150, -0.3421), (199, -2.6967), (211, -3.3153)])
    forward, text = space["f"], list(b"The quick brown fox jumps over the lazy dog, and then it naps all day.")
    # The builder draws the indexer's weights between the others, so m4_dense is another model; dense is the reference
    # with its selection off, on the same weights.
    wide = c.maker("ref", "mla")("m4_wide.gguf", dsa={**space["d"], "topk": 64}, **space["kw"])
    for n in (1, 2, 8, 9, 33, 64):
        dense = wide(text[:n], sparse=False)[-1]
        c.near(f"M4 m4_wide is dense at {n} tokens", "m4_wide.gguf", text[:n], dense)
        same = c.engine.logits("m4_wide.gguf", text[:n], "--dense-attention")[-1]
        c.near(f"M4 m4_wide at {n} tokens without its indexer", "m4_wide.gguf", text[:n], same, 1e-4)
    for n in (7, 8, 9, 24):
        c.near(f"M4 m4_sparse at {n} tokens", "m4_sparse.gguf", text[:n], forward(text[:n])[-1])
        def check():
            dense = c.logprobs("m4_sparse.gguf", text[:n], "--dense-attention")
            off = np.abs(c.logprobs("m4_sparse.gguf", text[:n]) - dense).max()
            return (off <= 1e-4) == (n <= 8), f"differs by {off:.2g}"
        c.tally.run(f"M4 m4_sparse at {n} tokens is {'dense' if n <= 8 else 'not dense'}", check)
    keys = dict(heads=4, dim=32, topk=8, types=None)
    every = space["mla"]("m4_notypes.gguf", dsa=keys, **space["kw"])
    c.near("M4 m4_notypes: every layer selects", "m4_notypes.gguf", PARIS, every(PARIS)[-1])
    # DeepSeek-V3.2 has the same indexer, but its heads rotate by halves
    halves = space["mla"]("m4_v32.gguf", dsa=keys, **{**space["kw"], "arch": "deepseek32"})
    c.near("M4 deepseek32 rotates by halves", "m4_v32.gguf", PARIS, halves(PARIS, istyle="halves")[-1])


def m5(c):
    c.build("m5")
    new = c.engine.logits("m5_new.gguf", PARIS)[-1]
    c.near("M5 old and new layout", "m5_old.gguf", PARIS, new, 1e-4)
    c.tally.run("M5 the small cache for both", lambda: (lambda a, b: (a == b, f"{a} and {b} bytes a token"))(
        *(cache_bytes(c, f"m5_{name}.gguf") for name in ("new", "old"))))


def cache_bytes(c, path):
    return json.loads(c.engine.call("plan", path, "--json"))["memory"][0]["cache_a_token"]


def n1(c):
    c.build("n1")
    for n in (0, 31, 63, 64, 65, 200):
        prompt = list(b"B" * n + b"A")
        c.tally.run(f"N1 after {n} bytes", lambda: (lambda got: (got == [258, 259], got))(c.engine.generate("n1.gguf", prompt, 2)))


def n2(c):
    c.build("n2")
    run = ["logits", "--model", "n2.gguf", "--ids", c.engine.ids(b"N"), "--out", "n2.out"]
    c.refused("N2 a NaN", run, ["non-finite"])


ALL = (g1, g2, g3, g4, q1, q2, q3, m1, m3, m4, m5, n1, n2)


if __name__ == "__main__":
    document.run(Cases(sys.argv[1], os.path.abspath(sys.argv[2])), ALL, sys.argv[3:])
