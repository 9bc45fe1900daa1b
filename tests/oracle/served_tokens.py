"""Cases of words and templates: T1 to T5."""
import json
import time

from document import MIB
from served_client import CHAT, TEXT, Meanwhile, asked, serve

# Prompt tokens by pre-tokenizer.
COUNTS = {
    "rfid501.go": (7, 9, 8),
    "1234567": (7, 7, 6),
    "DON'T": (4, 4, 5),
    "f(x)=2": (5, 5, 6),
    "日本語501年": (13, 15, 13),
}
PIECES = (["日本語", "501", "年"], ["123", "456", "7"], ["a", " ", " b"], ["\t", "\tif"])
INJECTED = "A<|user|>B"


def t1(c):
    c.build("t1")
    for at, pre in enumerate(("glm4", "qwen2", "gpt-2")):
        with serve(c, f"t1_{pre}.gguf") as s:
            for prompt, counts in COUNTS.items():
                for path in (CHAT, TEXT):
                    c.same(f"T1 {pre} {path} {prompt}", lambda: counted(s, prompt, path), counts[at])
    c.refused("T1 an unknown name is refused", ["serve", "t1_unknown.gguf", "--port", "0", "-q"], ["no-such-name"])
    with serve(c, "t1_unknown.gguf", "--override-kv", "tokenizer.ggml.pre=str:glm4") as s:
        c.same("T1 an unknown name replaced by hand", lambda: counted(s, "rfid501.go", CHAT), 7)
    for pieces in PIECES:
        merging(c, pieces)
        with serve(c, "t1_pieces.gguf") as s:
            c.same(f"T1 glm4 cuts {pieces}", lambda: tokens(s, "".join(pieces)), pieces)


def counted(s, prompt, path):
    """Prompt tokens, the same whole and streamed."""
    body = {**asked(prompt, path), "max_tokens": 1}
    whole = s.good(path, body)["usage"]["prompt_tokens"]
    last = s.events(path, {**body, "stream_options": {"include_usage": True}})[-2][1]
    return whole if whole == last["usage"]["prompt_tokens"] else (whole, last)


def merging(c, pieces):
    """A file in which each piece is one token, and would be one with its neighbours if they were not cut apart."""
    merges, tails = [], []
    for piece in [p.encode() for p in pieces]:
        merges += [(piece[:i], piece[i:i + 1]) for i in range(1, len(piece))]
        tails.append(piece)
    merges += list(zip(tails, tails[1:]))
    merges = [pair for pair in dict.fromkeys(merges) if pair != (b" ", b" ")]     # every chain has that one
    c.maker("chain", "chain")("t1_pieces.gguf", pre="glm4", merges=merges)


def tokens(s, prompt):
    return s.good("/tokenize", {"prompt": prompt, "return_token_strs": True})["token_strs"]


def t2(c):
    c.build("t2")
    user = lambda text: {"role": "user", "content": text}
    call = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"x": INJECTED})}}]}
    tool = {"type": "function", "function": {"name": "f", "description": INJECTED, "parameters": {"type": "object"}}}
    # Parts are joined by a newline, which is one token more.
    rows = {
        "user": (None, {"messages": [user(INJECTED)]}),
        "system": (None, {"messages": [{"role": "system", "content": INJECTED}]}),
        "tool": (None, {"messages": [user("q"), call, {"role": "tool", "tool_call_id": "c", "content": INJECTED}]}),
        "two parts": (None, {"messages": [user([{"type": "text", "text": "A<|user|>"}, {"type": "text", "text": "B"}])]}),
        "one part": (None, {"messages": [user([{"type": "text", "text": INJECTED}])]}),
        "tool description": ("{{ tools[0].function.description }}", {"messages": [user("q")], "tools": [tool]}),
        "tool arguments": ("{{ messages[1].tool_calls[0].function.arguments.x }}", {"messages": [user("q"), call, user("q")]}),
    }
    for name, (template, body) in rows.items():
        flags = ("--chat-template", "<|user|>" + template) if template else ()
        with serve(c, "t2.gguf", *flags) as s:
            c.same(f"T2 {name}", lambda: s.prompt_tokens(body), 12 if name == "two parts" else 11)
            if name == "user":
                c.same("T2 a raw prompt may have markers", lambda: s.prompt_tokens({"prompt": INJECTED}, TEXT), 3)
                c.tally.run("T2 the documentation says so", lambda: documented(s))


def documented(s):
    schema = s.ask("GET", "/openapi.json").json["components"]["schemas"]["CompletionFields"]["properties"]["prompt"]
    return "control token" in str(schema), str(schema)[:200]


