"""Cases of streaming and sampling: S1 to S6."""
import collections
import json
import random

from served_client import CHAT, TEXT, asked, at_once, serve

PIECES = ["The quick br", "own f", "ox jumps", " over"]
FULL = "".join(PIECES)
# stop, max_tokens, the text, how it ends
STOPS = [
    (["own fox"], None, "The quick br", "stop"),
    ("own fox", None, "The quick br", "stop"),
    (["fox j"], None, "The quick brown ", "stop"),
    (["ox jumps over!"], None, FULL, "stop"),
    (["own fox"], 2, "The quick brown f", "length"),
    (["jumps", "quick"], None, "The ", "stop"),
    (["The"], None, "", "stop"),
    ([], None, FULL, "stop"),
    (None, None, FULL, "stop"),
]
# stop, the deltas: what is kept back is only what may still become the stop
HELD = [
    (["own fox"], ["The quick br"]),
    (["zzz"], PIECES),
    (["ox jumps over!"], ["The quick br", "own f", "ox jumps over"]),
    (["brx"], ["The quick ", "brown f", "ox jumps", " over"]),
]
SHARES = {"x": 0.5, "y": 0.4, "z": 0.1}
SAMPLES = 4_000


def s1(c):
    c.build("s1")
    with serve(c, "s1.gguf") as s:
        for prompt, text in (("A", "ok 😀!赋"), ("B", "x\ufffdy"), ("C", "z\ufffd")):
            for path in (CHAT, TEXT):
                c.same(f"S1 {prompt} {path}", lambda: without_halves(s.say(prompt, path, max_tokens=20), "content"), (text, "stop"))
        for path in (CHAT, TEXT):
            c.same(f"S1 cut within a character {path}", lambda: s.say("A", path, max_tokens=2).content in ("ok ", "ok \ufffd"), True)
    half = [b"ok ", b"\xf0\x9f", b"\x98", b"\x80", b"!", b"\xe8\xb5", b"\x8b"]
    chain, marks = c.maker("chain", "chain"), ["<think>", "</think>", "<|assistant|>"]
    chain("s1_thought.gguf", [("<think>", half)], specials=marks, template="{{ messages[-1]['content'] }}<|assistant|><think>")
    with serve(c, "s1_thought.gguf") as s:
        c.same("S1 reasoning", lambda: without_halves(s.say("q"), "reasoning"), ("ok 😀!赋", "stop"))
    call = ["<tool_call>", b"f<arg_key>k</arg_key><arg_value>", *half, b"</arg_value>", "</tool_call>"]
    chain("s1_call.gguf", [("A", call)], specials=["<tool_call>", "</tool_call>"],
          template="{% if tools %}<tool_call>{% endif %}{{ messages[-1]['content'] }}")
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"k": {"type": "string"}}}}}]
    with serve(c, "s1_call.gguf") as s:
        c.same("S1 arguments", lambda: json.loads(without_halves(s.say("A", tools=tools), "calls")[0][0][1]), {"k": "ok 😀!赋"})


def without_halves(said, what):
    """This part of the answer, of whose deltas none has more of U+FFFD than the whole."""
    whole = str(getattr(said, what))
    assert sum(str(delta).count("\ufffd") for delta in said.deltas) == whole.count("\ufffd"), said.deltas
    for delta in said.deltas:
        json.dumps(delta, ensure_ascii=False).encode()      # half a character is an error
    return getattr(said, what), said.finish


def s2(c):
    c.build("s2")
    with serve(c, "s2.gguf") as s:
        for path in (CHAT, TEXT):
            for stop, most, text, finish in STOPS:
                more = {"max_tokens": most} if most else {}
                c.same(f"S2 {path} {stop} {most or ''}", lambda: ended(s.say("A", path, stop=stop, **more)), (text, finish))
            c.tally.run(f"S2 {path} an empty stop string", lambda: empty_stop(s, path))
            for stop, deltas in HELD:
                c.same(f"S2 {path} {stop} piece by piece", lambda: pieces(s.say("A", path, stop=stop)), deltas)


