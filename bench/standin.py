"""One card in the place of eight: standin.py BINARY OUT.json [TB/S [US,... [MULTIPROCESSORS]]].

A rank of eight of GLM-5 with all its layers, on so few multiprocessors that its weights go by at about so many terabytes a second, with
so many microseconds in the place of each sum over ranks. `plan` predicts each step before any is run; then they are measured.
"""
import datetime
import json
import statistics
import subprocess
import sys

RECIPE = "q4_k-experts"
RANKS = 8
# A prompt of one token, and those after it, whose rate counts.
TOKENS = 128
# What a sum may take: NVLink, PCIe within a switch and across, the host's memory, and as found where nobody looked after it. 0: none.
TIMES = [0, 2, 8, 11, 14, 30, 135]
# The driver parts multiprocessors by so many.
STEP = 8


def ask(binary, *flags):
    """What a command says as JSON."""
    return json.loads(subprocess.run([binary, *flags, "--json"], check=True, stdout=subprocess.PIPE).stdout)


def read(binary, part):
    """How fast the card's memory is read by so many of its multiprocessors, or by all."""
    flags = [] if part is None else ["--multiprocessors", str(part)]
    found = ask(binary, "bench", "--read", "--device", "cuda", *flags)["results"][0]
    print(f"{found['multiprocessors']} multiprocessors read {found['bytes_s'] / 1e12:.3f} TB/s", flush=True)
    return found


def sized(binary, wanted, whole):
    """The part on which the step's bytes take as long as at the wanted speed, as `plan` says it, and all that were tried."""
    tried = []
    for part in range(STEP, whole["multiprocessors"], STEP):
        tried.append(read(binary, part))
        step = predict(binary, tried[-1], 0)
        tried[-1]["step_bytes_s"] = step["bytes"] / (step["reading_us"] + step["computing_us"]) * 1e6
        print(f"the step reads {tried[-1]['step_bytes_s'] / 1e12:.3f} TB/s of them", flush=True)
        if tried[-1]["step_bytes_s"] > wanted:
            break
    return min(tried, key=lambda found: abs(found["step_bytes_s"] - wanted)), tried


def predict(binary, card, us):
    """What `plan` says of the step."""
    flags = ["--bandwidth", str(int(card["bytes_s"])), "--multiprocessors", str(card["multiprocessors"])]
    return ask(binary, "plan", "--like-preset", f"glm-5:{RECIPE}", "--tp", str(RANKS), "-c", str(TOKENS + 1),
               "--exchange-us", str(us), *flags)["prediction"]


def measure(binary, card, us):
    """Tokens a second of the step: median, least and most, and the commit."""
    found = ask(binary, "bench", "--dummy", "glm-5", "--recipe", RECIPE, "--tp-rank", f"0/{RANKS}", "--device", "cuda",
                "-p", "1", "-n", str(TOKENS), "--multiprocessors", str(card["multiprocessors"]), "--exchange-us", str(us))
    return found["results"][1], found["commit"]


def keep(path, found):
    """What is there is kept if something later fails."""
    with open(path, "w") as f:
        json.dump(found, f, indent=1)
        f.write("\n")


def main():
    binary, out = sys.argv[1:3]
    wanted = float(sys.argv[3]) * 1e12 if len(sys.argv) > 3 else 1.5e12
    times = [float(us) for us in sys.argv[4].split(",")] if len(sys.argv) > 4 else TIMES
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name = subprocess.run(query, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
    whole = read(binary, None)
    part, tried = sized(binary, wanted, whole) if len(sys.argv) < 6 else (read(binary, int(sys.argv[5])), [])
    cases = [(whole, 0), *((part, us) for us in times)]
    found = {"card": name, "date": str(datetime.date.today()), "commit": None, "whole": whole, "part": part,
             "tried": tried, "results": []}
    for card, us in cases:
        predicted = predict(binary, card, us)
        print(f"{card['multiprocessors']} multiprocessors, {us} us a sum: {predicted['us']:.0f} us predicted", flush=True)
        found["results"].append({"multiprocessors": card["multiprocessors"], "exchange_us": us, "predicted": predicted})
    keep(out, found)
    for (card, us), result in zip(cases, found["results"]):
        result["measured"], found["commit"] = measure(binary, card, us)
        step = 1e6 / result["measured"]["tok_s"]
        result["measured_us"], result["off"] = round(step, 1), round(result["predicted"]["us"] / step - 1, 4)
        print(f"{card['multiprocessors']} multiprocessors, {us} us a sum: {step:.0f} us, {result['measured']['tok_s']:.1f} tok/s; "
              f"predicted {result['predicted']['us']:.0f} us, {100 * result['off']:+.1f} %", flush=True)
        keep(out, found)
    offs = [abs(result["off"]) for result in found["results"]]
    print(f"off by {100 * max(offs):.1f} % at most, {100 * statistics.median(offs):.1f} % in the middle")


main()
