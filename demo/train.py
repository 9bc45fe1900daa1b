"""Train the demo model.

usage: train.py DATA OUT [--plan dense:190,index:20,sparse:90] [--init FILE.pt] [--deadline SECONDS] [--smoke]
DATA holds what data.py wrote. A plan is a list of phase:seconds; each phase ends by the clock (compilation not counted),
and its state is saved as OUT/PHASE.pt; the result goes to OUT/demo-bf16.gguf. Rows are 4096 tokens. Phases:
  dense   causal attention, next-token block along with the trunk
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

import numpy as np
import torch
import torch.nn.functional as F

import convert
import model

NEXTN_WEIGHT = 0.3
BALANCE_RATE = 1e-3
DECAY = 0.1
LENGTH = 4096
#         rows, learning rate at start and end, pass modes in turn
PHASES = {"dense": (24, 2e-3, 1e-3, ("dense",)), "index": (6, 3e-3, 1e-3, ("distill",)),
          "sparse": (6, 1e-3, 1e-5, ("sparse", "distill"))}


class Stream:
    """Token rows that begin at document starts; an epoch covers the whole stream, in random order."""

    def __init__(self, path, device, seed):
        a = np.load(path)
        self.ids = torch.from_numpy(a["ids"].astype(np.int16)).to(device)
        self.weight = torch.from_numpy(a["weight"]).to(device)
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
        starts = torch.tensor([self.queue.pop() for _ in range(rows)], device=self.device)
        at = starts[:, None] + torch.arange(length, device=self.device)
        return self.ids[at].long(), self.weight[at].float()


def cross_entropy(logits, target, weight):
    loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), reduction="none")
    weight = weight.flatten()
    return (loss * weight).sum() / weight.sum().clamp(min=1.0)


def losses(w, c, ids, weight, mode):
    """Trunk loss, next-token block's loss, distillation loss, expert loads [blocks, E]. ids [B, T+2]."""
    t = ids.shape[1] - 2
    h, run = model.trunk(w, c, ids[:, :t], mode)
    z, run2 = model.nextn(w, c, h, ids[:, 1: t + 1], "distill" if mode == "distill" else "dense")
    l1 = cross_entropy(model.head(w, h), ids[:, 1: t + 1], weight[:, 1: t + 1])
    l2 = cross_entropy(model.head(w, z), ids[:, 2: t + 2], weight[:, 2: t + 2])
    d = model.distillation(run) + model.distillation(run2) if mode == "distill" else torch.zeros_like(l1)
    return l1, l2, d, torch.stack(run.loads + run2.loads)


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
            for p in ps:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            for p, m in zip(ps, ms):
                m.lerp_(p.grad, 0.05)
            g = torch.cat([p.grad.lerp(m, 0.95).reshape(-1, *shape) for p, m in zip(ps, ms)])
            u = self.orthogonal(g) * (0.2 * max(shape) ** 0.5)
            for p, d in zip(ps, u.split([p.numel() // (shape[0] * shape[1]) for p in ps])):
                p.mul_(1 - lr * DECAY).add_(d.reshape(p.shape).to(p.dtype), alpha=-lr)


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
        self.adam = torch.optim.AdamW(rest, betas=(0.9, 0.95), weight_decay=0.01)

    def step(self, lr):
        torch.nn.utils.clip_grad_norm_(list(self.trained.values()), 1.0)
        for g in self.adam.param_groups:
            g["lr"] = lr
        self.muon.step(lr)
        self.adam.step()
        for p in self.trained.values():
            p.grad = None


@torch.no_grad()
def balance(w, c, loads):
    """Move each router's selection bias toward equal load: the bias is not trained by gradient."""
    for n, load in zip(range(c.dense_layers, c.layers + c.nextn), loads):
        w[f"blk.{n}.exp_probs_b.bias"].add_(BALANCE_RATE * torch.sign(c.used / c.experts - load))


def run_phase(name, seconds, w, c, stream, device, step_fn, deadline, steps=None):
    """Train one phase until its time (or its number of steps) is up."""
    if device == "cuda":
        torch._dynamo.reset()  # a graph compiled while the trunk was frozen has no gradients for it
    rows, first, last, modes = PHASES[name]
    rows, length = (4, 96) if steps else (rows, LENGTH)
    optimizer = Optimizer(w, (lambda k: "indexer" in k) if name == "index" else (lambda k: True))
    autocast = torch.autocast("cuda", torch.bfloat16) if device == "cuda" else contextlib.nullcontext()
    began = time.time()
    for mode in modes:  # compile outside the phase's time
        with autocast:
            sum(step_fn(w, c, *stream.batch(rows, length + 2), mode)[:3]).backward()
        for p in w.values():
            p.grad = None
    print(f"{name}: ready after {time.time() - began:.0f} s", flush=True)
    start = said = time.time()
    seconds = min(seconds, deadline - start)
    n, recent = 0, []
    while (n < steps) if steps else (time.time() - start < seconds):
        done = n / steps if steps else (time.time() - start) / seconds
        lr = (first + (last - first) * done) * min(1.0, (n + 1) / (200 if name == "dense" else 20))
        mode = modes[n % len(modes)]
        ids, weight = stream.batch(rows, length + 2)
        with autocast:
            l1, l2, d, loads = step_fn(w, c, ids, weight, mode)
        (d if name == "index" else l1 + NEXTN_WEIGHT * l2 + d).backward()
        optimizer.step(lr)
        if name != "index":
            balance(w, c, loads)
        recent.append(torch.stack((l1.detach(), l2.detach(), d.detach())))
        n += 1
        if n % 100 == 0 or steps:
            l = torch.stack(recent).mean(0).tolist()
            now = time.time()
            print(f"{name} {n} {now - start:.0f}s lr {lr:.1e} loss {l[0]:.4f} nextn {l[1]:.4f} index {l[2]:.4f} "
                  f"{len(recent) * rows * length / (now - said) / 1e3:.0f}k tok/s epoch {stream.epochs}", flush=True)
            said, recent = now, []
    if device == "cuda":
        print(f"{name}: {torch.cuda.max_memory_allocated() / 2 ** 30:.0f} GiB at most", flush=True)
    print(f"{name}: {n} steps, {n * rows * length / 1e6:.1f} M tokens", flush=True)


def compiled_or_plain(fn):
    """fn compiled; should the compiler fail for a mode, that mode runs as plain PyTorch (slower, same result)."""
    compiled, plain = torch.compile(fn, dynamic=False), set()

    def call(*args):
        if args[-1] not in plain:
            try:
                return compiled(*args)
            except Exception as e:  # noqa: BLE001  any compiler error
                print(f"{args[-1]}: not compiled ({type(e).__name__})", flush=True)
                plain.add(args[-1])
        return fn(*args)
    return call


def save(path, w):
    torch.save({k: p.detach().float().cpu() for k, p in w.items()}, path)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data"), ap.add_argument("out")
    ap.add_argument("--plan", default="dense:190,index:20,sparse:90")
    ap.add_argument("--init")
    ap.add_argument("--deadline", type=float, default=1e9)
    ap.add_argument("--smoke", action="store_true")
    a = ap.parse_args()
    deadline = time.time() + a.deadline
    os.makedirs(a.out, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() and not a.smoke else "cpu"
    random.seed(3), torch.manual_seed(3)
    c = model.Config()
    if a.smoke:
        c = model.Config(dim=64, q_lora=32, kv_lora=32, nope=16, rope=16, v=16, ffn=64, expert_ffn=32, top_k=32)
    w = torch.load(a.init, map_location=device) if a.init else model.init(c, 4, device)
    print(sum(p.numel() for p in w.values()) / 1e6, "M parameters", flush=True)
    stream = Stream(os.path.join(a.data, "train.npz"), device, 5)
    step_fn = compiled_or_plain(losses) if device == "cuda" else losses
    for part in a.plan.split(","):
        name, seconds = part.split(":")
        run_phase(name, float(seconds), w, c, stream, device, step_fn, deadline, int(seconds) if a.smoke else None)
        save(os.path.join(a.out, name + ".pt"), w)
    convert.write(os.path.join(a.out, "demo-bf16.gguf"), {k: w[k].detach().float().cpu().numpy() for k in model.shapes(c)}, c,
                  os.path.join(a.data, "tokenizer.json"), "bf16")


if __name__ == "__main__":
    main()
