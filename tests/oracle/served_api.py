"""Cases of OpenAI's API: A1 to A4, J1, J2."""
import itertools
import json
import time

import served_schema
from document import MIB
from served_client import CHAT, TEXT, Meanwhile, Said, asked, at_once, serve, told_chat


def a1(c):
    c.build("a1")
    with serve(c, "a1.gguf") as s:
        c.tally.run("A1 512 bytes", lambda: full(s))
        for crowd in (1, 4, 16):
            for path in (CHAT, TEXT):
                for stream in (False, True):
                    body = asked("b" * 600, path, max_tokens=5, stream=stream)
                    c.tally.run(f"A1 600 bytes, {crowd} at once, {path}{' streamed' * stream}", lambda: all_good(at_once([lambda: unfit(s, path, body)] * crowd)))
                for most in ({}, {"max_tokens": 100}, {"max_tokens": 10_000}, {"max_tokens": 2_000_000}):
                    if path == TEXT and not most:
                        continue                     # there it means 16
                    c.same(f"A1 500 bytes, {crowd} at once, {path} {most}", lambda: at_once([lambda: cut(s, path, most)] * crowd), [(12, "length")] * crowd)


def unfit(s, path, body):
    answer = s.post(path, body)
    error = answer.error
    numbers = all(number in error["message"] for number in ("600", "512"))
    return answer.status == 400 and error["code"] == "context_length_exceeded" and numbers, f"{answer.status} {error}"


def cut(s, path, most):
    said = s.say("b" * 499 + "A", path, **most)
    return said.content.count("x"), said.finish


def full(s):
    """512 bytes leave no room for an answer: which outcome it is."""
    statuses = {s.post(path, asked("b" * 511 + "A", path, stream=stream)).status for path in (CHAT, TEXT) for stream in (False, True)}
    if statuses == {200}:
        return s.say("b" * 511 + "A").content == "x", "200 with one token"
    return statuses == {400}, f"{statuses}"


def all_good(results):
    return all(good for good, _ in results), str(results[0][1])


# What is wrong, and the field that must be named.
BAD = [
    *[({"max_tokens": x}, "max_tokens") for x in (-1, 0, 1.5, "7")],
    *[({"temperature": x}, "temperature") for x in (-1, 3, "hot")],
    *[({"top_p": x}, "top_p") for x in (-0.1, 1.1)],
    *[({"n": x}, "n") for x in (0, -1, 10_000)],
    *[({"logprobs": True, "top_logprobs": x}, "top_logprobs") for x in (21, -1)], ({"top_logprobs": 5}, "top_logprobs"),
    ({"stop": ["x"] * 1000}, "stop"), ({"stop": 7}, "stop"),
    ({"messages": []}, "messages"), ({"messages": None}, "messages"), ({"messages": "hi"}, "messages"),
    ({"messages": [None]}, "messages[0]"), ({"messages": [{"role": "alien"}]}, "messages[0].role"),
    ({"tools": {}}, "tools"), ({"tool_choice": {"type": "function", "function": {"name": "none"}}}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format.type"), ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"), ({"seed": 2**70}, "seed"),
    ({"logit_bias": {"abc": 1}}, "logit_bias"),
    ({"temperature": float("nan")}, None), ({"temperature": float("inf")}, None),
]
# Bodies that are no requests, and what they are answered with.
BODIES = {"{": 400, "[]": 400, "": 400, "[" * 100_000: 400, '{"a":' * 100_000: 400, '{"messages": ' + "[" * 100_000: 400, " " * 70_000_000: 413}
LEAKS = ("panicked", "backtrace", ".rs:", *(f"/{folder}/" for folder in ("root", "home")), "unwrap()", "RUST_")
NULLS = ("max_tokens", "temperature", "top_p", "n", "logprobs", "top_logprobs", "stop", "tools", "tool_choice", "response_format",
         "stream", "stream_options", "seed", "logit_bias", "presence_penalty", "user", "reasoning_effort", "parallel_tool_calls")


