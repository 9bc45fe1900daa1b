"""The glm-dsa architecture in PyTorch: latent attention, sparse-attention indexer, routed experts, next-token block.

Parameters live in one flat dict under their GGUF names and in GGUF row order, so that a trained dict is written to a
file as it is and any glm-dsa file can be loaded back for a check. Every expert is computed for every token and masked
by its routing weight: wasteful in operations, but it keeps shapes static, and at this size the GPU does not mind.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

NEG = -1e30
BIAS_SPREAD = 0.15  # of the routers' selection biases, which training leaves as they are


@dataclass(frozen=True)
class Config:
    vocab: int = 4096
    dim: int = 256
    layers: int = 5            # trunk, without the next-token block
    dense_layers: int = 1
    heads: int = 8
    q_lora: int = 128
    kv_lora: int = 128
    nope: int = 32
    rope: int = 32
    v: int = 32
    ffn: int = 768
    expert_ffn: int = 512
    experts: int = 8
    used: int = 2
    scale: float = 2.5
    eps: float = 1e-5
    rope_base: float = 10000.0
    index_heads: int = 8
    index_dim: int = 64
    top_k: int = 64
    index_full: tuple = (True, True, False, True, False)
    nextn: int = 1
    context: int = 4096

    @staticmethod
    def from_metadata(m):
        """Configuration of a GGUF file from its metadata (dict of key -> value)."""
        g = lambda k, d=None: m.get("glm-dsa." + k, d)
        nextn = g("nextn_predict_layers", 0)
        trunk = g("block_count") - nextn
        rope = g("rope.dimension_count")
        return Config(
            vocab=g("vocab_size"), dim=g("embedding_length"), layers=trunk,
            dense_layers=g("leading_dense_block_count"), heads=g("attention.head_count"),
            q_lora=g("attention.q_lora_rank"), kv_lora=g("attention.kv_lora_rank"),
            nope=g("attention.key_length_mla") - rope, rope=rope, v=g("attention.value_length_mla"),
            ffn=g("feed_forward_length"), expert_ffn=g("expert_feed_forward_length"), experts=g("expert_count"),
            used=g("expert_used_count"), scale=g("expert_weights_scale"), eps=g("attention.layer_norm_rms_epsilon"),
            rope_base=g("rope.freq_base"), index_heads=g("attention.indexer.head_count"),
            index_dim=g("attention.indexer.key_length"), top_k=g("attention.indexer.top_k"),
            index_full=tuple(bool(x) for x in g("attention.indexer.types", [True] * trunk)), nextn=nextn,
            context=g("context_length"))


def shapes(c):
    """Row-major shape of every tensor, by GGUF name."""
    s = {"token_embd.weight": (c.vocab, c.dim), "output_norm.weight": (c.dim,), "output.weight": (c.vocab, c.dim)}
    for n in range(c.layers + c.nextn):
        b, mtp = f"blk.{n}.", n >= c.layers
        s[b + "attn_norm.weight"] = (c.dim,)
        s[b + "attn_q_a.weight"] = (c.q_lora, c.dim)
        s[b + "attn_q_a_norm.weight"] = (c.q_lora,)
        s[b + "attn_q_b.weight"] = (c.heads * (c.nope + c.rope), c.q_lora)
        s[b + "attn_kv_a_mqa.weight"] = (c.kv_lora + c.rope, c.dim)
        s[b + "attn_kv_a_norm.weight"] = (c.kv_lora,)
        s[b + "attn_k_b.weight"] = (c.heads, c.kv_lora, c.nope)
        s[b + "attn_v_b.weight"] = (c.heads, c.v, c.kv_lora)
        s[b + "attn_output.weight"] = (c.dim, c.heads * c.v)
        if mtp or c.index_full[n]:
            s[b + "indexer.attn_q_b.weight"] = (c.index_heads * c.index_dim, c.q_lora)
            s[b + "indexer.attn_k.weight"] = (c.index_dim, c.dim)
            s[b + "indexer.k_norm.weight"] = (c.index_dim,)
            s[b + "indexer.k_norm.bias"] = (c.index_dim,)
            s[b + "indexer.proj.weight"] = (c.index_heads, c.dim)
        s[b + "ffn_norm.weight"] = (c.dim,)
        if n < c.dense_layers:
            for k in ("gate", "up"):
                s[b + f"ffn_{k}.weight"] = (c.ffn, c.dim)
            s[b + "ffn_down.weight"] = (c.dim, c.ffn)
        else:
            s[b + "ffn_gate_inp.weight"] = (c.experts, c.dim)
            s[b + "exp_probs_b.bias"] = (c.experts,)
            for k in ("gate", "up"):
                s[b + f"ffn_{k}_exps.weight"] = (c.experts, c.expert_ffn, c.dim)
                s[b + f"ffn_{k}_shexp.weight"] = (c.expert_ffn, c.dim)
            s[b + "ffn_down_exps.weight"] = (c.experts, c.dim, c.expert_ffn)
            s[b + "ffn_down_shexp.weight"] = (c.dim, c.expert_ffn)
        if mtp:
            s[b + "nextn.eh_proj.weight"] = (c.dim, 2 * c.dim)
            for k in ("enorm", "hnorm", "shared_head_norm"):
                s[b + f"nextn.{k}.weight"] = (c.dim,)
    return s


def init(c, seed, device):
    """Fresh parameters: norms one, matrices normal with variance 1/fan-in (outputs smaller), selection biases spread evenly."""
    gen = torch.Generator().manual_seed(seed)
    w = {}
    for name, shape in shapes(c).items():
        if name.endswith("exp_probs_b.bias"):
            t = torch.linspace(-BIAS_SPREAD, BIAS_SPREAD, c.experts)[torch.randperm(c.experts, generator=gen)]
        elif name.endswith("bias"):
            t = torch.zeros(shape)
        elif "norm" in name:
            t = torch.ones(shape)
        else:
            fan_in = c.kv_lora if "k_b" in name and "indexer" not in name and "q_b" not in name else shape[-1]
            std = 0.02 if name == "output.weight" else 1.0 / math.sqrt(fan_in)
            if name == "token_embd.weight":
                std = 0.2
            if any(k in name for k in ("attn_output", "ffn_down")):
                std /= math.sqrt(2 * c.layers)
            t = torch.randn(shape, generator=gen) * std
        w[name] = t.to(device)
    return w


def rms(x, weight, eps):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotary(c, positions):
    """cos, sin [T, rope/2] for interleaved rotation."""
    i = torch.arange(0, c.rope, 2, dtype=torch.float64)
    freq = (c.rope_base ** (-i / c.rope)).float().to(positions.device)
    angle = positions.float()[:, None] * freq
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """Rotate neighbouring pairs; x [..., T, rope]."""
    x = x.float()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def causal(t, device):
    return torch.ones(t, t, dtype=torch.bool, device=device).tril()


def attend(q, k, v, allow):
    """q, k [B,H,T,d], v [B,H,T,u]; allow: None (causal) or bool [B,T,T]."""
    if q.is_cuda and torch.is_autocast_enabled():
        q, k = q.to(torch.bfloat16), k.to(torch.bfloat16)
        vp = F.pad(v.to(torch.bfloat16), (0, q.shape[-1] - v.shape[-1]))
        mask = None if allow is None else allow[:, None]
        return F.scaled_dot_product_attention(q, k, vp, attn_mask=mask, is_causal=mask is None)[..., : v.shape[-1]]
    if allow is None:
        allow = causal(q.shape[2], q.device)[None]
    s = torch.matmul(q, k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return torch.matmul(torch.softmax(s.masked_fill(~allow[:, None], float("-inf")), -1), v)


def mean_probs(q, k):
    """Causal attention probabilities, averaged over the heads: what the indexer learns from."""
    s = torch.matmul(q, k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    return torch.softmax(s.masked_fill(~causal(q.shape[2], q.device), float("-inf")), -1).mean(1)


def guidance(q, k, where):
    """How far attention is from where it should look: where [B or 1, G, T, T] says that for the first G heads. Rows that say
    nothing don't count."""
    g = where.shape[1]
    s = torch.matmul(q[:, :g], k[:, :g].transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    s = torch.log_softmax(s.masked_fill(~causal(q.shape[2], q.device), NEG), -1)
    found = torch.logsumexp(s.masked_fill(~where, NEG), -1)
    said = where.any(-1)
    return -(found * said).sum() / said.sum() / (found.numel() / said.numel())


def index_scores(p, c, qr, a, cos, sin):
    """Indexer scores I[query, key], [B,T,T], not masked. p: the indexer's tensors."""
    bs, t, _ = a.shape
    iq = F.linear(qr, p["indexer.attn_q_b.weight"]).view(bs, t, c.index_heads, c.index_dim).transpose(1, 2)
    ik = F.layer_norm(F.linear(a, p["indexer.attn_k.weight"]).float(), (c.index_dim,),
                      p["indexer.k_norm.weight"], p["indexer.k_norm.bias"], 1e-6)
    iq = torch.cat((rotate(iq[..., : c.rope], cos, sin), iq[..., c.rope:].float()), -1)
    ik = torch.cat((rotate(ik[..., : c.rope], cos, sin), ik[..., c.rope:]), -1)
    g = F.linear(a, p["indexer.proj.weight"]) * (c.index_heads * c.index_dim) ** -0.5
    s = torch.relu(torch.matmul(iq, ik[:, None].transpose(-1, -2)))
    return (s * g.transpose(1, 2)[..., None]).sum(1).float()


def select(scores, k, exact):
    """Bool [B,T,T]: for each query the k best keys not after it. exact: ties go to the lower position."""
    t = scores.shape[-1]
    ok = causal(t, scores.device)
    s = scores.detach().masked_fill(~ok, NEG)
    if t <= k:
        return ok[None].expand_as(s)
    if exact:
        idx = torch.sort(s, dim=-1, descending=True, stable=True).indices[..., :k]
    else:
        idx = torch.topk(s, k, -1, sorted=False).indices
    return torch.zeros_like(s, dtype=torch.bool).scatter_(-1, idx, True) & ok


def distill_loss(scores, target):
    """Cross entropy of the indexer's softmax against the head-averaged attention, mean over queries."""
    logp = torch.log_softmax(scores.masked_fill(~causal(scores.shape[-1], scores.device), NEG), -1)
    return -(target * logp).sum(-1).mean()


def swiglu(x, gate, up, down):
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def route(p, c, f):
    """Routing weights [N, E] (zero where not chosen) in float32, the choice, and all experts' share of the probability."""
    with torch.autocast(f.device.type, enabled=False):
        s = torch.sigmoid(F.linear(f.float(), p["ffn_gate_inp.weight"]))
    chosen = torch.topk(s.detach() + p["exp_probs_b.bias"], c.used, -1).indices
    m = torch.zeros_like(s).scatter_(-1, chosen, 1.0)
    r = s * m
    return c.scale * r / r.sum(-1, keepdim=True).clamp(min=2.0 ** -14), m, s / s.sum(-1, keepdim=True)


def routed(x, r, gate, up, down):
    """All experts on all rows, weighted by r [N, E]; gate, up [E, F, D], down [E, D, F]."""
    e, f, d = gate.shape
    h = F.silu(F.linear(x, gate.reshape(-1, d))) * F.linear(x, up.reshape(-1, d))
    h = h.view(-1, e, f) * r.to(h.dtype)[..., None]
    return F.linear(h.reshape(x.shape[0], -1), down.permute(1, 0, 2).reshape(d, -1))


def feed_forward(p, c, f):
    """Dense or routed feed-forward; the second result is None or, by expert, how often it is chosen and its mean share."""
    if "ffn_gate.weight" in p:
        return swiglu(f, *(p[f"ffn_{k}.weight"] for k in ("gate", "up", "down"))), None
    x = f.reshape(-1, f.shape[-1])
    r, m, share = route(p, c, x)
    y = routed(x, r, *(p[f"ffn_{k}_exps.weight"] for k in ("gate", "up", "down")))
    y = y + swiglu(x, *(p[f"ffn_{k}_shexp.weight"] for k in ("gate", "up", "down")))
    return y.view(f.shape), torch.stack((m.mean(0), share.mean(0)))


def attention_inputs(p, c, a, cos, sin):
    """Queries, keys, values [B,H,T,*] in the expanded form, and the normalised query latent."""
    bs, t, _ = a.shape
    qr = rms(F.linear(a, p["attn_q_a.weight"]), p["attn_q_a_norm.weight"], c.eps)
    q = F.linear(qr, p["attn_q_b.weight"]).view(bs, t, c.heads, -1).transpose(1, 2)
    kv = F.linear(a, p["attn_kv_a_mqa.weight"])
    lat = rms(kv[..., : c.kv_lora], p["attn_kv_a_norm.weight"], c.eps)
    kp = rotate(kv[..., c.kv_lora:], cos, sin)
    q = torch.cat((q[..., : c.nope].float(), rotate(q[..., c.nope:], cos, sin)), -1)
    wk = p["attn_k_b.weight"].transpose(1, 2).reshape(-1, c.kv_lora)
    kn = F.linear(lat, wk).view(bs, t, c.heads, c.nope).transpose(1, 2)
    k = torch.cat((kn.float(), kp[:, None].expand(-1, c.heads, -1, -1)), -1)
    v = F.linear(lat, p["attn_v_b.weight"].reshape(-1, c.kv_lora)).view(bs, t, c.heads, c.v).transpose(1, 2)
    return q, k, v, qr


def finish(p, c, x, o):
    """The rest of a layer after attention: output projection and feed-forward, both added to the stream."""
    bs, t, _ = x.shape
    x = x + F.linear(o.transpose(1, 2).reshape(bs, t, -1), p["attn_output.weight"])
    y, load = feed_forward(p, c, rms(x, p["ffn_norm.weight"], c.eps))
    return x + y, load


def block(p, c, x, cos, sin, mode="dense", allow=None, exact=False, where=None):
    """One decoder layer -> stream, expert load, indexer scores, selection, head-mean attention, guidance's loss.

    p holds indexer tensors only for a full layer that is to select keys itself; others use the selection `allow`.
    """
    a = rms(x, p["attn_norm.weight"], c.eps)
    q, k, v, qr = attention_inputs(p, c, a, cos, sin)
    scores = probs = None
    if "indexer.proj.weight" in p:
        with torch.set_grad_enabled(torch.is_grad_enabled() and mode == "distill"):
            own = {n: t for n, t in p.items() if n.startswith("indexer.")}
            scores = index_scores(own, c, qr.detach(), a.detach(), cos, sin)
            allow = select(scores, c.top_k, exact) if mode == "sparse" else None
    if mode == "distill":
        with torch.no_grad():
            probs = mean_probs(q, k)
    guided = None if where is None else guidance(q, k, where)
    x, load = finish(p, c, x, attend(q, k, v, allow))
    return x, load, scores, allow, probs, guided


def draft_block(p, c, x, cos, sin, first, own):
    """The next-token block on its own states: row t sees the first pass's rows up to t, and of later passes only its own row.

    So it is when drafts are made in a chain. first: (keys, values) of the first pass; own: those of the later passes, to which
    this one adds its own.
    """
    q, *kv, _ = attention_inputs(p, c, rms(x, p["attn_norm.weight"], c.eps), cos, sin)
    own.append(kv)
    k, v = first
    s = torch.matmul(q, k.transpose(-1, -2)).masked_fill(~causal(q.shape[2], q.device), float("-inf"))
    s = torch.cat([s] + [(q * ko).sum(-1, keepdim=True) for ko, _ in own], -1) * q.shape[-1] ** -0.5
    s = torch.softmax(s, -1).to(v.dtype)
    o = torch.matmul(s[..., : -len(own)], v)
    for i, (_, vo) in enumerate(own):
        o = o + s[..., i - len(own), None] * vo
    return finish(p, c, x, o)


def parameters(w, n, indexer):
    """Layer n's tensors by short name, with its indexer's or without."""
    b = f"blk.{n}."
    skip = (b + "nextn.",) if indexer else (b + "nextn.", b + "indexer.")
    return {k[len(b):]: t for k, t in w.items() if k.startswith(b) and not k.startswith(skip)}


class Pass:
    """One forward pass: its mode and rotary tables, and what is collected: loads, pairs for distillation, guidance's losses.

    where: by layer number, where its first heads should look (see guidance).
    """

    def __init__(self, mode, cos, sin, exact=False, where=None):
        assert mode in ("dense", "sparse", "distill")
        self.mode, self.cos, self.sin, self.exact, self.where = mode, cos, sin, exact, where or {}
        self.allow, self.loads, self.scores, self.probs, self.guided = None, [], [], [], []

    def layer(self, w, n, c, x, full):
        """Layer n; a full layer selects keys for itself and for the layers after it that are not full."""
        p = parameters(w, n, full and self.mode != "dense")
        x, load, scores, self.allow, probs, guided = block(p, c, x, self.cos, self.sin, self.mode, self.allow, self.exact,
                                                           self.where.get(n))
        if guided is not None:
            self.guided.append(guided)
        if scores is not None:
            self.scores.append(scores), self.probs.append([])
        if probs is not None:
            self.probs[-1].append(probs)
        if load is not None:
            self.loads.append(load)
        return x


def trunk(w, c, ids, mode="dense", exact=False, where=None):
    """Hidden states after the output norm [B,T,D], and the Pass with what was collected on the way."""
    run = Pass(mode, *rotary(c, torch.arange(ids.shape[1], device=ids.device)), exact, where)
    x = F.embedding(ids, w["token_embd.weight"])
    for n in range(c.layers):
        x = run.layer(w, n, c, x, c.index_full[n])
    return rms(x, w["output_norm.weight"], c.eps), run


def nextn_input(w, c, h, next_ids):
    b = f"blk.{c.layers}.nextn."
    e = rms(F.embedding(next_ids, w["token_embd.weight"]), w[b + "enorm.weight"], c.eps)
    return F.linear(torch.cat((e, rms(h, w[b + "hnorm.weight"], c.eps)), -1), w[b + "eh_proj.weight"])


def nextn_output(w, c, z):
    return rms(z, w[f"blk.{c.layers}.nextn.shared_head_norm.weight"], c.eps)


def nextn(w, c, h, next_ids, mode="dense"):
    """Next-token block: row t takes h_t and token t+1 and predicts token t+2. Its normalised state, and its Pass."""
    run = Pass(mode, *rotary(c, torch.arange(1, 1 + h.shape[1], device=h.device)))
    z = run.layer(w, c.layers, c, nextn_input(w, c, h, next_ids), True)
    return nextn_output(w, c, z), run


class Chain:
    """Drafting in a chain: the next-token block again and again on its own states, after a first pass over h."""

    def __init__(self, w, c, h, next_ids):
        self.w, self.c, self.p, self.own = w, c, parameters(w, c.layers, False), []
        a = rms(nextn_input(w, c, h, next_ids), self.p["attn_norm.weight"], c.eps)
        _, *self.first, _ = attention_inputs(self.p, c, a, *rotary(c, torch.arange(1, 1 + h.shape[1], device=h.device)))

    def step(self, m, next_ids):
        """State m of the step before: row t takes token t+2 (then t+3, ...) and predicts the one after. State and load."""
        at = 2 + len(self.own)
        cos, sin = rotary(self.c, torch.arange(at, at + m.shape[1], device=m.device))
        z, load = draft_block(self.p, self.c, nextn_input(self.w, self.c, m, next_ids), cos, sin, self.first, self.own)
        return nextn_output(self.w, self.c, z), load


def distillation(run):
    """Mean distillation loss over the pass's full layers; a shared layer's attention counts for its full layer."""
    per = [distill_loss(s, sum(p) / len(p)) for s, p in zip(run.scores, run.probs)]
    return sum(per) / len(per)


def head(w, h):
    return F.linear(h, w["output.weight"])


