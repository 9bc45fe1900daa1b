#!/usr/bin/env python3
"""make_grids.py: writes grids.bin, the row sets of the six IQ codebooks. Needs `pip install gguf numpy`; run by hand.

The tables are those of ggml (MIT licence), taken from the gguf package. A row is packed as one u16, the index of each
element's value in as few bits as hold it, element 0 lowest; in every grid the packed rows are then strictly ascending.
Order: IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1; little-endian, nothing between. A test checks the digests.
"""
import pathlib

import numpy as np
from gguf import quants

out = b""
for name in ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"):
    cls = getattr(quants, name)
    cls.init_grid()
    rows = np.asarray(cls.grid).reshape(cls.grid_shape).astype(int)
    values = sorted(cls.grid_map)
    bits = 2 if rows.shape[1] == 8 else 3
    index = np.searchsorted(values, rows)
    packed = (index << (bits * np.arange(rows.shape[1]))).sum(1)
    assert (np.diff(packed) > 0).all(), name
    out += packed.astype("<u2").tobytes()
pathlib.Path(__file__).with_name("grids.bin").write_bytes(out)
