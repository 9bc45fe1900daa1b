"""The demo model's tokenizer: byte-level BPE of 4096 entries with GLM's special tokens, trained on the demo's own text."""
import json

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

CONTROL = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>",
           "<|assistant|>", "<|observation|>"]
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<arg_key>",
         "</arg_key>", "<arg_value>", "</arg_value>"]
SPECIALS = CONTROL + MARKS
ROLE_IDS = {"bos": "[gMASK]", "eos": "<|endoftext|>", "eot": "<|user|>", "eom": "<|observation|>",
            "unknown": "<|endoftext|>", "padding": "<|endoftext|>"}
PIECES = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")  # the split of the pre-tokenizer name `glm4`


def train(texts, size):
    """Train on an iterator of texts; ids: ordinary entries first, then the special tokens."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PIECES), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size - len(SPECIALS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(SPECIALS)
    return t


def load(path):
    return Tokenizer.from_file(path)


def tables(path, size):
    """Token texts, token types and merges of a tokenizer.json, as a GGUF file holds them; padded with unused entries."""
    with open(path, encoding="utf-8") as fh:
        j = json.load(fh)
    ids = dict(j["model"]["vocab"])
    ids.update({a["content"]: a["id"] for a in j["added_tokens"]})
    tokens = [None] * len(ids)
    for text, i in ids.items():
        tokens[i] = text
    kind = {**{t: 3 for t in CONTROL}, **{t: 4 for t in MARKS}}
    types = [kind.get(t, 1) for t in tokens]
    spare = size - len(tokens)
    tokens += [f"[unused{i}]" for i in range(spare)]
    types += [5] * spare
    merges = [m if isinstance(m, str) else " ".join(m) for m in j["model"]["merges"]]
    return tokens, types, merges
