"""Train the demo model.

usage: train.py DATA OUT [--plan drill:70,dense:180,index:25,sparse:85] [--init FILE.pt] [--deadline SECONDS] [--smoke]
DATA holds what data.py wrote. A plan is a list of phase:seconds; each phase ends by the clock (compilation not counted),
and its state is saved as OUT/PHASE.pt; the result goes to OUT/demo-bf16.gguf. Phases:
  drill   short rows of look-up records and nothing else; some heads are told where to look, for left alone the model stays
          at guessing among the words of the list for thousands of steps
  dense   text and look-ups in rows of 4096, causal attention; next-token block along with the trunk
  index   trunk frozen, indexers learn the attention's distribution over keys (dense warm-up)
  sparse  steps with selected keys only, alternating with dense steps that go on teaching the indexers
--deadline ends all phases when that many seconds have passed since the start.
--smoke runs a few steps (the plan then counts steps) of a tiny model with short rows on the CPU.
"""
import argparse
import contextlib
import os
import random
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F

import convert
import model
import records
import vocabulary

LOOKUP_WEIGHT = 0.5   # of the look-ups' loss beside the text's
NEXTN_WEIGHT = 0.3    # of the next-token block's, for all its steps together
BALANCE_WEIGHT = 0.02
GUIDE_WEIGHT = 0.5
DRILLED = 0.5         # share of right look-ups without which the other phases are not worth their time
DRAFTS = 3            # steps ahead that the next-token block learns
DRAFT_ROW = 512       # the part of a row on which it learns the second and later ones
DECAY = 0.1
SHOWN = ("text", "look-up", "draft 1", "draft 2", "draft 3", "index", "balance", "guide", "recall")
COMPILED = {}         # the faster form of token_losses, where there is one


@dataclass(frozen=True)
class Phase:
    texts: int         # rows of text in a batch
    lookups: int       # rows of look-up records
    length: int        # of a row, tokens
    first: float       # learning rate at the start
    last: float        # and at the end
    warm: int          # steps up to the first
    most: int          # records in a row
    modes: tuple       # pass modes in turn
    guided: bool = False      # heads are told where to look
    drafts: bool = True       # the next-token block learns too
    whole: bool = False       # layers are compiled whole: faster steps, a longer wait before the first
    enough: float = 2.0       # share of right look-ups at which the phase ends early


PHASES = {"drill": Phase(0, 64, 256, 4e-3, 2e-3, 100, 16, ("dense",), guided=True, drafts=False, whole=True, enough=0.98),
          "dense": Phase(18, 6, 4096, 2e-3, 1e-3, 50, 1000, ("dense",), whole=True),
          "index": Phase(3, 3, 4096, 3e-3, 1e-3, 20, 1000, ("distill",)),
          "sparse": Phase(4, 2, 4096, 1e-3, 1e-5, 20, 1000, ("sparse", "distill"))}


class Stream:
    """Token rows that begin at document starts; an epoch covers the whole stream, in random order."""

    def __init__(self, path, device, seed):
        a = np.load(path)
        self.ids = torch.from_numpy(a["ids"].astype(np.int16)).to(device)
        self.weight = torch.ones(len(self.ids), device=device)
        self.weight[torch.from_numpy(a["start"]).to(device)] = 0  # how a document begins cannot be known
        self.start, self.rng, self.device = a["start"], np.random.default_rng(seed), device
        self.queue, self.length, self.epochs = [], None, 0

    def epoch(self, length):
        """Row starts: each row begins at the last document that the row before did not finish."""
        total, out = len(self.ids), []
        j = int(self.rng.integers(min(64, len(self.start))))
        while self.start[j] + length <= total:
            out.append(self.start[j])
            nxt = int(np.searchsorted(self.start, self.start[j] + length, "right")) - 1
            j = nxt if nxt > j else j + 1
            if j >= len(self.start):
                break
        self.epochs += 1
        return list(self.rng.permutation(np.array(out)))

    def batch(self, rows, length):
        if self.length != length:
            self.queue, self.length = [], length
        while len(self.queue) < rows:
            self.queue += self.epoch(length)
        starts = torch.tensor([self.queue.pop() for _ in range(rows)], dtype=torch.long, device=self.device)
        at = starts[:, None] + torch.arange(length, device=self.device)
        return self.ids[at].long(), self.weight[at]


