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
    """Fresh parameters: norms one, biases zero, matrices normal with variance 1/fan-in (outputs smaller)."""
    gen = torch.Generator().manual_seed(seed)
    w = {}
    for name, shape in shapes(c).items():
        if name.endswith("bias"):
            t = torch.zeros(shape)
        elif "norm" in name:
            t = torch.ones(shape)
        else:
            fan_in = c.kv_lora if "k_b" in name and "indexer" not in name and "q_b" not in name else shape[-1]
            std = 0.02 if name == "output.weight" else 1.0 / math.sqrt(fan_in)
            if name == "token_embd.weight":
                std = 0.5
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


def attend(q, k, v, allow, want):
    """q, k [B,H,T,d], v [B,H,T,u]; allow: None (causal) or bool [B,T,T]. Returns output and, if wanted, mean-head probs."""
    scale = q.shape[-1] ** -0.5
    if allow is None and not want and q.is_cuda and torch.is_autocast_enabled():
        q, k = q.to(torch.bfloat16), k.to(torch.bfloat16)
        vp = F.pad(v.to(torch.bfloat16), (0, q.shape[-1] - v.shape[-1]))
        return F.scaled_dot_product_attention(q, k, vp, is_causal=True)[..., : v.shape[-1]], None
    if allow is None:
        allow = causal(q.shape[2], q.device)[None]
    s = torch.matmul(q, k.transpose(-1, -2)) * scale
    p = torch.softmax(s.masked_fill(~allow[:, None], float("-inf")), -1)
    return torch.matmul(p.to(v.dtype), v), (p.detach().mean(1) if want else None)


def index_scores(w, b, c, qr, a, cos, sin):
    """Indexer scores I[query, key], [B,T,T], not masked. Works on detached inputs: only the indexer learns from it."""
    bs, t, _ = a.shape
    qr, a = qr.detach(), a.detach()
    iq = F.linear(qr, w[b + "indexer.attn_q_b.weight"]).view(bs, t, c.index_heads, c.index_dim).transpose(1, 2)
    ik = F.layer_norm(F.linear(a, w[b + "indexer.attn_k.weight"]).float(), (c.index_dim,),
                      w[b + "indexer.k_norm.weight"], w[b + "indexer.k_norm.bias"], 1e-6)
    iq = torch.cat((rotate(iq[..., : c.rope], cos, sin), iq[..., c.rope:].float()), -1)
    ik = torch.cat((rotate(ik[..., : c.rope], cos, sin), ik[..., c.rope:]), -1)
    g = F.linear(a, w[b + "indexer.proj.weight"]) * (c.index_heads * c.index_dim) ** -0.5
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


def route(w, b, c, f):
    """Routing weights [N, E] (zero where not chosen) in float32."""
    with torch.autocast(f.device.type, enabled=False):
        p = torch.sigmoid(F.linear(f.float(), w[b + "ffn_gate_inp.weight"]))
    chosen = torch.topk(p.detach() + w[b + "exp_probs_b.bias"], c.used, -1).indices
    m = torch.zeros_like(p).scatter_(-1, chosen, 1.0)
    p = p * m
    return c.scale * p / p.sum(-1, keepdim=True).clamp(min=2.0 ** -14), m


def feed_forward(w, b, c, f):
    """Dense or routed feed-forward; second result is the expert load [E] or None."""
    if b + "ffn_gate.weight" in w:
        return swiglu(f, w[b + "ffn_gate.weight"], w[b + "ffn_up.weight"], w[b + "ffn_down.weight"]), None
    bs, t, d = f.shape
    x = f.reshape(-1, d)
    r, m = route(w, b, c, x)
    gate = w[b + "ffn_gate_exps.weight"].reshape(-1, d)
    up = w[b + "ffn_up_exps.weight"].reshape(-1, d)
    down = w[b + "ffn_down_exps.weight"].permute(1, 0, 2).reshape(d, -1)
    h = F.silu(F.linear(x, gate)) * F.linear(x, up)
    h = h.view(-1, c.experts, c.expert_ffn) * r.to(h.dtype)[..., None]
    y = F.linear(h.reshape(x.shape[0], -1), down)
    y = y + swiglu(x, w[b + "ffn_gate_shexp.weight"], w[b + "ffn_up_shexp.weight"], w[b + "ffn_down_shexp.weight"])
    return y.view(bs, t, d), m.mean(0)


