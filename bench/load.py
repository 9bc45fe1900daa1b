"""How fast a file's weights come to a device, and in how much memory: load.py BINARY FILE OUT.json [--device cuda] [--limit GIB].

What the machine gives: the file read to nowhere by eight threads, 4 MiB at a time, from the disk and from the page cache.
What loading takes: `bench` of the file with the kernels' cache warm, from disk and from page cache, and once more from disk in a
memory limit. Beside rates: peak memory, major page faults, the length of reads, how long the log says nothing. Case L1 is answered
under `verdict`. Needs python3 alone, and root for a control group; a large file is made by `shardwright synth`.
"""
import argparse
import datetime
import itertools
import json
import os
import re
import resource
import subprocess
import threading
import time

# Where control groups of memory are, by version, and what their limit and their peak are called.
GROUPS = [("/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup", "memory.max", "memory.peak"),
          ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
           "memory.max_usage_in_bytes")]
PIECE = 4 << 20
THREADS = 8
# Lines of the log: in front of the first weight, and behind the last.
BEGIN, END = re.compile(r"GPU \d+ .* of weights, "), re.compile(r"loaded: ")
STEPS = re.compile(r"loading: ")


def numbers(path):
    """The `name: number` lines of a file below /proc; empty where there is none."""
    try:
        with open(path) as f:
            return {name: int(number) for name, number in re.findall(r"^(\w+):\s*(\d+)", f.read(), re.MULTILINE)}
    except OSError:
        return {}


def counters(pid):
    """What a process has read, and its major page faults."""
    found = {key: numbers(f"/proc/{pid}/io").get(key) for key in ("rchar", "syscr", "read_bytes")}
    try:
        with open(f"/proc/{pid}/stat") as f:
            found["major_faults"] = int(f.read().rsplit(")", 1)[1].split()[9])
    except (OSError, IndexError, ValueError):
        found["major_faults"] = None
    return found


def between(begin, end):
    """What came between two of them, where both were to be had."""
    return {key: None if None in (begin[key], end[key]) else end[key] - begin[key] for key in end}