class Batches:
    """Rows for a phase: text first, then look-ups."""

    def __init__(self, data, tok, device):
        self.text, self.records = Stream(os.path.join(data, "train.npz"), device, 5), records.Records(tok, device, 6)

    def next(self, phase):
        """ids and loss weights [rows, length + 2], the number of text rows, and for a guided phase where to look."""
        length, where = phase.length + 2, None
        parts = [self.text.batch(phase.texts, length)] if phase.texts else []
        if phase.lookups:
            *part, said = self.records.batch(phase.lookups, length, phase.most)
            parts.append(part)
            if phase.guided:
                where = records.guides(part[1][:, :-1], said[:, :-1])
        return (*(torch.cat(p) for p in zip(*parts)), phase.texts, where)


def token_losses(h, head, target):
    """Of each token, and whether the likeliest token was the right one."""
    logits = F.linear(h, head).float()
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)
    return loss, logits.argmax(-1) == target


def mean(values, weight):
    return (values * weight).sum() / weight.sum().clamp(min=1.0)


def draft_losses(w, c, h, batch, mode):
    """Losses of the next-token block one and more steps ahead, its Pass and its loads; a step takes the state of the last."""
    ids, weight, texts, _ = batch
    t = ids.shape[1] - 2
    short = min(DRAFT_ROW, t - DRAFTS + 1)

    def loss(z, ahead, fn):
        at = slice(ahead, ahead + z.shape[1])
        one, _ = fn(z, w["output.weight"], ids[:, at])
        return mean(one[:texts], weight[:texts, at]) + LOOKUP_WEIGHT * mean(one[texts:], weight[texts:, at])

    z, run = model.nextn(w, c, h, ids[:, 1: t + 1], "distill" if mode == "distill" else "dense")
    out, loads = [loss(z, 2, COMPILED.get("token_losses", token_losses))], run.loads
    if mode == "distill":
        return out + [torch.zeros_like(out[0])] * (DRAFTS - 1), run, loads
    chain, z = model.Chain(w, c, h[:, :short], ids[:, 1: 1 + short]), z[:, :short]
    for step in range(2, DRAFTS + 1):
        z, load = chain.step(z, ids[:, step: step + short])
        out.append(loss(z, step + 1, token_losses)), loads.append(load)
    return out, run, loads


def balance_loss(c, loads):
    """Pushes down the probability of experts chosen too often; the selection biases stay as they are."""
    chosen, share = torch.stack(loads).unbind(1)
    return c.experts / c.used * (chosen.detach() * share).sum(-1).mean()


def losses(w, c, batch, phase, mode):
    """Every quantity of SHOWN, as one tensor."""
    ids, weight, texts, where = batch
    t = ids.shape[1] - 2
    target, known = ids[:, 1: t + 1], weight[:, 1: t + 1]
    h, run = model.trunk(w, c, ids[:, :t], mode, where=where)
    one, right = COMPILED.get("token_losses", token_losses)(h, w["output.weight"], target)
    zero = torch.zeros_like(one[0, 0])
    drafts, run2, loads = draft_losses(w, c, h, batch, mode) if phase.drafts else ([zero] * DRAFTS, None, [])
    index = model.distillation(run) + model.distillation(run2) if mode == "distill" else zero
    recall = mean(right[texts:].float(), (known[texts:] == 1).float())
    return torch.stack((mean(one[:texts], known[:texts]), mean(one[texts:], known[texts:]), *drafts, index,
                        balance_loss(c, run.loads + loads), sum(run.guided, zero), recall))


def objective(name, values):
    """What a phase minimises."""
    text, lookup, *drafts, index, balance, guide, _ = values
    if name == "index":
        return index
    ahead = NEXTN_WEIGHT / DRAFTS * sum(drafts)
    return text + LOOKUP_WEIGHT * lookup + ahead + index + BALANCE_WEIGHT * balance + GUIDE_WEIGHT * guide