def a2(c):
    c.maker("chain", "chain")("a2.gguf", [("A", [b"fine"])])
    with serve(c, "a2.gguf") as s:
        for more, param in BAD:
            c.tally.run(f"A2 {str(more)[:60]}", lambda: refuses(s, asked("A") | more, 400, param))
        without = {key: value for key, value in asked("A").items() if key != "messages"}
        c.tally.run("A2 no messages", lambda: refuses(s, without, 400, "messages"))
        for body, status in BODIES.items():
            c.tally.run(f"A2 a body of {len(body)} bytes: {body[:12]}", lambda: refuses(s, body.encode(), status, None))
        c.tally.run("A2 another content type", lambda: other_type(s))
        c.same("A2 any null is absent", lambda: s.good(CHAT, {**asked("A"), **dict.fromkeys(NULLS)})["choices"][0]["message"]["content"], "fine")
        c.same("A2 unknown fields are ignored", lambda: s.say("A", unheard_of=[1], metadata={"a": "b"}).content, "fine")
        c.same("A2 the log has no panic", lambda: [line for line in s.process.log if "panicked" in line], [])
    raising = "{% if messages[-1].role != 'user' %}{{ raise_exception('only users here') }}{% endif %}A"
    with serve(c, "a2.gguf", "--chat-template", raising) as s:
        system = {"messages": [{"role": "system", "content": "x"}]}
        c.tally.run("A2 what a template raises", lambda: refuses(s, system, 400, "messages", "only users here"))


def refuses(s, body, status, param, says=""):
    """Refused so, and the next request is answered."""
    answer = s.post(CHAT, body)
    error = answer.error
    leaks = [word for word in LEAKS if word in answer.raw.decode()]
    good = answer.status == status and error["param"] == param and says in error["message"] and not leaks
    return good and s.say("A") == Said("fine", finish="stop"), f"{answer.status} {error['param']}: {error['message'][:100]} {leaks or ''}"


def other_type(s):
    answer = s.ask("POST", CHAT, asked("A"), {"content-type": "text/plain"})
    fine = answer.status == 200 or (answer.status == 415 and answer.error["message"])
    return bool(fine) and s.say("A").content == "fine", f"{answer.status}"


def a3(c):
    c.maker("chain", "chain")("a3.gguf", [("A", [b"one", b" two"])], n_ctx=512)
    with serve(c, "a3.gguf") as s:
        prompt = "b" * 200 + "A"
        for n in (1, 3):
            c.tally.run(f"A3 n = {n} without usage", lambda: usage_of(s, {}, n))
            for options in ({"include_usage": False}, {"include_usage": True}, {}):
                c.tally.run(f"A3 n = {n} {options}", lambda: usage_of(s, {"stream_options": options}, n))
        # what `choices` compares: role first, one end, the same sums
        c.same("A3 totals are those of the unstreamed answer", lambda: s.say(prompt).content, "one two")
        c.tally.run("A3 cached tokens are part of the prompt's", lambda: cached(s, prompt))


def usage_of(s, options, n):
    """The usage comes once at the end or never; `told_chat` looks at all other chunks."""
    events = s.events(CHAT, asked("A", n=n, **options))
    empty = [data for _, data in events[:-1] if not data["choices"]]
    choices, usage = told_chat(events)
    wanted = options.get("stream_options", {}).get("include_usage", False)
    good = len(choices) == n and len(empty) == wanted and all(choice.finish == "stop" for choice in choices)
    return good and (usage is not None) == wanted and (not wanted or usage["total_tokens"] == 1 + 3 * n), str(usage)


def cached(s, prompt):
    body = asked(prompt)
    whole = s.good(CHAT, body)["usage"]
    streamed = s.events(CHAT, {**body, "stream_options": {"include_usage": True}})[-2][1]["usage"]
    found = [usage["prompt_tokens_details"]["cached_tokens"] for usage in (whole, streamed)]
    return whole == streamed and all(0 < n <= 201 for n in found) and whole["prompt_tokens"] == 201, f"{found} of {whole['prompt_tokens']}"


def a4(c):
    space = {}
    exec(c.blocks["a4"], space)
    c.maker("ref", "mla")("a4.gguf")
    with serve(c, "a4.gguf") as s:
        for name in ("S1", "S2", "S5"):
            c.tally.run(f"A4 {name}: 20 seeds", lambda: kept(s, space[name]))
        for name, place in (("S3", "#/$defs/n/$ref"), ("S4", "#/type"), ("S6", "#/$ref")):
            for stream in (False, True):
                c.tally.run(f"A4 {name} is refused{' streamed' * stream}", lambda: no_form(s, space[name], place, stream))
        c.tally.run("A4 a schema that takes long is refused while others are answered", lambda: costly(s))


