#!/usr/bin/env python3
"""Grouped-query architectures against a forward pass of their own in numpy (float64).

    architectures.py BINARY MODELS

No reference outputs exist for qwen2, qwen3moe, smollm3 and Mixtral. This file writes their forward pass down once more,
from the published formulas, and compares logits on small random files that `synth` makes. MODELS is a folder with
llama, qwen3 and glm4moe files whose logits other engines have computed: there it shows that the pass here is right.
Every file is also run over 2 and 3 ranks and in pieces, which must give the same logits.
"""
import math
import os
import sys

import gguf
import numpy as np

from engine import Engine, Tally

# rotation: neighbours, or halves of the rotated part
STYLE = {"llama": "pairs", "smollm3": "pairs", "qwen2": "halves", "qwen3": "halves", "qwen3moe": "halves", "glm4moe": "halves"}
SYNTH = ["tiny-llama", "tiny-mixtral", "tiny-smollm3", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3moe", "tiny-glm4moe"]
REST = ["tiny-glm-dsa", "tiny-glm-5.2", "tiny-deepseek2", "tiny-deepseek2-lite", "tiny-deepseek32"]
KNOWN = ["llama-f32", "qwen3-bf16", "glm4moe-f32"]
IDS = [(7 * i * i + 3 * i + 11) % 251 for i in range(45)]


class File:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.keys = {k: f.contents() for k, f in reader.fields.items()}
        self.arch = self.keys["general.architecture"]
        shape = lambda t: [int(n) for n in reversed(t.shape)]
        self.tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(shape(t)).astype(np.float64)
                        for t in reader.tensors}

    def key(self, name, default=None):
        return self.keys.get(f"{self.arch}.{name}", default)

    def __getitem__(self, name):
        return self.tensors[name]

    def get(self, name, default=0.0):
        return self.tensors.get(name, default)


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def rotate(f, x, width):
    """x: [tokens, heads, head size]."""
    n = f.key("rope.dimension_count", width)
    freqs = f.key("rope.freq_base", 10000.0) ** (-2.0 * np.arange(n // 2) / n) / f.get("rope_freqs.weight", 1.0)
    angle = np.arange(len(x))[:, None, None] * freqs
    even, odd = (slice(0, n, 2), slice(1, n, 2)) if STYLE[f.arch] == "pairs" else (slice(0, n // 2), slice(n // 2, n))
    y, a, b = x.copy(), x[..., even], x[..., odd]
    y[..., even], y[..., odd] = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    return y


def attention(f, b, l, h, norm):
    heads, width = f.key("attention.head_count"), f.key("attention.key_length", h.shape[1] // f.key("attention.head_count"))
    kv = f.key("attention.head_count_kv", heads)
    q, k, v = (h @ f[f"{b}attn_{n}.weight"].T + f.get(f"{b}attn_{n}.bias") for n in "qkv")
    q, k, v = (x.reshape(len(h), -1, width) for x in (q, k, v))
    if f"{b}attn_q_norm.weight" in f.tensors:
        q, k = norm(q, f"{b}attn_q_norm"), norm(k, f"{b}attn_k_norm")
    if not (f.arch == "smollm3" and (l + 1) % 4 == 0):
        q, k = rotate(f, q, width), rotate(f, k, width)
    k, v = k.repeat(heads // kv, 1), v.repeat(heads // kv, 1)
    mask = np.triu(np.full((len(h), len(h)), -np.inf), 1)
    p = softmax(np.einsum("qhd,khd->hqk", q, k) / math.sqrt(width) + mask)
    return np.einsum("hqk,khd->qhd", p, v).reshape(len(h), -1) @ f[b + "attn_output.weight"].T


def gated(h, gate, up, down):
    return (silu(h @ gate.T) * (h @ up.T)) @ down.T


def experts(f, b, h):
    logits, used = h @ f[b + "ffn_gate_inp.weight"].T, f.key("expert_used_count")
    sigmoid = f.key("expert_gating_func", 2 if f.arch == "glm4moe" else 1) == 2
    p = 1 / (1 + np.exp(-logits)) if sigmoid else softmax(logits)
    chosen = np.argsort(-(p + f.get(b + "exp_probs_b.bias")), kind="stable")[:, :used]
    stacks = [f[f"{b}ffn_{n}_exps.weight"] for n in ("gate", "up", "down")]
    normalize = f.key("expert_weights_norm", f.arch != "glm4moe")
    y = np.zeros_like(h)
    for t, row in enumerate(chosen):
        w = p[t, row] / (p[t, row].sum() if normalize else 1) * (f.key("expert_weights_scale") or 1.0)
        y[t] = sum(a * gated(h[t], *(s[e] for s in stacks)) for a, e in zip(w, row))
    shared = [f.tensors.get(f"{b}ffn_{n}_shexp.weight") for n in ("gate", "up", "down")]
    return y if shared[0] is None else y + gated(h, *shared)


def forward(f, ids):
    def norm(x, name):
        eps = f.key("attention.layer_norm_rms_epsilon")
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * f[name + ".weight"]

    x = f["token_embd.weight"][ids]
    for l in range(f.key("block_count") - f.key("nextn_predict_layers", 0)):
        b = f"blk.{l}."
        x = x + attention(f, b, l, norm(x, b + "attn_norm"), norm)
        h = norm(x, b + ("post_attention_norm" if f.arch == "glm4moe" else "ffn_norm"))
        if b + "ffn_gate_inp.weight" in f.tensors:
            x = x + experts(f, b, h)
        else:
            x = x + gated(h, *(f[f"{b}ffn_{n}.weight"] for n in ("gate", "up", "down")))
    return norm(x, "output_norm") @ f.get("output.weight", f["token_embd.weight"]).T


def check(tally, engine, name, path, reference):
    """`reference`: compare with the pass above too; ranks and pieces are compared with the plain run."""
    whole = engine.logits(path, IDS)
    scale = whole.std()

    def near(got, want, limit):
        off = np.abs(got - want).max() / scale
        return bool(off <= limit), f"off by {off:.1e} of the logits' deviation"

    if reference:
        tally.run(f"{name} is the numpy pass", lambda: near(whole, forward(File(path), IDS), 1e-4))
    for ranks in (2, 3):
        tally.run(f"{name} over {ranks} ranks", lambda: near(engine.logits(path, IDS, "--tp", ranks), whole, 1e-4))
    tally.run(f"{name} in pieces", lambda: near(engine.logits(path, IDS, "--chunk", 7), whole, 0))


def main():
    engine, tally = Engine(sys.argv[1]), Tally()
    for name in KNOWN:
        path = os.path.join(sys.argv[2], name + ".gguf")
        want = lambda: forward(File(path), IDS)
        off = lambda: np.abs(engine.logits(path, IDS) - want()).max()
        tally.run(f"{name} is the numpy pass", lambda: (lambda o: (bool(o < 2e-4), f"off by {o:.1e}"))(off()))
    for name in SYNTH + REST:
        path = engine.file(name + ".gguf")
        engine.call("synth", name, "--recipe", "bf16", "-o", path)
        check(tally, engine, name, path, name in SYNTH)
    tally.end()


if __name__ == "__main__":
    main()
