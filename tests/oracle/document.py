"""The document of cases: fenced blocks that build the files, and how a case is asked of the binary and counted."""
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from engine import Engine, Tally

MIB = 1 << 20
# A child's peak memory starts at that of the process it was forked from, hence a small one between it and us.
MEASURE = """
import json, os, sys, time
start = time.monotonic()
_, status, usage = os.wait4(os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ), 0)
took = time.monotonic() - start
with open(sys.argv[1], "w") as f:
    json.dump([os.waitstatus_to_exitcode(status), took, usage.ru_maxrss * 1024], f)
"""


class Cases:
    """The blocks of the document in a folder of their own, the binary and the tally."""

    def __init__(self, binary, document):
        with open(document) as f:
            self.blocks = dict(re.findall(r"```python (\S+)\n(.*?)```", f.read(), re.S))
        self.folder = tempfile.mkdtemp(prefix="cases-")
        self.engine, self.tally = Engine(binary), Tally()
        os.chdir(self.folder)
        sys.path.insert(0, self.folder)
        for name, code in self.blocks.items():
            with open(name if name.endswith(".py") else f"{name}.py", "w") as f:
                f.write(code)

    def build(self, case):
        """Runs a case's own block; what it defines."""
        space = {}
        exec(self.blocks[case], space)
        return space

    def maker(self, module, name):
        """A function of the document's modules."""
        return getattr(importlib.import_module(module), name)

    def same(self, name, get, want):
        """What comes must be equal to this."""
        def check():
            got = get()
            return got == want, "" if got == want else f"{got!r}, expected {want!r}"
        self.tally.run(name, check)

    def refused(self, name, args, says, seconds=1.0, memory=100 * MIB):
        """An exit status of 1, one line that says all of `says`, in time and within the memory."""
        self.tally.run(name, lambda: self.refusal(args, says, seconds, memory))

    def refusal(self, args, says, seconds, memory):
        report = os.path.abspath("report")
        measure = [sys.executable, "-S", "-c", MEASURE, report, self.engine.path, *map(str, args)]
        said = subprocess.run(measure, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).stderr.decode("utf-8", "replace")
        with open(report) as f:
            status, took, peak = json.load(f)
        errors = [line for line in said.splitlines() if not line.startswith(("note:", "warning:"))]
        good = status == 1 and len(errors) == 1 and "internal error" not in said
        good &= all(s.lower() in said.lower() for s in says) and took <= seconds and peak <= memory
        return good, f"exit {status}, {took:.2f} s, {peak // MIB} MiB: {said.strip()[:200]}"


def run(cases, functions, names):
    """All cases, or those named; each by a function of its name."""
    known = {f.__name__.upper(): f for f in functions}
    for name in names or known:
        start = time.monotonic()
        try:
            known[name](cases)
        except (Exception, SystemExit) as e:
            cases.tally.say(False, name, f"{type(e).__name__}: {e}")
        print(f"      {name} took {time.monotonic() - start:.1f} s", flush=True)
    cases.tally.end()
