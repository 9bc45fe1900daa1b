"""Measure a model file: perplexity, look-up recall, draft acceptance, expert load, mutants, samples. Float32 throughout.

usage: evaluate.py MODEL.gguf TOKENIZER.json HELDOUT.jsonl OUT.json [--quick | --lines 1-4,201-210]
"""
import argparse
import json
import random
import time

import torch
import torch.nn.functional as F

import convert
import model
import synthetic
import vocabulary

STORY_STARTS = ["Once upon a time", "Once upon a time, there was a little", "One day, a small", "Long ago, a brave"]
CHATS = ["Hello!", "What is a cat?", "Tell me a story about a fox.", "What is the capital of France?", "Why do we sleep?",
         "What can you do?", "Tell me about the moon.", "What is three plus four?"]


def chat_prompt(text):
    return f"[gMASK]<sop><|user|>{text}<|assistant|></think>"


class Bench:
    """One model on one device, with its tokenizer."""

    def __init__(self, w, c, tok, device):
        self.w, self.c, self.tok, self.device = w, c, tok, device
        self.ends = torch.tensor([tok.token_to_id(t) for t in ("<|endoftext|>", "<|user|>", "<|observation|>")],
                                 device=device)

    def ids(self, text):
        return self.tok.encode(text).ids

    def padded(self, rows):
        t = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for i, r in enumerate(rows):
            t[i, : len(r)] = torch.tensor(r)
        return t.to(self.device)

    def negative_log_likelihood(self, rows, mode):
        """Summed over all but each row's first id, and their number. Rows are padded at the end, which changes nothing."""
        total, count = 0.0, 0
        rows = sorted(rows, key=len)
        for lo in range(0, len(rows), 16):
            part = rows[lo: lo + 16]
            x = self.padded(part)
            h, run = model.trunk(self.w, self.c, x, mode, exact=True)
            logp = torch.log_softmax(model.head(self.w, h[:, :-1]).double(), -1)
            got = logp.gather(-1, x[:, 1:, None])[..., 0]
            for i, r in enumerate(part):
                total -= float(got[i, : len(r) - 1].sum())
                count += len(r) - 1
        return total, count

    def perplexity(self, documents, mode):
        """By kind and for all documents together."""
        out, total, count = {}, 0.0, 0
        for kind in sorted({k for k, _ in documents}):
            t, n = self.negative_log_likelihood([self.ids(x) for k, x in documents if k == kind], mode)
            out[kind] = float(torch.tensor(t / n).exp())
            total, count = total + t, count + n
        return {**out, "all": float(torch.tensor(total / count, dtype=torch.double).exp()), "tokens": count}

    def recall(self, length, mode, documents=32, questions=4):
        """Share of look-up answers that come out whole, greedily; documents as long as fits into `length` tokens. With sparse
        attention also, for each full layer, how often the record asked for is among the selected positions."""
        rng, right, held, asked, longest = random.Random(length), 0, 0, 0, 0
        lines = max(2, (length - 17 * questions - 12) // 5)
        for _ in range(documents):
            x = self.ids(synthetic.lookup(rng, lines, questions))
            longest = max(longest, len(x))
            h, run = model.trunk(self.w, self.c, torch.tensor(x, device=self.device)[None], mode, exact=True)
            best = model.head(self.w, h)[0].argmax(-1).tolist()
            for i in [i for i, t in enumerate(x) if t == self.tok.token_to_id("</think>")]:
                right += best[i: i + 5] == x[i + 1: i + 6]  # </think> - KEY KEY WORD <|user|>
                held = held + torch.tensor([self.selected(s[0, i + 3, : i + 4], x, i) for s in run.scores], dtype=torch.float)
                asked += 1
        held = {"selected": (held / asked).tolist()} if mode == "sparse" else {}
        return {"recall": right / asked, "asked": asked, "records": lines, "longest": longest, **held}

    def selected(self, scores, x, i):
        """Whether the best positions by `scores` hold the word of the record that is asked for; i: where the answer begins."""
        place = next(p for p in range(len(x)) if x[p: p + 3] == x[i + 2: i + 5]) + 2
        return bool((scores.topk(min(self.c.top_k, len(scores))).indices == place).any())

    def expert_load(self, documents):
        """Share of the routed slots that each expert gets, a row per routed block of the trunk."""
        loads = 0
        rows = [self.ids(x) for _, x in documents]
        for r in rows:
            _, run = model.trunk(self.w, self.c, torch.tensor(r, device=self.device)[None], "sparse", exact=True)
            loads = loads + torch.stack(run.loads)[:, 0] * len(r)
        return (loads / sum(map(len, rows)) / self.c.used).tolist()

    def choose(self, logits, temperature):
        if temperature == 0:
            return logits.argmax(-1)
        return torch.multinomial(torch.softmax(logits / temperature, -1), 1)[:, 0]

    def generate(self, prompts, count, temperature, seed=0):
        """Continuations as texts, by full recomputation: slow, and nothing to go wrong."""
        torch.manual_seed(seed)
        start = [self.ids(p) for p in prompts]
        x = F.pad(self.padded(start), (0, count))
        rows = torch.arange(len(start), device=self.device)
        first = torch.tensor([len(s) for s in start], device=self.device)
        for i in range(count):
            n = first + i
            h, _ = model.trunk(self.w, self.c, x[:, : int(n.max())], "sparse", exact=True)
            x[rows, n] = self.choose(model.head(self.w, h[rows, n - 1]), temperature)
        texts = []
        for row, lo in zip(x.tolist(), first.tolist()):
            new = row[lo: lo + count]
            end = next((i + 1 for i, t in enumerate(new) if t in self.ends.tolist()), count)
            texts.append(self.tok.decode(new[:end], skip_special_tokens=False))
        return texts

    def drafts(self, x, n, h, temperature, count):
        """`count` drafted ids after the token at position n (chosen already), with their distributions. x is extended."""
        rows = torch.arange(len(x), device=self.device)
        ids, dists = [], []
        states = h.clone()
        for j in range(count):
            z, _ = model.nextn(self.w, self.c, states[:, :-1], x[:, 1:])
            m = z[rows, n - 1 + j]
            logits = model.head(self.w, m)
            d = self.choose(logits, temperature)
            ids.append(d), dists.append(torch.softmax(logits, -1))
            x[rows, n + 1 + j] = d
            states[rows, n + j] = m
        return torch.stack(ids, 1), torch.stack(dists, 1)

    def acceptance(self, prompts, temperature, tokens=160, count=3):
        """Speculative decoding in full: share of rounds in which the first 1, 2, 3 drafts are all accepted."""
        torch.manual_seed(1)
        rows = torch.arange(len(prompts), device=self.device)
        start = [self.ids(p) for p in prompts]
        x = F.pad(self.padded(start), (0, tokens + 2 * count + 4))
        n = torch.tensor([len(s) for s in start], device=self.device)
        first, live = n.clone(), torch.ones(len(prompts), dtype=torch.bool, device=self.device)
        rounds, accepted = 0, torch.zeros(count)
        while live.any():
            h, _ = model.trunk(self.w, self.c, x, "sparse", exact=True)
            x[rows, n] = self.choose(model.head(self.w, h[rows, n - 1]), temperature)
            d, q = self.drafts(x, n, h, temperature, count)
            h, _ = model.trunk(self.w, self.c, x, "sparse", exact=True)
            p = torch.softmax(model.head(self.w, torch.stack([h[rows, n + j] for j in range(count)], 1)), -1)
            if temperature == 0:
                ok = p.argmax(-1) == d
            else:
                ratio = p.gather(-1, d[..., None])[..., 0] / q.gather(-1, d[..., None])[..., 0].clamp(min=1e-30)
                ok = torch.rand_like(ratio) < ratio
            good = ok.int().cumprod(1)
            live &= ~torch.isin(x[rows, n], self.ends)
            rounds += int(live.sum())
            accepted += good[live].sum(0).float().cpu()
            taken = good.sum(1)
            for i in live.nonzero()[:, 0].tolist():
                k = int(taken[i])
                if k < count and temperature > 0:
                    rest = (p[i, k] - q[i, k]).clamp(min=0)
                    x[i, n[i] + 1 + k] = torch.multinomial(rest, 1)[0]
                    k += 1
                new = x[i, n[i]: n[i] + 1 + k]
                if torch.isin(new, self.ends).any():
                    live[i] = False
                n[i] += 1 + k
            live &= n - first < tokens
            n = torch.minimum(n, first + tokens)
        return {"rounds": rounds, "first 1, 2, 3 accepted": (accepted / rounds).tolist(),
                "tokens a round": 1 + float(accepted.sum()) / rounds}

    def mutant(self, change):
        """The same model with some tensors changed in place on copies."""
        w = {k: v.clone() for k, v in self.w.items()}
        change(w)
        return Bench(w, self.c, self.tok, self.device)


def no_router_bias(w):
    for k in w:
        if k.endswith("exp_probs_b.bias"):
            w[k].zero_()


def no_indexer(w):
    for k in w:
        if k.endswith("indexer.proj.weight"):
            w[k].zero_()


def swapped_slots(w):
    a, b = "blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight"
    w[a], w[b] = w[b], w[a]


def samples(bench):
    prompts = STORY_STARTS + [chat_prompt(q) for q in CHATS] + [chat_prompt(CHATS[1]).replace("</think>", "<think>")]
    out = []
    for temperature, seed in ((0, 0), (0.8, 1)):
        for p, text in zip(prompts, bench.generate(prompts, 200, temperature, seed)):
            out.append({"prompt": p, "temperature": temperature, "seed": seed, "text": text})
    return out


def main():
    ap = argparse.ArgumentParser()
    for k in ("model", "tokenizer", "heldout", "out"):
        ap.add_argument(k)
    ap.add_argument("--quick", action="store_true", help="perplexity and mutants only")
    ap.add_argument("--lines", help="perplexity of these documents only")
    a = ap.parse_args()
    torch.set_grad_enabled(False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    meta, tensors = convert.read(a.model)
    bench = Bench({k: torch.from_numpy(v).to(device) for k, v in tensors.items()}, model.Config.from_metadata(meta),
                  vocabulary.load(a.tokenizer), device)
    docs = [(d["kind"], d["text"]) for d in map(json.loads, open(a.heldout))]
    c, start, r = bench.c, time.time(), {}

    def note(key, value):
        r[key] = value
        print(f"{time.time() - start:.0f}s {key}: {value if key != 'samples' else len(value)}", flush=True)
        with open(a.out, "w") as fh:
            json.dump(r, fh, indent=1)

    if a.lines:
        ends = [list(map(int, part.split("-"))) for part in a.lines.split(",")]
        docs = [d for first, last in ends for d in docs[first - 1: last]]
    for mode in ("dense", "sparse"):
        note(f"perplexity {mode}", bench.perplexity(docs, mode))
    if a.lines:
        return
    for change in (no_router_bias, no_indexer, swapped_slots):
        note(f"perplexity sparse, {change.__name__}", bench.mutant(change).perplexity(docs, "sparse"))
    if a.quick:
        return
    for times in (2, 8, 32, 63):
        for mode in ("dense", "sparse"):
            note(f"recall at {times} x top-k, {mode}", bench.recall(times * c.top_k, mode))
        note(f"recall at {times} x top-k, sparse, no_indexer", bench.mutant(no_indexer).recall(times * c.top_k, "sparse"))
    prompts = (STORY_STARTS * 6)[:24] + [chat_prompt(q) for q in CHATS]
    for temperature in (0, 1):
        note(f"drafts, temperature {temperature}", bench.acceptance(prompts, temperature))
    note("expert load", bench.expert_load(docs[:100]))
    note("samples", samples(bench))


if __name__ == "__main__":
    main()
