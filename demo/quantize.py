"""Q4_K, Q5_K and Q6_K encoders in numpy (the gguf package has none): float rows -> packed super-blocks of 256 values.

Scales are found by trying a few candidates per group and refitting each by least squares; then the groups' scales are
rounded to 6 (or 8) bits under one half-precision super-scale and the values are rounded again under the scales that a
reader will really see.
"""
import numpy as np


def _half(x):
    return x.astype(np.float16).astype(np.float32)


def _affine_fit(x, top):
    """x [n,32] -> scale, minimum (both >= 0) with x ~ scale*q - minimum, q in 0..top."""
    weight = np.abs(x) + np.sqrt((x * x).mean(1, keepdims=True))
    lo = np.minimum(x.min(1, keepdims=True), 0.0)
    hi = np.maximum(x.max(1, keepdims=True), lo + 1e-12)
    best = None
    for step in np.linspace(-1.0, 0.8, 19):
        inv = (top + step) / (hi - lo)
        q = np.clip(np.rint(inv * (x - lo)), 0, top)
        sw, sq, sqq = weight.sum(1), (weight * q).sum(1), (weight * q * q).sum(1)
        sx, sxq = (weight * x).sum(1), (weight * x * q).sum(1)
        det = sw * sqq - sq * sq
        safe = np.where(det > 0, det, 1.0)
        scale = np.where(det > 0, (sw * sxq - sx * sq) / safe, 0.0)
        low = np.where(det > 0, (sqq * sx - sq * sxq) / safe, 0.0)
        positive = low > 0
        scale = np.where(positive, sxq / np.maximum(sqq, 1e-30), scale)
        low = np.where(positive, 0.0, low)
        err = (weight * (scale[:, None] * q + low[:, None] - x) ** 2).sum(1)
        if best is None:
            best = [err, scale, low]
        else:
            better = err < best[0]
            best = [np.where(better, new, old) for new, old in zip((err, scale, low), best)]
    return np.maximum(best[1], 0.0), -best[2]


def _pack_scales(sc, mn):
    """Eight 6-bit scales and minima -> 12 bytes."""
    out = np.zeros((sc.shape[0], 12), np.uint8)
    out[:, 0:4] = sc[:, :4] | ((sc[:, 4:] >> 4) << 6)
    out[:, 4:8] = mn[:, :4] | ((mn[:, 4:] >> 4) << 6)
    out[:, 8:12] = (sc[:, 4:] & 15) | ((mn[:, 4:] & 15) << 4)
    return out


def _affine(rows, top):
    """Common part of Q4_K and Q5_K: d, dmin (f16 bytes), packed scales, q [n,8,32]."""
    x = rows.reshape(-1, 8, 32).astype(np.float32)
    n = x.shape[0]
    scale, low = (v.reshape(n, 8) for v in _affine_fit(x.reshape(-1, 32), top))
    d, dmin = _half(scale.max(1) / 63), _half(low.max(1) / 63)
    sc = np.clip(np.rint(scale / np.where(d > 0, d, 1)[:, None]), 0, 63).astype(np.uint8)
    mn = np.clip(np.rint(low / np.where(dmin > 0, dmin, 1)[:, None]), 0, 63).astype(np.uint8)
    a = (d[:, None] * sc)[..., None]
    m = (dmin[:, None] * mn)[..., None]
    q = np.clip(np.rint((x + m) / np.where(a > 0, a, 1)), 0, top).astype(np.uint8)
    f16 = lambda v: v.astype(np.float16).view(np.uint8).reshape(n, 2)
    return f16(d), f16(dmin), _pack_scales(sc, mn), q


def _nibbles(q):
    """[n,8,32] of 0..15 -> [n,128]: even groups in the low half, odd groups in the high half."""
    return (q[:, 0::2] | (q[:, 1::2] << 4)).reshape(q.shape[0], 128)


def q4_k(rows):
    d, dmin, scales, q = _affine(rows, 15)
    return np.concatenate((d, dmin, scales, _nibbles(q)), 1)


def q5_k(rows):
    d, dmin, scales, q = _affine(rows, 31)
    high = (q >> 4) << np.arange(8, dtype=np.uint8)[None, :, None]
    return np.concatenate((d, dmin, scales, np.bitwise_or.reduce(high, 1), _nibbles(q & 15)), 1)


def q6_k(rows):
    x = rows.reshape(-1, 16, 16).astype(np.float32)
    n = x.shape[0]
    peak = np.take_along_axis(x, np.abs(x).argmax(2)[..., None], 2)[..., 0]
    best_err, scale = None, None
    for step in range(-9, 10):
        s = peak / -(32 + 0.1 * step)
        q = np.clip(np.rint(x / np.where(s == 0, 1, s)[..., None]), -32, 31)
        s = (x * q * x * x).sum(2) / np.maximum((q * q * x * x).sum(2), 1e-30)
        err = (x * x * (s[..., None] * q - x) ** 2).sum(2)
        if best_err is None:
            best_err, scale = err, s
        else:
            better = err < best_err
            best_err, scale = np.where(better, err, best_err), np.where(better, s, scale)
    top = np.take_along_axis(scale, np.abs(scale).argmax(1)[:, None], 1)[:, 0]
    d = _half(top / -128)
    sc = np.clip(np.rint(scale / np.where(d == 0, 1, d)[:, None]), -128, 127).astype(np.int8)
    a = (d[:, None] * sc)[..., None]
    q = (np.clip(np.rint(x / np.where(a == 0, 1, a)), -32, 31) + 32).astype(np.uint8).reshape(n, 2, 4, 32)
    low = np.concatenate((q[:, :, 0:2] & 15 | (q[:, :, 2:4] & 15) << 4,), 2).reshape(n, 128)
    high = np.bitwise_or.reduce((q >> 4) << np.array([0, 2, 4, 6], np.uint8)[None, None, :, None], 2).reshape(n, 64)
    return np.concatenate((low, high, sc.view(np.uint8), d.astype(np.float16).view(np.uint8).reshape(n, 2)), 1)


ENCODERS = {"Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k}