def is_matrix(name):
    """Tensors that Muon updates; the rest (embeddings, head, router, indexer, norms) goes to AdamW."""
    return not any(k in name for k in ("norm", "bias", "token_embd", "ffn_gate_inp", "indexer")) and name != "output.weight"


class Muon:
    """Momentum, orthogonalised per matrix by Newton-Schulz iterations; step size matched to AdamW's."""

    def __init__(self, params):
        self.groups = {}
        for p in params:
            self.groups.setdefault(tuple(p.shape[-2:]), []).append(p)
        self.momentum = {s: [torch.zeros_like(p) for p in ps] for s, ps in self.groups.items()}

    @staticmethod
    def orthogonal(g):
        x = g.bfloat16() if g.is_cuda else g
        flip = x.shape[-2] > x.shape[-1]
        x = x.transpose(-1, -2) if flip else x
        x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(5):
            a = x @ x.transpose(-1, -2)
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return x.transpose(-1, -2) if flip else x

    @torch.no_grad()
    def step(self, lr):
        for shape, ps in self.groups.items():
            ms = self.momentum[shape]
            gs = [torch.zeros_like(p) if p.grad is None else p.grad for p in ps]
            torch._foreach_lerp_(ms, gs, 0.05)
            g = torch.cat([g.reshape(-1, *shape) for g in torch._foreach_lerp(gs, ms, 0.95)])
            u = self.orthogonal(g).float() * (0.2 * max(shape) ** 0.5)
            parts = u.split([p.numel() // (shape[0] * shape[1]) for p in ps])
            torch._foreach_mul_(ps, 1 - lr * DECAY)
            torch._foreach_add_(ps, [d.reshape(p.shape) for p, d in zip(ps, parts)], alpha=-lr)


class Optimizer:
    """Muon for matrices and AdamW for the rest, over the parameters whose names pass `chosen`."""

    def __init__(self, w, chosen):
        self.trained = {k: p for k, p in w.items() if not k.endswith("exp_probs_b.bias") and chosen(k)}
        for k, p in w.items():
            p.requires_grad_(k in self.trained)
            p.grad = None
        matrices = [p for k, p in self.trained.items() if is_matrix(k)]
        rest = [p for k, p in self.trained.items() if not is_matrix(k)]
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(rest, betas=(0.9, 0.95), weight_decay=0.01, fused=rest[0].is_cuda)

    def step(self, lr):
        torch.nn.utils.clip_grad_norm_(list(self.trained.values()), 1.0)
        for g in self.adam.param_groups:
            g["lr"] = lr
        self.muon.step(lr)
        self.adam.step()
        for p in self.trained.values():
            p.grad = None


class Compiler:
    """Compiles what takes the time, piece by piece: a layer is compiled once for each kind, not once for each layer."""
    PARTS = ("routed", "index_scores", "mean_probs", "distill_loss")

    def __init__(self):
        torch._dynamo.config.cache_size_limit = 64
        torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is: slower, same result
        self.layer = model.block, torch.compile(model.block, dynamic=False)
        for name in self.PARTS:
            setattr(model, name, torch.compile(getattr(model, name), dynamic=False))
        COMPILED["token_losses"] = torch.compile(token_losses, dynamic=False)

    def layers(self, whole):
        model.block = self.layer[whole]


class Trainer:
    """Parameters, data and the clock."""

    def __init__(self, w, c, batches, device, deadline):
        self.w, self.c, self.batches, self.device, self.deadline = w, c, batches, device, deadline
        self.compiler = Compiler() if device == "cuda" else None

    def losses(self, phase, mode):
        with torch.autocast("cuda", torch.bfloat16) if self.device == "cuda" else contextlib.nullcontext():
            return losses(self.w, self.c, self.batches.next(phase), phase, mode)

    def prepare(self, name, phase):
        """An optimizer, and everything compiled before the phase's time begins."""
        if self.compiler:
            self.compiler.layers(phase.whole)
        optimizer = Optimizer(self.w, (lambda k: "indexer" in k) if name == "index" else (lambda k: True))
        began = time.time()
        for mode in phase.modes:
            objective(name, self.losses(phase, mode)).backward()
            learning = [k for k, p in optimizer.trained.items() if p.grad is not None]
            print(f"{name} {mode}: {len(learning)} tensors learn, ready after {time.time() - began:.0f} s", flush=True)
            for p in self.w.values():
                p.grad = None
        return optimizer

    def run(self, name, phase, seconds, steps=None):
        """Train one phase until its time (or its number of steps) is up, or look-ups are right often enough."""
        optimizer = self.prepare(name, phase)
        start = said = time.time()
        seconds = min(seconds, self.deadline - start)
        n, recent, recall = 0, {mode: [] for mode in phase.modes}, 0.0
        size = (phase.texts + phase.lookups) * phase.length
        while recall < phase.enough and ((n < steps) if steps else (time.time() - start < seconds)):
            done = n / steps if steps else (time.time() - start) / seconds
            lr = (phase.first + (phase.last - phase.first) * done) * min(1.0, (n + 1) / phase.warm)
            mode = phase.modes[n % len(phase.modes)]
            values = self.losses(phase, mode)
            objective(name, values).backward()
            optimizer.step(lr)
            recent[mode].append(values.detach())
            n += 1
            if n % 100 == 0 or steps:
                recall = self.report(f"{name} {n} {time.time() - start:.0f}s lr {lr:.1e}", recent, size / (time.time() - said))
                said, recent = time.time(), {mode: [] for mode in phase.modes}
        print(f"{name}: {n} steps, {n * size / 1e6:.1f} M tokens, text epoch {self.batches.text.epochs}", flush=True)
        if self.device == "cuda":
            print(f"{name}: {torch.cuda.max_memory_allocated() / 2 ** 30:.0f} GiB at most", flush=True)
        return recall

    @staticmethod
    def report(head, recent, speed):
        """A line for each mode; the share of right look-ups in the first."""
        recall = []
        for mode, rows in recent.items():
            values = dict(zip(SHOWN, torch.stack(rows).mean(0).tolist())) if rows else {}
            recall.append(values.get("recall", 0.0))
            print(f"{head} {speed * sum(map(len, recent.values())) / 1e3:.0f}k tok/s {mode}:",
                  *(f"{k} {v:.4f}" for k, v in values.items() if v), flush=True)
        return recall[0]


def save(path, w):
    torch.save({k: p.detach().float().cpu() for k, p in w.items()}, path)


def tiny():
    """Configuration and phases for a smoke test."""
    c = model.Config(dim=64, q_lora=32, kv_lora=32, nope=16, rope=16, v=16, ffn=64, expert_ffn=32, top_k=32)
    return c, {k: replace(p, texts=p.texts and 2, lookups=2, length=160, most=6) for k, p in PHASES.items()}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data"), ap.add_argument("out")
    ap.add_argument("--plan", default="drill:70,dense:180,index:25,sparse:85")
    ap.add_argument("--init")
    ap.add_argument("--deadline", type=float, default=1e9)
    ap.add_argument("--smoke", action="store_true")
    a = ap.parse_args()
    deadline = time.time() + a.deadline
    os.makedirs(a.out, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() and not a.smoke else "cpu"
    random.seed(3), torch.manual_seed(3)
    c, phases = tiny() if a.smoke else (model.Config(), PHASES)
    w = torch.load(a.init, map_location=device) if a.init else model.init(c, 4, device)
    print(sum(p.numel() for p in w.values()) / 1e6, "M parameters", flush=True)
    tokenizer = os.path.join(a.data, "tokenizer.json")
    trainer = Trainer(w, c, Batches(a.data, vocabulary.load(tokenizer), device), device, deadline)
    for part in a.plan.split(","):
        name, seconds = part.split(":")
        recall = trainer.run(name, phases[name], float(seconds), int(seconds) if a.smoke else None)
        save(os.path.join(a.out, name + ".pt"), w)
        if name == "drill" and recall < DRILLED and not a.smoke:
            raise SystemExit(f"look-ups were not learned: {recall:.2f} right at the end of the drill; give it more time")
    convert.write(os.path.join(a.out, "demo-bf16.gguf"), {k: w[k].detach().float().cpu().numpy() for k in model.shapes(c)}, c,
                  tokenizer, "bf16")


if __name__ == "__main__":
    main()
