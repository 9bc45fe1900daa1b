"""Short answers for training, sampled from SmolLM2-135M-Instruct (Apache-2.0) in large batches on a GPU.

usage: teacher.py pack MODEL.gguf DIR            cut the GGUF file into small parts DIR/0, DIR/1, DIR/2 (easier to move)
       teacher.py sample DIR OUT.jsonl SECONDS   write one {"ask", "text"} object a line
"""
import json
import os
import random
import re
import sys
import time

import numpy as np

import prompts

LAYERS, DIM, HEADS, KV, HD, EPS, BASE = 30, 576, 9, 3, 64, 1e-5, 100000.0
CUTS = (3, 17)  # the embedding and the first layers go to part 0, then up to the second cut to part 1, the rest to part 2


def pack(path, out):
    """Keep the packed blocks as they are, and only the embedding rows of ASCII entries."""
    import gguf
    r = gguf.GGUFReader(path)
    tokens = r.fields["tokenizer.ggml.tokens"].contents()
    merges = r.fields["tokenizer.ggml.merges"].contents()
    keep = [i for i, t in enumerate(tokens) if i < 3 or (i >= 17 and re.fullmatch(r"[\x21-\x7eĠĊ]+", t))]
    parts = ({}, {}, {})
    for t in r.tensors:
        data = np.array(t.data)
        if t.name == "token_embd.weight":
            data = data[keep].reshape(-1, 34)
        elif t.tensor_type.name == "Q4_1":
            data = data.reshape(-1, 20)
        n = int(t.name.split(".")[1]) if t.name.startswith("blk") else 0
        parts[sum(n >= cut for cut in CUTS)][t.name] = data
    parts[0]["keep"] = np.array(keep, np.int32)
    for i, part in enumerate(parts):
        os.makedirs(os.path.join(out, str(i)), exist_ok=True)
        np.savez(os.path.join(out, str(i), "teacher.npz"), **part)
    json.dump({"tokens": tokens, "merges": merges}, open(os.path.join(out, "2", "vocab.json"), "w"))


def load(folder, device, dtype):
    """Weights by GGUF name, and the kept ids."""
    import torch
    w, keep = {}, None
    shape = {"attn_q": (DIM, DIM), "attn_k": (KV * HD, DIM), "attn_v": (KV * HD, DIM), "attn_output": (DIM, DIM),
             "ffn_gate": (1536, DIM), "ffn_up": (1536, DIM), "ffn_down": (DIM, 1536)}
    for i in range(len(CUTS) + 1):
        for name, a in np.load(os.path.join(folder, str(i), "teacher.npz")).items():
            if name == "keep":
                keep = a
                continue
            if a.dtype == np.uint8 and a.shape[1] == 34:
                a = a[:, 2:].view(np.int8) * a[:, :2].copy().view(np.float16).astype(np.float32)
                a = a.reshape(-1, DIM)
            elif a.dtype == np.uint8:
                scale, low = (a[:, i: i + 2].copy().view(np.float16).astype(np.float32) for i in (0, 2))
                a = np.concatenate((a[:, 4:] & 15, a[:, 4:] >> 4), 1) * scale + low
                a = a.reshape(shape[name.split(".")[2]])
            w[name] = torch.from_numpy(np.ascontiguousarray(a)).to(device, dtype)
    for n in range(LAYERS):
        b = f"blk.{n}."
        w[b + "qkv"] = torch.cat([w.pop(b + f"attn_{k}.weight") for k in "qkv"])
        w[b + "gate_up"] = torch.cat([w.pop(b + f"ffn_{k}.weight") for k in ("gate", "up")])
    return w, keep


def tokenizer(folder):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    v = json.load(open(os.path.join(folder, "2", "vocab.json")))
    t = Tokenizer(models.BPE({x: i for i, x in enumerate(v["tokens"])}, [tuple(m.split(" ")) for m in v["merges"]]))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(x, normalized=False) for x in v["tokens"][:17]])
    return t