def drop(path):
    """Takes the file out of the page cache, as far as the system agrees."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path):
    """All of it to nowhere."""
    size, places = os.path.getsize(path), itertools.count()
    fd = os.open(path, os.O_RDONLY)

    def some():
        buffer = memoryview(bytearray(PIECE))
        for n in places:
            if os.preadv(fd, [buffer], n * PIECE) < PIECE:
                return

    threads = [threading.Thread(target=some) for _ in range(THREADS)]
    before, begun = counters("self"), time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    os.close(fd)
    return {"bytes": size, "seconds": seconds, "bytes_s": size / seconds,
            "from_disk": between(before, counters("self"))["read_bytes"]}


class Limit:
    """So many bytes of memory for a process and the files that it reads: a control group, else a limit on its own data."""

    def __init__(self, most):
        self.most, self.folder, self.peak = most, None, None
        try:
            sign, root, limit, peak = next(group for group in GROUPS if os.path.exists(group[0]))
            control = f"{root}/cgroup.subtree_control"
            if os.path.exists(control):
                put(control, "+memory")
            folder = f"{root}/shardwright-load"
            os.makedirs(folder, exist_ok=True)
            put(f"{folder}/{limit}", most)
            if os.path.exists(f"{folder}/memory.swap.max"):
                put(f"{folder}/memory.swap.max", 0)
            self.folder, self.peak = folder, f"{folder}/{peak}"
            self.kind = f"control group ({limit}): the process and the page cache of what it reads"
        except (OSError, StopIteration) as why:
            self.kind = f"RLIMIT_DATA: the process's own data, as there is no control group to be had ({why})"

    def enter(self):
        """In the process, before it becomes the program."""
        if self.folder:
            put(f"{self.folder}/cgroup.procs", os.getpid())
        else:
            resource.setrlimit(resource.RLIMIT_DATA, (self.most, self.most))

    def leave(self):
        """What the group has seen."""
        found = {"kind": self.kind, "bytes": self.most}
        if self.folder:
            if os.path.exists(self.peak):
                with open(self.peak) as f:
                    found["peak"] = int(f.read())
            # the system may take a moment to see that nobody is left
            for _ in range(20):
                try:
                    os.rmdir(self.folder)
                    break
                except OSError:
                    time.sleep(0.1)
        return found


def put(path, value):
    """One write, as control files want it."""
    with open(path, "w") as f:
        f.write(str(value))


def follow(process, seen):
    """Reads the log as it is written; counters where loading begins and ends, and times of the lines between."""
    for line in process.stderr:
        seen["log"].append(line.rstrip())
        now = time.monotonic()
        if BEGIN.search(line) and "begin" not in seen:
            seen["begin"], seen["times"] = counters(process.pid), [now]
        elif "begin" in seen and STEPS.search(line):
            seen["times"].append(now)
        elif "begin" in seen and END.search(line):
            seen["end"] = counters(process.pid)
            seen["times"].append(now)


def run(args, limit=None):
    """One start of the program: what it says of the load, and what it took."""
    command = [args.binary, "bench", args.file, "--device", args.device, "-p", "1", "-n", "1", "-r", "1", "--json"]
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=limit.enter if limit else None)
    seen, out, most = {"log": []}, [], {}
    threads = [threading.Thread(target=follow, args=(process, seen)),
               threading.Thread(target=lambda: out.append(process.stdout.read()))]
    for thread in threads:
        thread.start()
    # the peaks of each kind of memory are nowhere kept, so they are looked at again and again
    while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        status = numbers(f"/proc/{process.pid}/status")
        for name in ("VmHWM", "RssAnon", "RssFile", "RssShmem"):
            most[name] = max(most.get(name, 0), 1024 * status.get(name, 0))
        time.sleep(0.02)
    whole = counters(process.pid)
    for thread in threads:
        thread.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    found = {"seconds_in_all": time.monotonic() - begun, "exit": process.returncode,
             "peak_rss": most.get("VmHWM") or 1024 * usage.ru_maxrss, "peaks": most, "process": whole}
    if limit:
        found["limit"] = limit.leave()
    if process.returncode:
        return {**found, "log": seen["log"][-20:]}
    found["load"] = json.loads(out[0])["load"]
    found["commit"] = json.loads(out[0])["commit"]
    if "end" in seen:
        found["while_loading"] = between(seen["begin"], seen["end"])
        found["longest_silence_s"] = max(b - a for a, b in zip(seen["times"], seen["times"][1:]))
    return found


def verdict(found):
    """The numbers that cases and goals ask for; none where there is nothing to tell."""
    def share(name):
        load = found["load"][name].get("load")
        return load and load["bytes_s"] / found["read"][name]["bytes_s"]

    def over(name):
        load = found["load"][name].get("load")
        return load and load["seconds"] / found["read"][name]["seconds"]

    cold = found["load"]["cold"]
    told = cold.get("while_loading") or cold["process"]
    reads, read_bytes = told["syscr"], told["rchar"]
    return {
        "share_of_disk": share("cold"), "share_of_page_cache": share("warm"), "wanted_share": 0.8,
        "time_over_read_to_nowhere": over("cold"), "wanted_time": 1.5,
        "average_read": read_bytes and reads and read_bytes / reads, "wanted_read": 1 << 20,
        "read_of": "loading" if cold.get("while_loading") else "the whole process",
        "major_faults": told["major_faults"],
        "longest_silence_s": cold.get("longest_silence_s"), "wanted_silence_s": 5,
        "peak_rss": max(run["peak_rss"] for run in found["load"].values()), "wanted_rss": 16_000_000_000,
        "within_the_limit": found["load"]["limited"]["exit"] == 0,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("file")
    parser.add_argument("out")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=float, default=16e9 / (1 << 30), help="GiB, for the last run")
    args = parser.parse_args()
    args.binary = os.path.abspath(args.binary)
    found = {"date": str(datetime.date.today()), "file": os.path.basename(args.file), "device": args.device,
             "bytes": os.path.getsize(args.file), "cores": os.cpu_count(),
             "memory": 1024 * numbers("/proc/meminfo").get("MemTotal", 0), "read": {}, "load": {},
             "verdict": {}}

    def tell(kind, name, value):
        found[kind][name] = value
        print(kind, name, json.dumps(value), flush=True)
        # what is there is kept if a later one fails
        with open(args.out, "w") as f:
            json.dump(found, f, indent=1)
            f.write("\n")

    # compiles kernels where they are not in the cache yet
    print("warm-up", json.dumps(run(args)), flush=True)
    drop(args.file)
    tell("read", "cold", read(args.file))
    tell("read", "warm", min((read(args.file) for _ in range(3)), key=lambda r: r["seconds"]))
    tell("load", "warm", run(args))
    drop(args.file)
    tell("load", "cold", run(args))
    drop(args.file)
    tell("load", "limited", run(args, Limit(int(args.limit * (1 << 30)))))
    for name, value in verdict(found).items():
        tell("verdict", name, value)


if __name__ == "__main__":
    main()