def ended(said):
    return said.content, said.finish


def pieces(said):
    return [delta.get("text") or delta.get("content") for delta in said.deltas]


def empty_stop(s, path):
    answer = s.post(path, asked("A", path, stop=[""]))
    good = answer.status == 400 and answer.error["param"] == "stop"
    return good or ended(s.say("A", path, stop=[""])) == (FULL, "stop"), f"{answer.status}"


def s3(c):
    c.build("s3")
    with serve(c, "s3.gguf") as s:
        rows = [({"presence_penalty": 0.5}, "xyxx"), ({"frequency_penalty": 0.5}, "xyxyxyxz"), ({"repetition_penalty": 2.0}, "yxxx")]
        for path in (CHAT, TEXT):
            for more, text in rows:
                c.same(f"S3 {path} {more}", lambda: s.say("xA", path, max_tokens=len(text), **more).content, text)
        others = [({"presence_penalty": 2, "frequency_penalty": 2, "repetition_penalty": 9.0}, None)] * 3
        c.same("S3 others in the batch have no effect", lambda: [got for got, (_, text) in zip(at_once(
            [lambda m=more, t=text: s.say("xA", max_tokens=len(t or "12345678"), **m).content for more, text in (rows + others) * 4]),
            (rows + others) * 4) if text], [text for _, text in rows] * 4)
        c.same("S3 a bias is keyed by the token's id", lambda: s.say("A", max_tokens=3, logit_bias={str(ord("z")): 100}).content, "zzz")
        # Both are lifted to the same height, and among equals the lower id is chosen.
        c.same("S3 a bias is clamped to 100", lambda: s.say("A", max_tokens=1, logit_bias={"98": 100, "113": 150}).content, "b")
        c.same("S3 a bias is clamped to -100", lambda: s.say("A", max_tokens=1, logit_bias={"120": -100, "121": -150, "122": -100, **{
            str(i): -100 for i in range(258) if i not in range(120, 123)}}).content, "x")


def s4(c):
    c.build("s3")
    with serve(c, "s3.gguf") as s:
        for more in ({"temperature": 0}, {"temperature": 1e-9}, {"temperature": -0.0}, {"top_k": 1}, {"top_p": 0}, {"top_p": 0.5}, {"min_p": 0.9}):
            more = {"temperature": 1, **more}
            c.same(f"S4 always x: {more}", lambda: [set(drawn(s, 40, path, **more)) for path in (CHAT, TEXT)], [{"x"}] * 2)
            c.same(f"S4 the same streamed and alone: {more}", lambda: s.say("A", max_tokens=1, **more).content, "x")
        c.same("S4 min_p 0.7: x and y only", lambda: set(drawn(s, 400, temperature=1, min_p=0.7)), {"x", "y"})
        for more in ({"top_k": 0}, {"top_k": -1}, {"top_p": 1}, {"min_p": 0}):
            c.tally.run(f"S4 {more} is off", lambda: follows(drawn(s, 1000, temperature=1, **more), SHARES, 0.06))
        c.tally.run(f"S4 {SAMPLES} samples", lambda: follows(separately(s, SAMPLES), SHARES, 0.03))
        c.tally.run(f"S4 {SAMPLES} samples of {SAMPLES // 100} requests", lambda: follows(drawn(s, SAMPLES, temperature=1), SHARES, 0.03))
        c.tally.run("S4 min_p is applied before the temperature", lambda: follows(
            drawn(s, 1000, temperature=3, min_p=0.5), {"x": 0.519, "y": 0.481}, 0.06))
        c.tally.run("S4 the documentation says so", lambda: order_is_stated(s))
        c.same("S4 nobody changes another's result", lambda: beside_others(s), ["x"] * 40)