class Pass:
    """What one forward pass needs and collects: mode, rotary tables, current selection, loads, distillation pairs."""

    def __init__(self, mode, cos, sin, exact=False):
        assert mode in ("dense", "sparse", "distill")
        self.mode, self.cos, self.sin, self.exact = mode, cos, sin, exact
        self.allow, self.loads, self.scores, self.probs = None, [], [], []


def block(w, n, c, x, run, own_index):
    """One decoder layer. own_index: a full layer, which selects keys itself; others reuse the last selection."""
    b = f"blk.{n}."
    bs, t, _ = x.shape
    a = rms(x, w[b + "attn_norm.weight"], c.eps)
    qr = rms(F.linear(a, w[b + "attn_q_a.weight"]), w[b + "attn_q_a_norm.weight"], c.eps)
    q = F.linear(qr, w[b + "attn_q_b.weight"]).view(bs, t, c.heads, -1).transpose(1, 2)
    kv = F.linear(a, w[b + "attn_kv_a_mqa.weight"])
    lat = rms(kv[..., : c.kv_lora], w[b + "attn_kv_a_norm.weight"], c.eps)
    kp = rotate(kv[..., c.kv_lora:], run.cos, run.sin)
    q = torch.cat((q[..., : c.nope].float(), rotate(q[..., c.nope:], run.cos, run.sin)), -1)
    wk = w[b + "attn_k_b.weight"].transpose(1, 2).reshape(-1, c.kv_lora)
    kn = F.linear(lat, wk).view(bs, t, c.heads, c.nope).transpose(1, 2)
    k = torch.cat((kn.float(), kp[:, None].expand(-1, c.heads, -1, -1)), -1)
    v = F.linear(lat, w[b + "attn_v_b.weight"].reshape(-1, c.kv_lora)).view(bs, t, c.heads, c.v).transpose(1, 2)
    if own_index and run.mode != "dense":
        s = index_scores(w, b, c, qr, a, run.cos, run.sin)
        run.scores.append(s)
        run.allow = select(s, c.top_k, run.exact) if run.mode == "sparse" else None
        run.probs.append([])
    o, p = attend(q, k, v, run.allow, run.mode == "distill")
    if p is not None:
        run.probs[-1].append(p)
    x = x + F.linear(o.transpose(1, 2).reshape(bs, t, -1), w[b + "attn_output.weight"])
    y, load = feed_forward(w, b, c, rms(x, w[b + "ffn_norm.weight"], c.eps))
    if load is not None:
        run.loads.append(load)
    return x + y


def trunk(w, c, ids, mode="dense", exact=False):
    """Hidden states after the output norm [B,T,D], and the Pass with what was collected on the way."""
    run = Pass(mode, *rotary(c, torch.arange(ids.shape[1], device=ids.device)), exact)
    x = F.embedding(ids, w["token_embd.weight"])
    for n in range(c.layers):
        x = block(w, n, c, x, run, c.index_full[n])
    return rms(x, w["output_norm.weight"], c.eps), run


def nextn(w, c, h, next_ids, mode="dense", first=1):
    """Next-token block: row t takes h_t and token t+1 and predicts token t+2. Returns its normalised state and Pass."""
    b = f"blk.{c.layers}."
    run = Pass(mode, *rotary(c, torch.arange(first, first + h.shape[1], device=h.device)))
    e = rms(F.embedding(next_ids, w["token_embd.weight"]), w[b + "nextn.enorm.weight"], c.eps)
    g = rms(h, w[b + "nextn.hnorm.weight"], c.eps)
    z = F.linear(torch.cat((e, g), -1), w[b + "nextn.eh_proj.weight"])
    z = block(w, c.layers, c, z, run, True)
    return rms(z, w[b + "nextn.shared_head_norm.weight"], c.eps), run


def distillation(run):
    """Mean distillation loss over the pass's full layers; a shared layer's attention counts for its full layer."""
    per = [distill_loss(s, torch.stack(p).mean(0)) for s, p in zip(run.scores, run.probs)]
    return torch.stack(per).mean()


def head(w, h):
    return F.linear(h, w["output.weight"])