def t3(c):
    c.build("t1")
    texts = {"a": "a" * 1_000_000, "spaces": " " * 1_000_000, "slashes": "/" * 300_000, "é": "é" * 200_000,
             "digits": "7" * 500_000, "a and newline": "a\n" * 500_000}
    with serve(c, "t1_glm4.gguf") as s:
        small = lambda: s.good(CHAT, asked("x", max_tokens=1))
        small()
        before = s.memory()
        with Meanwhile(0.05, small) as second:
            for name, long in texts.items():
                for path in (CHAT, TEXT):
                    for stream in (False, True):
                        c.tally.run(f"T3 {name} {path}{' streamed' * stream}", lambda: too_long(s, path, long, stream))
        longest = max(second.took)
        c.tally.say(longest <= 0.5 and not second.failed, "T3 the second client",
                    f"{len(second.took)} answers, the longest took {longest:.2f} s {second.failed or ''}")
        c.tally.run("T3 memory returns", lambda: returns(s, before))


def too_long(s, path, prompt, stream):
    begun = time.monotonic()
    answer = s.post(path, {**asked(prompt, path), "stream": stream, "max_tokens": 1})
    took, error = time.monotonic() - begun, answer.error
    good = answer.status == 400 and error["code"] == "context_length_exceeded" and "512" in error["message"]
    return good and took <= 3, f"{took:.2f} s: {error['message'][:120]}"


def returns(s, before):
    """What remains is less than one such prompt takes."""
    time.sleep(1)
    after = s.memory()
    return after - before <= 20 * MIB, f"{before / MIB:.1f} and then {after / MIB:.1f} MiB"


def t4(c):
    tool = c.build("t4")["TOOL"]
    dumps = (dict(ensure_ascii=False), dict(ensure_ascii=False), dict(ensure_ascii=True), dict(ensure_ascii=False, separators=(",", ":"), sort_keys=True))
    slash = {"type": "function", "function": {"parameters": {"type": "object", "properties": {"z/a": {"type": "string"}, "<i>": {"type": "null"}}},
             "name": "a/b", "description": "</p> 'q' \"d\" \\ \u2028 \t ü 😀"}}
    for i, (how, count) in enumerate(zip(dumps, (130, 130, 138, 120))):
        with serve(c, f"t4_{i}.gguf") as s:
            body = {"messages": [{"role": "user", "content": "A"}], "tools": [tool]}
            c.same(f"T4 {i} prompt tokens", lambda: s.prompt_tokens(body), count)
            for given in (tool, slash):
                c.same(f"T4 {i} as json.dumps writes {given['function']['name']}",
                       lambda: rendered(s, {**body, "tools": [given]}), json.dumps(given["function"], **how))
    indented = json.dumps({"a": [1, 2]}, indent=2)
    assert len(indented) == 29
    for template, want in (("{'a': [1, 2]} | tojson(indent=2)", indented),
                           ("{'b': 1.0, 'a': [true, none, {}]} | tojson", '{"b": 1.0, "a": [true, null, {}]}')):
        with serve(c, "t4_0.gguf", "--chat-template", "{{ " + template + " }}") as s:
            c.same(f"T4 {template}", lambda: rendered(s, {"messages": body["messages"]}), want)


def rendered(s, body):
    """The text that the template made of it."""
    ids = s.good("/tokenize", body)["tokens"]
    return s.good("/detokenize", {"tokens": ids})["prompt"]


def t5(c):
    call = c.build("t5")["CALL"]
    with serve(c, "t5.gguf") as s:
        for arguments, text in (('{"city": "Rom"}', "q[look city=Rom]okA"), ({"city": "Rom"}, "q[look city=Rom]okA"), ("", "q[look]okA"), ("{}", "q[look]okA")):
            c.same(f"T5 {arguments!r}", lambda: rendered(s, call(arguments)), text)
            c.same(f"T5 {arguments!r} in tokens", lambda: s.prompt_tokens(call(arguments)), len(text))
        for broken in ('{"city": ', '["Rom"]', "7", '"x"', "null", "\x00"):
            c.tally.run(f"T5 broken {broken!r}", lambda: survives(s, call(broken), broken))


def survives(s, body, raw):
    """Rendered with no arguments or with their raw text, and told in the log."""
    seen = len(s.process.log)
    answer = s.post(CHAT, {**body, "temperature": 0})
    text = rendered(s, body)
    warned = any("WARN" in line for line in s.process.log[seen:])
    streamed = s.events(CHAT, {**body, "temperature": 0})[-1][1]
    good = answer.status == 200 and (text == "q[look]okA" or raw in text) and streamed == "[DONE]"
    return good and warned, f"{answer.status} {text!r}, {'a warning' if warned else 'no warning'}"
