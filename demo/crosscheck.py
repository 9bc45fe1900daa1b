"""Check model.py against recorded reference logits: crosscheck.py MODEL.gguf GOLDEN.npz [GOLDEN-mtp.npz]

GOLDEN.npz holds, per prompt pK, `pK_ids`, `pK_logit_pos`, `pK_logits` and `pK_dense_logits` computed by other programs from
the same file. A pass proves the formulas here and the names and row order that the converter writes.
"""
import sys

import numpy as np
import torch

import convert
import model


def worst(w, c, ids, pos, want, mode):
    h, _ = model.trunk(w, c, torch.tensor(ids)[None].long(), mode, exact=True)
    return float(np.abs(model.head(w, h)[0, pos].numpy() - want).max())


def main():
    torch.set_grad_enabled(False)
    meta, tensors = convert.read(sys.argv[1])
    c = model.Config.from_metadata(meta)
    w = {k: torch.from_numpy(v) for k, v in tensors.items()}
    extra = set(w) ^ set(model.shapes(c))
    assert not extra, f"tensor names differ: {sorted(extra)}"
    g = np.load(sys.argv[2])
    bad = 0
    for p in ("p0_", "p1_", "p2_"):
        pos = g[p + "logit_pos"]
        s = worst(w, c, g[p + "ids"], pos, g[p + "logits"], "sparse")
        d = worst(w, c, g[p + "ids"], pos, g[p + "dense_logits"], "dense")
        print(f"{p} sparse {s:.2e} dense {d:.2e}")
        bad += max(s, d) > 5e-4
    if len(sys.argv) > 3:
        m = np.load(sys.argv[3])
        ids = torch.tensor(m["ids"])[None].long()
        h, _ = model.trunk(w, c, ids, "sparse", exact=True)
        z, _ = model.nextn(w, c, h[:, :-1], ids[:, 1:])
        e = float(np.abs(model.head(w, z)[0, m["pos"]].numpy() - m["logits"]).max())
        print(f"next-token block {e:.2e}")
        bad += e > 5e-4
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
