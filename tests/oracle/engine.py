"""The binary under test, called as a user calls it, and the tally of what passed."""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np


class Failed(Exception):
    """The binary ended with an error: its exit status and what it said."""

    def __init__(self, status, said, seconds=0.0):
        super().__init__(f"exit {status}: {said.strip()[-400:]}")
        self.status, self.said, self.seconds = status, said, seconds


class Engine:
    """`shardwright` at a path. Every call gets `flags` besides its own."""

    def __init__(self, path, flags=()):
        self.path, self.flags, self.stderr = os.path.abspath(path), list(flags), ""
        self.folder = tempfile.mkdtemp(prefix="shardwright-")

    def call(self, *args, timeout=600, memory=None):
        """Standard output. `memory`: at most so many bytes of address space."""
        limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))) if memory else None
        start = time.monotonic()
        done = subprocess.run([self.path, *map(str, args)], capture_output=True, timeout=timeout, preexec_fn=limit)
        self.stderr = done.stderr.decode("utf-8", "replace")
        if done.returncode:
            raise Failed(done.returncode, self.stderr, time.monotonic() - start)
        return done.stdout.decode("utf-8", "replace")

    def file(self, name):
        return os.path.join(self.folder, name)

    def ids(self, ids):
        path = self.file("ids.txt")
        with open(path, "w") as f:
            f.write(" ".join(map(str, ids)))
        return path

    def logits(self, model, ids, *flags):
        """Float32 [len(ids), vocabulary]."""
        out = self.file("logits.f32")
        self.call("logits", "--model", model, "--ids", self.ids(ids), "--out", out, *self.flags, *flags)
        return np.fromfile(out, "<f4").reshape(len(ids), -1)

    def generate(self, model, ids, n, *flags):
        """`n` greedy ids."""
        out = self.call("generate", "--model", model, "--ids", self.ids(ids), "--n", n, *self.flags, *flags)
        return [int(x) for x in out.splitlines()[-1].split()]


def legal_ranks(engine, model):
    """The counts of ranks that `plan` says this file can be cut for."""
    return json.loads(engine.call("plan", model, "--json"))["legal_ranks"]


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


class Tally:
    """Counts; a check that raises has failed, and the others go on."""

    def __init__(self):
        self.passed = self.failed = 0

    def say(self, good, what, detail=""):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        print(("pass  " if good else "FAIL  ") + what + (f"  {detail}" if detail else ""), flush=True)

    def run(self, what, check):
        """`check()` returns (good, detail)."""
        try:
            self.say(*(lambda r: (r[0], what, r[1]))(check()))
        except Exception as e:
            self.say(False, what, f"{type(e).__name__}: {e}")

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed or not self.passed else 0)
