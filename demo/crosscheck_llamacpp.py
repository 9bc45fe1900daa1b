"""Perplexity of a model file in llama.cpp, on the documents that evaluate.py and the tests use.

usage: crosscheck_llamacpp.py MODEL.gguf HELDOUT.jsonl [--lines 1-4,201-210,351-360]    (needs llama-cpp-python 0.3.36)

Every document alone, scored from its second token, special tokens parsed; float32 cache, no flash attention. llama.cpp runs
glm-dsa with its sparse attention and has no switch for it. It rounds activations to 8 bits where weights are quantized; a
float32 copy of the same weights (convert.py MODEL.gguf TOKENIZER.json COPY.gguf --type f32) shows the rest of the difference.
"""
import argparse
import ctypes
import json

import llama_cpp as lc
import numpy as np

CONTEXT = 4096
silent = lc.llama_log_callback(lambda level, text, data: None)


class Engine:
    """A model and one context."""

    def __init__(self, path, threads):
        lc.llama_log_set(silent, ctypes.c_void_p(0))
        lc.llama_backend_init()
        params = lc.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = lc.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self.vocab = lc.llama_model_get_vocab(self.model)
        params = lc.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = CONTEXT
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = 0  # float32
        params.flash_attn_type = 0
        self.context = lc.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp makes no context for {path}")

    def tokens(self, text):
        raw = text.encode()
        room = (lc.llama_token * (len(raw) + 16))()
        n = lc.llama_tokenize(self.vocab, raw, len(raw), room, len(room), False, True)
        if n < 0:
            raise SystemExit("llama.cpp cannot cut a document into tokens")
        return list(room[:n])

    def logits(self, ids):
        """Logits after every token, in a fresh context."""
        lc.llama_memory_clear(lc.llama_get_memory(self.context), True)
        batch = lc.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, t in enumerate(ids):
            batch.token[i], batch.pos[i], batch.logits[i] = t, i, 1
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        code = lc.llama_decode(self.context, batch)
        lc.llama_batch_free(batch)
        if code != 0:
            raise SystemExit(f"llama_decode failed with {code}")
        size = lc.llama_vocab_n_tokens(self.vocab)
        return np.ctypeslib.as_array(lc.llama_get_logits(self.context), (len(ids) * size,)).reshape(-1, size).astype(np.float64)


def losses(logits, ids):
    """Negative log-likelihood of each token after the first."""
    x = logits[:-1] - logits[:-1].max(-1, keepdims=True)
    return np.log(np.exp(x).sum(-1)) - x[np.arange(len(ids) - 1), ids[1:]]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model"), ap.add_argument("heldout")
    ap.add_argument("--lines", default="1-500")
    ap.add_argument("--threads", type=int, default=2)
    a = ap.parse_args()
    with open(a.heldout, encoding="utf-8") as fh:
        texts = [json.loads(line)["text"] for line in fh]
    chosen = [n - 1 for part in a.lines.split(",") for n in range(int(part.split("-")[0]), int(part.split("-")[1]) + 1)]
    engine, found = Engine(a.model, a.threads), []
    for n in chosen:
        ids = engine.tokens(texts[n])
        found.append(losses(engine.logits(ids), ids))
    found = np.concatenate(found)
    print(f"llama-cpp-python {lc.__version__}: perplexity {np.exp(found.mean()):.6f} over {len(found)} tokens")


if __name__ == "__main__":
    main()