def drawn(s, n, path=CHAT, **more):
    """Single tokens, up to 100 of each request."""
    sizes = [100] * (n // 100) + [n % 100] * (n % 100 > 0)
    answers = [s.good(path, asked("A", path, max_tokens=1, n=size, **more)) for size in sizes]
    return [(choice.get("message") or {"content": choice.get("text")})["content"] for a in answers for choice in a["choices"]]


def separately(s, n):
    """Single tokens, each of a request of its own, eight at a time."""
    one = lambda: s.good(CHAT, asked("A", max_tokens=1, temperature=1))["choices"][0]["message"]["content"]
    return [text for texts in at_once([lambda: [one() for _ in range(n // 8)]] * 8) for text in texts]


def follows(texts, shares, near):
    counts = {text: round(count / len(texts), 3) for text, count in sorted(collections.Counter(texts).items())}
    return set(counts) == set(shares) and all(abs(counts[t] - share) <= near for t, share in shares.items()), str(counts)


def order_is_stated(s):
    fields = s.ask("GET", "/openapi.json").json["components"]["schemas"]["SamplingFields"]["properties"]
    said = f"{fields['temperature']['description']} {fields['min_p']['description']}"
    return "before" in said and "temperature" in said, said


def beside_others(s):
    wild = lambda: drawn(s, 100, temperature=2, top_k=3, presence_penalty=2)
    return [x for texts in at_once([wild, lambda: drawn(s, 40), wild, wild])[1:2] for x in texts]


def s5(c):
    c.build("s3")
    with serve(c, "s3.gguf") as s:
        seeded = {"temperature": 1, "seed": 7, "max_tokens": 16}
        first = s.say("A", **seeded).content
        c.same("S5 20 times alone", lambda: [s.good(CHAT, asked("A", **seeded))["choices"][0]["message"]["content"] for _ in range(20)], [first] * 20)
        c.same("S5 16 at once among 16 others", lambda: [said.content for said in at_once(
            [lambda i=i: s.say("A", **(seeded if i % 2 else {**seeded, "seed": 100 + i})) for i in range(32)])[1::2]], [first] * 16)
        c.tally.run("S5 n = 3", lambda: three(s, seeded, first))
    c.maker("ref", "mla")("s5.gguf")
    with serve(c, "s5.gguf") as s:
        prompts = ["zebra", "Paris is the capital of", "x" * 41, "a b c d", "the quick brown fox jumps over the lazy dog 0", "1234567", "ü" * 20, "?"]
        prompts[2] = "".join(random.Random(3).choices("abcdefgh ", k=41))
        say = lambda p: s.say(p, max_tokens=48, ignore_eos=True).content
        alone = [say(p) for p in prompts]
        c.same("S5 greedy texts, all at once", lambda: at_once([lambda p=p: say(p) for p in prompts * 3]), alone * 3)
        c.same("S5 an idle server repeats itself", lambda: [say(p) for p in prompts], alone)


def three(s, seeded, first):
    choices = s.choices("A", n=3, **seeded)
    again = s.choices("A", n=3, **seeded)
    usage = s.good(CHAT, asked("A", n=3, **seeded))["usage"]
    texts = [choice.content for choice in choices]
    good = choices == again and texts[0] == first and len(texts) == 3 and len(set(texts)) > 1
    good &= [choice.finish for choice in choices] == ["length"] * 3
    return good and (usage["prompt_tokens"], usage["completion_tokens"]) == (1, 48), f"{texts} {usage}"


def s6(c):
    c.build("s6")
    with serve(c, "s6.gguf") as s:
        for path in (CHAT, TEXT):
            for prompt, text, on in (("A", "hi", "hiLEAK"), ("B", "yo", "yoMORE")):
                c.same(f"S6 {path} {prompt}", lambda: ended(s.say(prompt, path)), (text, "stop"))
                c.same(f"S6 {path} {prompt} with ignore_eos", lambda: ended(s.say(prompt, path, ignore_eos=True, max_tokens=9)), (on, "length"))