def form(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def kept(s, schema):
    """Every text is in the schema, or a beginning of one that is; some of each kind."""
    ends = {"stop": 0, "length": 0}
    for seed, most in itertools.product(range(20), (200, 9)):
        said = s.say("zebra", temperature=1, seed=seed, max_tokens=most, **form(schema))
        whole = said.finish == "stop"
        assert served_schema.fits(schema, said.content, whole), f"{said.content!r}, {said.finish}"
        ends[said.finish] += 1
    return ends["stop"] > 0, str(ends)


def no_form(s, schema, place, stream):
    """Refused with the place in the schema."""
    answer = s.post(CHAT, asked("zebra", stream=stream, **form(schema)))
    error = answer.error
    good = answer.status == 400 and error["param"] == "response_format" and f"`{place}`" in error["message"]
    return good, f"{answer.status} {error['message']}"


def costly(s):
    """Each is refused or taken soon and in little memory, and nobody waits for it."""
    chain = lambda n, inner: {"$ref": "#/$defs/0", "$defs": {**{str(i): inner({"$ref": f"#/$defs/{i + 1}"}) for i in range(n)}, str(n): {"type": "null"}}}
    schemas = [
        {"enum": [f"name{i}" for i in range(50_000)]},
        {"type": "string", "pattern": "((a{1,500}){1,500}){1,500}"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1_000_000},
        chain(1_999, lambda next: {"anyOf": [next, next]}),
        chain(1_999, lambda next: {"allOf": [next, next]}),
        {"type": "object", "properties": {f"f{i}": {"type": "integer"} for i in range(9_000)}},
    ]
    small = lambda: s.good(CHAT, asked("q", max_tokens=1))
    found = []
    with Meanwhile(0.05, small) as second:
        for schema in schemas:
            before, peak, begun = s.memory(), [0], time.monotonic()
            with Meanwhile(0.01, lambda: peak.append(s.memory())):
                status = s.post(CHAT, asked("zebra", max_tokens=2, **form(schema))).status
            found.append((status, round(time.monotonic() - begun, 2), (max(peak) - before) // MIB))
    longest = max(second.took)
    good = all(status in (200, 400) and took <= 2 and more <= 100 for status, took, more in found)
    good &= any(status == 400 for status, _, _ in found) and longest <= 0.5 and not second.failed
    return good, f"status, s, MiB: {found}; others waited {longest:.2f} s at most"


def j1(c):
    tools = {"tools": c.build("j1")["TOOLS"]}
    with serve(c, "j1.gguf") as s:
        time_call, raw = [("get_time", {})], "<tool_call>get_time</tool_call>"
        look = [("lookup", {"order_id": "00123", "max": 10, "tags": ["a"], "ok": True})]
        plain = "a < b and <tool is a word"
        c.same("J1 A: a call without arguments", lambda: called(s.say("A", **tools)), ("", time_call, "tool_calls"))
        c.same("J1 B: types from the schema", lambda: called(s.say("B", **tools)), ("Sure.", look, "tool_calls"))
        c.same("J1 C: no call", lambda: called(s.say("C", **tools)), (plain, [], "stop"))
        for prompt, text in (("A", raw), ("C", plain)):
            for name, more in (("no tools", {}), ("tools: []", {"tools": []}), ("tool_choice none", {**tools, "tool_choice": "none"})):
                c.same(f"J1 {prompt} with {name}", lambda: called(s.say(prompt, **more)), (text, [], "stop"))
        c.tally.run("J1 no part of a marker is ever content", lambda: no_marker(s.say("B", **tools)))


def called(said):
    """The content without white space before a call, the calls with their arguments, the end."""
    content = said.content.rstrip() if said.calls else said.content
    return content, [(name, json.loads(arguments)) for name, arguments in said.calls], said.finish


def no_marker(said):
    content = [delta.get("content") or "" for delta in said.deltas]
    return not any("<" in piece or "tool_" in piece for piece in content), str(content)


def j2(c):
    c.build("j2")
    with serve(c, "j2.gguf") as s:
        off = {"chat_template_kwargs": {"enable_thinking": False}}
        rows = [
            ("thinking", {}, ("Let me see", "The answer", "stop")),
            ("thinking off", off, ("", "Direct", "stop")),
            ("cut in the thoughts", {"max_tokens": 1}, ("Let me", "", "length")),
            ("cut later in them, what might be a tag is all there is", {"max_tokens": 2}, ("Let me see</thi", "", "length")),
            ("a stop string of the thoughts", {"stop": ["me"]}, ("Let me see", "The answer", "stop")),
            ("a stop string of the content", {"stop": ["answer"]}, ("Let me see", "The ", "stop")),
            ("a stop string of both", {"stop": ["e"]}, ("Let me see", "Th", "stop")),
        ]
        for name, more, want in rows:
            c.same(f"J2 {name}", lambda: thought(s.say("q", **more)), want)
        c.same("J2 usage counts all and the end", lambda: s.good(CHAT, asked("q"))["usage"]["completion_tokens"], 5)


def thought(said):
    for delta in said.deltas:
        assert bool(delta.get("content")) != bool(delta.get("reasoning_content")), delta
    return said.reasoning, said.content, said.finish
