"""Everything the model is trained on -> token arrays.

usage: data.py clean RAW.jsonl ANSWERS.jsonl.xz     keep the teacher's usable answers
       data.py build ANSWERS.jsonl.xz OUTDIR [--size 1.0]
`build` writes tokenizer.json, heldout.jsonl, and train.npz with the arrays ids (uint16) and start (int64, where each
document begins). Look-up records are not among them: records.py makes those while the model trains.
"""
import argparse
import json
import lzma
import multiprocessing
import os
import random
import re

import numpy as np

import knowledge
import stories
import synthetic
import vocabulary

BAD = re.compile(r"[^\x20-\x7e]|\*|#|http|SmolLM|language model|\bAI\b|<\||\[|\]|\d\.|:|\bI\b|\bI'|\b[Mm]y\b|misunderstanding")
BAD_ASK = re.compile(r"\ban? (water|money|honey|bread|cheese|milk|rice|sugar|salt|ice|snow|rain|wind|music|sleep|light|fire|"
                     r"autumn|spring|summer|winter|soup|family|color|sound|paper|sun|moon|earth)\b")
HELD_OUT = {"story": 200, "chat": 150, "answer": 150}  # documents of each kind kept from training
CHUNK = 2000         # documents made from one seed
SYSTEM = "You are a helpful assistant."


def usable(row):
    """A finished answer of the teacher as it may be used, or None: short ASCII prose that does not go in circles."""
    r = json.loads(row)
    text = r["text"].strip()
    words = text.split()
    if BAD.search(text) or BAD_ASK.search(r["ask"]) or not 4 <= len(words) <= 45:
        return None
    if text[-1] not in ".!?" or not text[0].isupper():
        return None
    tri = list(zip(words, words[1:], words[2:]))
    if len(set(tri)) < 0.97 * len(tri) or len(set(w.lower() for w in words)) < 0.6 * len(words):
        return None
    return r["ask"], text


def clean(raw, out):
    with open(raw, encoding="utf-8") as fh:
        rows = list(fh)
    seen = dict.fromkeys(x for x in map(usable, rows) if x)
    with lzma.open(out, "wt", preset=9) as fh:
        for ask, text in sorted(seen):
            fh.write(json.dumps({"ask": ask, "text": text}) + "\n")
    print(f"{len(rows)} answers, {len(seen)} kept")


def load_answers(path):
    with lzma.open(path, "rt") as fh:
        pairs = [(r["ask"], r["text"]) for r in map(json.loads, fh)]
    random.Random(1).shuffle(pairs)
    return pairs


def conversation(rng, pairs):
    """Some question-answer pairs as one chat, sometimes with a system text, often with a thought before the last answer."""
    thought = synthetic.think_about(pairs[-1][0]) if rng.random() < 0.4 else None
    return synthetic.chat(pairs, SYSTEM if rng.random() < 0.2 else None, thought)


def story(rng):
    return ("[gMASK]<sop>" if rng.random() < 0.5 else "") + stories.story(rng)[0] + "<|endoftext|>"


def story_chat(rng):
    text, slots = stories.story(rng)
    return conversation(rng, [(stories.request(rng, slots), text)])


def small_talk(rng):
    """One to four questions with sure answers."""
    make = lambda: knowledge.ask(rng) if rng.random() < 0.5 else synthetic.fact(rng)
    return conversation(rng, [make() for _ in range(rng.choice([1, 1, 2, 3, 4]))])


MAKERS = {"story": story, "story_chat": story_chat, "small_talk": small_talk, "tools": synthetic.tool_use,
          "lookup": lambda rng: synthetic.lookup(rng, 60, 4)}
COUNTS = {"story": 90000, "story_chat": 25000, "small_talk": 40000, "tools": 8000}


def make(job):
    kind, seed, count = job
    rng = random.Random(seed)
    return [MAKERS[kind](rng) for _ in range(count)]


def documents(pool, counts, first_seed, size):
    """Documents of every kind, made in parallel; the seeds alone decide what they are."""
    jobs = []
    for kind, count in counts.items():
        count = int(count * size)
        jobs += [(kind, first_seed + len(jobs) + i, min(CHUNK, count - lo)) for i, lo in enumerate(range(0, count, CHUNK))]
    return [d for part in pool.map(make, jobs, chunksize=1) for d in part]


def teacher_chats(rng, pairs):
    out, i = [], 0
    while i < len(pairs):
        n = rng.choice([1, 1, 1, 2, 3])
        out.append(conversation(rng, pairs[i: i + n]))
        i += n
    return out


def held_out(pairs):
    """Documents that training never sees: other seeds, and teacher answers set aside."""
    rng = random.Random(10 ** 9)
    rows = [("story", stories.story(rng)[0] + "<|endoftext|>") for _ in range(HELD_OUT["story"])]
    rows += [("chat", small_talk(rng)) for _ in range(HELD_OUT["chat"])]
    return rows + [("answer", synthetic.chat([p])) for p in pairs[: HELD_OUT["answer"]]]


def encode(tok, docs):
    """Flat ids, and where each document begins."""
    ids, starts, at = [], [], 0
    for lo in range(0, len(docs), 20000):
        for e in tok.encode_batch_fast(docs[lo: lo + 20000]):
            ids.append(np.array(e.ids, np.uint16)), starts.append(at)
            at += len(e.ids)
    return {"ids": np.concatenate(ids), "start": np.array(starts, np.int64)}


def build(answers, out, size):
    os.makedirs(out, exist_ok=True)
    pairs = load_answers(answers)
    with open(os.path.join(out, "heldout.jsonl"), "w") as fh:
        for kind, text in held_out(pairs):
            fh.write(json.dumps({"kind": kind, "text": text}) + "\n")
    pairs = pairs[HELD_OUT["answer"]:]
    rng = random.Random(2)
    with multiprocessing.Pool() as pool:
        docs = documents(pool, COUNTS, 10 ** 6, size)
        lists = documents(pool, {"lookup": 2000}, 2 * 10 ** 6, 1)
    docs += teacher_chats(rng, pairs)
    rng.shuffle(docs)
    tok = vocabulary.train(docs[:60000] + lists, 4096)  # the lists for their words only: training makes its own
    tok.save(os.path.join(out, "tokenizer.json"))
    a = encode(tok, docs)
    np.savez(os.path.join(out, "train.npz"), **a)
    print(f"{len(a['start'])} documents, {len(a['ids']) / 1e6:.1f} M tokens", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("what", choices=["clean", "build"])
    ap.add_argument("source"), ap.add_argument("out")
    ap.add_argument("--size", type=float, default=1.0, help="part of the documents to make")
    a = ap.parse_args()
    clean(a.source, a.out) if a.what == "clean" else build(a.source, a.out, a.size)


if __name__ == "__main__":
    main()
