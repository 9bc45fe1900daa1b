"""Decode speed of dummy models on a GPU: cuda.py BINARY OUT.json [STARTS]. Median, least and most over process starts."""
import datetime
import json
import statistics
import subprocess
import sys

EXPERTS = ["--recipe", "q4_k-experts"]
GLM5 = ("GLM-5, 3 dense and 4 MoE layers", ["--dummy", "glm-5", "--layers", "7", *EXPERTS])
FLASH = ("GLM-4.7-Flash", ["--dummy", "glm-4.7-flash", *EXPERTS])
LLAMA = ("Llama-3-8B Q4_K_M", ["--dummy", "llama-3-8b", "--recipe", "q4_k_m"])
RANK = ("GLM-5, one rank of eight, 78 layers", ["--dummy", "glm-5", *EXPERTS, "--tp-rank", "0/8"])
# the indexers of some layers serve others
SHARED = ("GLM-5.2, one rank of eight, 78 layers", ["--dummy", "glm-5.2", *EXPERTS, "--tp-rank", "0/8"])
# A shape, and tokens in front.
STREAMS = [(GLM5, [0, 4096, 32768]), (FLASH, [0, 4096, 32768]), (LLAMA, [0]), (RANK, [0]), (SHARED, [0, 65536, 131000])]
# A shape, and rows of a step.
STEPS = [(GLM5, [1, 2, 3, 4]), (RANK, [1, 2, 3, 4])]
# A shape, and tokens of a prompt.
PROMPTS = [(GLM5, [512, 2048]), (FLASH, [512, 2048])]


def measure(binary, flags, prompt, answer, which):
    """Tokens a second, of the prompt or after it, and the commit."""
    command = [binary, "bench", "--device", "cuda", "-p", str(prompt), "-n", str(answer), "--json", *flags]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found["results"][which]["tok_s"], found["commit"]


def cases():
    """What is measured: a name, and what `measure` takes."""
    for (name, flags), depths in STREAMS:
        for depth in depths:
            yield f"{name}, after {depth}", [*flags, "--depth", str(depth)], 1, 128, 1
    for (name, flags), all_rows in STEPS:
        for rows in all_rows:
            yield f"{name}, a step of {rows} rows", flags, rows, 2, 0
    for (name, flags), prompts in PROMPTS:
        for tokens in prompts:
            yield f"{name}, a prompt of {tokens}", flags, tokens, 2, 0


def main():
    binary, out = sys.argv[1:3]
    starts = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card = subprocess.run(query, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
    found = {"card": card, "date": str(datetime.date.today()), "commit": None, "results": []}
    for name, *how in cases():
        rates, commits = zip(*(measure(binary, *how) for _ in range(starts)))
        found["commit"] = commits[0]
        found["results"].append({"name": name, "tok_s": round(statistics.median(rates), 1),
                                 "least": round(min(rates), 1), "most": round(max(rates), 1), "starts": starts})
        print(found["results"][-1], flush=True)
        # what is there is kept if a later one fails
        with open(out, "w") as f:
            json.dump(found, f, indent=1)
            f.write("\n")


main()