class Sampler:
    """A batch of rows in lockstep; all prompts of a batch have one length, so no mask is needed."""

    def __init__(self, w, keep, device, dtype, rows, length):
        import torch
        self.torch, self.w, self.rows, self.length, self.device = torch, w, rows, length, device
        self.cache = [torch.zeros(2, rows, KV, length, HD, device=device, dtype=dtype) for _ in range(LAYERS)]
        pos = torch.arange(length, device=device).float()
        freq = torch.tensor([BASE ** (-i / HD) for i in range(0, HD, 2)], device=device)
        self.cos, self.sin = ((pos[:, None] * freq).cos().to(dtype), (pos[:, None] * freq).sin().to(dtype))

    def norm(self, x, w):
        x32 = x.float()
        return (x32 * self.torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + EPS) * w).to(x.dtype)

    def rotate(self, x, t):
        a, b = x[..., 0::2], x[..., 1::2]
        c, s = self.cos[t], self.sin[t]
        return self.torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)

    def attend(self, q, k, v):
        """q [R,KV,3,HD] against k, v [R,KV,t,HD]: the three query heads of a group share its keys."""
        f = self.torch.nn.functional
        if q.is_cuda:
            return f.scaled_dot_product_attention(q, k, v)
        p = self.torch.softmax(q @ k.transpose(-1, -2) * HD ** -0.5, -1)
        return p @ v

    def step(self, ids, t):
        """Logits [R, kept] for the next token after `ids` at position t."""
        f, w = self.torch.nn.functional, self.w
        x = w["token_embd.weight"][ids]
        for n in range(LAYERS):
            b = f"blk.{n}."
            qkv = f.linear(self.norm(x, w[b + "attn_norm.weight"]), w[b + "qkv"]).view(self.rows, HEADS + 2 * KV, HD)
            q, k = self.rotate(qkv[:, :HEADS], t), self.rotate(qkv[:, HEADS: HEADS + KV], t)
            cache = self.cache[n]
            cache[0, :, :, t], cache[1, :, :, t] = k, qkv[:, HEADS + KV:]
            o = self.attend(q.view(self.rows, KV, HEADS // KV, HD), cache[0, :, :, : t + 1], cache[1, :, :, : t + 1])
            x = x + f.linear(o.reshape(self.rows, DIM), w[b + "attn_output.weight"])
            g, u = f.linear(self.norm(x, w[b + "ffn_norm.weight"]), w[b + "gate_up"]).chunk(2, -1)
            x = x + f.linear(f.silu(g) * u, w[b + "ffn_down.weight"])
        return f.linear(self.norm(x, w["output_norm.weight"]), w["token_embd.weight"])

    def pick(self, logits, temperature, min_p):
        """Sample with temperature among entries at least min_p times as likely as the likeliest."""
        torch = self.torch
        z = logits.float() / temperature
        z = z.masked_fill(z < z.amax(-1, keepdim=True) + np.log(min_p), -1e30)
        return (z - torch.empty_like(z).exponential_().log()).argmax(-1)

    def run(self, prompt, temperature, min_p):
        """prompt [R,P] -> sampled ids [R, length-P]."""
        torch = self.torch
        out = []
        with torch.no_grad():
            for t in range(self.length - 1):
                ids = prompt[:, t] if t < prompt.shape[1] else out[-1]
                logits = self.step(ids, t)
                if t >= prompt.shape[1] - 1:
                    out.append(self.pick(logits, temperature, min_p))
        return torch.stack(out, 1)


def build_prompts(tok, index, rng, count):
    """Prompts grouped by token length: length -> list of (ids, question)."""
    asks = [prompts.question(rng) for _ in range(count)]
    texts = [f"<|im_start|>system\n{prompts.CHAT_SYSTEM}<|im_end|>\n<|im_start|>user\n{a}<|im_end|>\n<|im_start|>assistant\n"
             for a in asks]
    groups = {}
    for enc, ask in zip(tok.encode_batch(texts, add_special_tokens=False), asks):
        ids = [index.get(i, -1) for i in enc.ids]
        if min(ids) >= 0:
            groups.setdefault(len(ids), []).append((ids, ask))
    return groups


def sample(folder, out, seconds, rows=8192, length=128, temperature=0.4, min_p=0.15):
    """Answer random questions until the time is spent; each batch uses one prompt length. Only finished answers count."""
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    w, keep = load(folder, device, dtype)
    tok = tokenizer(folder)
    index = {int(k): i for i, k in enumerate(keep)}
    rng = random.Random(1)
    torch.manual_seed(1)
    groups = build_prompts(tok, index, rng, 50000)
    end_ids = torch.tensor([index[0], index[2]], device=device)
    sampler = Sampler(w, keep, device, dtype, rows, length)
    start, spent = time.time(), 1.0
    with open(out, "w") as fh:
        while time.time() - start < seconds - spent:
            began = time.time()
            size = rng.choices(list(groups), [len(g) for g in groups.values()])[0]
            chosen = rng.choices(groups[size], k=rows)
            got = sampler.run(torch.tensor([c[0] for c in chosen], device=device), temperature, min_p)
            stop = torch.isin(got, end_ids)
            ends = torch.where(stop.any(1), stop.int().argmax(1), got.shape[1]).tolist()
            got = got.cpu().numpy()
            texts = tok.decode_batch([keep[g[:e]].tolist() for g, e in zip(got, ends)])
            done = [(ask, text) for (_, ask), text, e in zip(chosen, texts, ends) if e < got.shape[1]]
            for ask, text in done:
                fh.write(json.dumps({"ask": ask, "text": text}) + "\n")
            spent = time.time() - began
            print(f"{rows} rows, {len(done)} finished, {spent:.1f} s", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "pack":
        pack(*sys.argv[2:4])
    else:
        sample(sys.argv[2], sys.argv[3], float(sys.argv[4]))
