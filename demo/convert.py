"""Trained parameters -> GGUF file, and back: names and metadata of a published glm-dsa file, types of its Q4_K mix.

usage: convert.py IN.gguf TOKENIZER.json OUT.gguf [--type mix|f32|bf16]    (IN: the BF16 original that train.py writes)
"""
import argparse
import json
import os

import gguf
import numpy as np

import model
import quantize
import vocabulary

Q = gguf.GGMLQuantizationType
HERE = os.path.dirname(os.path.abspath(__file__))
FILE_TYPE = {"f32": 0, "bf16": 32, "mix": 15}
DOWN = {1: Q.Q6_K, 2: Q.Q5_K}  # block -> type of its down experts where it is not Q4_K


def pick_type(name, kind, shape):
    """Storage type of a tensor: experts Q4_K (some more), router and norms F32, everything else Q8_0."""
    if len(shape) == 1 or name.endswith(("ffn_gate_inp.weight", "indexer.proj.weight")) or kind == "f32":
        return Q.F32
    if kind == "bf16":
        return Q.BF16
    if name.endswith("_exps.weight"):
        return DOWN.get(int(name.split(".")[1]), Q.Q4_K) if "down" in name else Q.Q4_K
    return Q.Q8_0


def pack(a, q):
    a = np.ascontiguousarray(a, np.float32)
    if q == Q.F32:
        return a
    if q.name in quantize.ENCODERS:
        per = gguf.GGML_QUANT_SIZES[q][1]
        return quantize.ENCODERS[q.name](a.reshape(-1, 256)).reshape(*a.shape[:-1], a.shape[-1] // 256 * per)
    return gguf.quants.quantize(a, q)


def metadata(wr, c, kind, vocab, name):
    """Every key that a reader of this architecture asks for, in the order of published files."""
    u, f = lambda k, v: wr.add_uint32("glm-dsa." + k, int(v)), lambda k, v: wr.add_float32("glm-dsa." + k, float(v))
    wr.add_string("general.type", "model")
    wr.add_string("general.name", name)
    wr.add_string("general.license", "apache-2.0")
    u("block_count", c.layers + c.nextn), u("context_length", c.context), u("embedding_length", c.dim)
    u("feed_forward_length", c.ffn), u("attention.head_count", c.heads), u("attention.head_count_kv", 1)
    f("rope.freq_base", c.rope_base), f("attention.layer_norm_rms_epsilon", c.eps)
    u("expert_count", c.experts), u("expert_used_count", c.used)
    u("expert_group_count", 1), u("expert_group_used_count", 1), u("expert_gating_func", 2)
    wr.add_uint32("general.file_type", FILE_TYPE[kind])
    u("leading_dense_block_count", c.dense_layers), u("vocab_size", c.vocab)
    u("attention.q_lora_rank", c.q_lora), u("attention.kv_lora_rank", c.kv_lora)
    u("attention.key_length", c.kv_lora + c.rope), u("attention.value_length", c.kv_lora)
    u("attention.key_length_mla", c.nope + c.rope), u("attention.value_length_mla", c.v)
    u("expert_feed_forward_length", c.expert_ffn), u("expert_shared_count", 1)
    f("expert_weights_scale", c.scale)
    wr.add_bool("glm-dsa.expert_weights_norm", True)
    u("rope.dimension_count", c.rope), u("nextn_predict_layers", c.nextn)
    u("attention.indexer.head_count", c.index_heads), u("attention.indexer.key_length", c.index_dim)
    u("attention.indexer.top_k", c.top_k)
    wr.add_array("glm-dsa.attention.indexer.types", [bool(x) for x in c.index_full])
    wr.add_uint32("general.quantization_version", 2)
    tokens, types, merges = vocab
    wr.add_string("tokenizer.ggml.model", "gpt2")
    wr.add_string("tokenizer.ggml.pre", "glm4")
    wr.add_array("tokenizer.ggml.tokens", tokens)
    wr.add_array("tokenizer.ggml.token_type", types)
    wr.add_array("tokenizer.ggml.merges", merges)
    for key, text in vocabulary.ROLE_IDS.items():
        wr.add_uint32(f"tokenizer.ggml.{key}_token_id", tokens.index(text))
    with open(os.path.join(HERE, "chat_template.jinja"), encoding="utf-8") as fh:
        wr.add_string("tokenizer.chat_template", fh.read())


def write(path, w, c, tokenizer_json, kind, name="Shardwright demo"):
    """w: GGUF name -> float32 array, in file order."""
    wr = gguf.GGUFWriter(path, "glm-dsa")
    metadata(wr, c, kind, vocabulary.tables(tokenizer_json, c.vocab), name)
    for k, a in w.items():
        q = pick_type(k, kind, a.shape)
        wr.add_tensor(k, pack(a, q), raw_dtype=None if q == Q.F32 else q)
    wr.write_header_to_file()
    wr.write_kv_data_to_file()
    wr.write_tensors_to_file()
    wr.close()


def read(path):
    """GGUF file -> (metadata dict, GGUF name -> dequantized float32 array in row-major shape)."""
    r = gguf.GGUFReader(path)
    meta = {k: f.contents() for k, f in r.fields.items()}
    out = {}
    for t in r.tensors:
        shape = [int(x) for x in reversed(t.shape)]
        a = np.array(t.data) if t.tensor_type == Q.F32 else gguf.quants.dequantize(t.data, t.tensor_type)
        out[t.name] = np.ascontiguousarray(a.astype(np.float32).reshape(shape))
    return meta, out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("source"), ap.add_argument("tokenizer"), ap.add_argument("out")
    ap.add_argument("--type", choices=list(FILE_TYPE), default="mix")
    a = ap.parse_args()
    meta, w = read(a.source)
    write(a.out, w, model.Config.from_metadata(meta), a.tokenizer, a.type)
    print(a.out, os.path.getsize(a.out))


if __name__ == "__main__":
    main()
