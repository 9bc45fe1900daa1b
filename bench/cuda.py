"""Decode speed of dummy models on a GPU: cuda.py BINARY OUT.json [STARTS]. Median, least and most over process starts."""
import datetime
import json
import statistics
import subprocess
import sys

EXPERTS = ["--recipe", "q4_k-experts"]
CASES = [
    ("GLM-5, 3 dense and 4 MoE layers", ["--dummy", "glm-5", "--layers", "7", *EXPERTS], [0, 4096, 32768]),
    ("GLM-4.7-Flash", ["--dummy", "glm-4.7-flash", *EXPERTS], [0, 4096, 32768]),
    ("Llama-3-8B Q4_K_M", ["--dummy", "llama-3-8b", "--recipe", "q4_k_m"], [0]),
]


def measure(binary, flags, depth):
    """Tokens a second after a prompt of one token at a depth, and the commit."""
    command = [binary, "bench", "--device", "cuda", "-p", "1", "-n", "128", "--json", *flags, "--depth", str(depth)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found["results"][1]["tok_s"], found["commit"]


def main():
    binary, out = sys.argv[1:3]
    starts = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card = subprocess.run(query, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
    results = []
    for name, flags, depths in CASES:
        for depth in depths:
            rates, commits = zip(*(measure(binary, flags, depth) for _ in range(starts)))
            results.append({"name": f"{name}, after {depth}", "tok_s": round(statistics.median(rates), 1),
                            "least": round(min(rates), 1), "most": round(max(rates), 1), "starts": starts})
            print(results[-1], flush=True)
    found = {"card": card, "date": str(datetime.date.today()), "commit": commits[0], "results": results}
    with open(out, "w") as f:
        json.dump(found, f, indent=1)
        f.write("\n")


main()
