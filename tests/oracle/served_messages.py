"""The case of Anthropic's API: P1."""
import contextlib
import itertools
import json
import time

from served_client import MESSAGES, serve

DELTAS = {"text_delta": ("text", "text"), "thinking_delta": ("thinking", "thinking"), "signature_delta": ("thinking", "signature"),
          "input_json_delta": ("tool_use", None)}
CACHED = {"cache_control": {"type": "ephemeral"}}


class Story:
    """A message put together from its events, in whose order nothing may be wrong."""

    def __init__(self):
        self.message, self.open, self.partial, self.ended = None, None, "", 0

    def take(self, name, data):
        assert data["type"] == name, f"event {name} says {data['type']}"
        assert self.message or name == "message_start", f"{name} before the start"
        assert self.ended == (name == "message_stop"), f"{name} in the wrong place"
        getattr(self, name)(data)

    def ping(self, data):
        pass

    def message_start(self, data):
        assert not self.message, "a second start"
        self.message = data["message"]
        assert self.message["content"] == [] and self.message["stop_reason"] is None, self.message

    def content_block_start(self, data):
        content = self.message["content"]
        assert self.open is None and data["index"] == len(content), data
        self.open, self.partial = data["content_block"], ""
        content.append(self.open)

    def content_block_delta(self, data):
        delta = data["delta"]
        kind, field = DELTAS[delta["type"]]
        assert data["index"] == len(self.message["content"]) - 1 and self.open["type"] == kind, data
        if field:
            self.open[field] = self.open.get(field, "") + delta[field]
        else:
            self.partial += delta["partial_json"]

    def content_block_stop(self, data):
        assert self.open and data["index"] == len(self.message["content"]) - 1, data
        if self.open["type"] == "tool_use":
            assert self.partial.startswith("{"), self.partial
            self.open["input"] = json.loads(self.partial)
        assert self.open != {"type": "text", "text": ""}, "an empty block"
        self.open = None

    def message_delta(self, data):
        assert self.open is None, "a block is open at the end"
        self.message |= data["delta"]
        self.message["usage"] = data["usage"]
        self.ended = 1

    def message_stop(self, data):
        self.ended = 2


def answer(s, body):
    """The message, which must be the same whole and streamed; the names of calls and messages are new each time."""
    whole, story = s.good(MESSAGES, body), Story()
    for name, data in s.events(MESSAGES + "?beta=true", body):
        story.take(name, data)
    assert story.ended == 2, "no end"
    names = []
    for message in (whole, story.message):
        named = [message, *(block for block in message["content"] if block["type"] == "tool_use")]
        assert all(block["id"].startswith("msg_" if block is message else "toolu_") for block in named), named
        names += [block.pop("id") for block in named]
    assert len(set(names)) == len(names), names
    same = [{k: v for k, v in message.items() if k != "usage"} for message in (whole, story.message)]
    assert same[0] == same[1], same
    assert whole["usage"]["output_tokens"] == story.message["usage"]["output_tokens"] > 0
    return whole


def asked(prompt, **more):
    return {"max_tokens": 64, "temperature": 0, "messages": [{"role": "user", "content": prompt}], **more}


def ended(message):
    blocks = [{k: v for k, v in block.items() if k != "signature"} for block in message["content"]]
    return blocks, message["stop_reason"], message["stop_sequence"]


def text(said):
    return {"type": "text", "text": said}


def used(name, given):
    return {"type": "tool_use", "name": name, "input": given}


def thinking(said):
    return {"type": "thinking", "thinking": said}


def p1(c):
    tools = [{"name": f["function"]["name"], "input_schema": f["function"]["parameters"], **CACHED} for f in c.build("j1")["TOOLS"]]
    with serve(c, "j1.gguf") as s:
        calls(c, s, tools)
        accepted(c, s, tools)
        refused(c, s)
    c.build("j2")
    with serve(c, "j2.gguf") as s:
        thoughts(c, s)
    c.build("n2")
    with serve(c, "n2.gguf") as s:
        c.tally.run("P1 an error as an event", lambda: failed(s))
    c.build("o1")
    with serve(c, "o1.gguf") as s:
        c.tally.run("P1 pings while a long prompt is read", lambda: pinged(s))


def calls(c, s, tools):
    time_call = [used("get_time", {})]
    look = [text("Sure."), used("lookup", {"order_id": "00123", "max": 10, "tags": ["a"], "ok": True})]
    raw = [text("<tool_call>get_time</tool_call>")]
    rows = [
        ("A", {"tools": tools}, time_call, "tool_use"),
        ("B", {"tools": tools}, look, "tool_use"),
        ("C", {"tools": tools}, [text("a < b and <tool is a word")], "end_turn"),
        ("A", {"tools": []}, raw, "end_turn"),
        ("A", {}, raw, "end_turn"),
        ("A", {"tools": tools, "tool_choice": {"type": "auto"}}, time_call, "tool_use"),
        ("A", {"tools": tools, "tool_choice": {"type": "any"}}, time_call, "tool_use"),
        ("A", {"tools": tools, "tool_choice": {"type": "tool", "name": "get_time"}}, time_call, "tool_use"),
        ("A", {"tools": tools, "tool_choice": {"type": "none"}}, raw, "end_turn"),
        # Cut where a call might begin: what is held back is all there is.
        ("B", {"tools": tools, "max_tokens": 1}, [text("Sure. <tool_")], "max_tokens"),
    ]
    for prompt, more, blocks, reason in rows:
        shown = more.get("tool_choice", {k: len(v) if k == "tools" else v for k, v in more.items()})
        c.same(f"P1 {prompt} {shown}", lambda: trimmed(ended(answer(s, asked(prompt, **more)))), (blocks, reason, None))
    c.same("P1 a stop sequence is named", lambda: ended(answer(s, asked("C", stop_sequences=["cat", "and"]))), ([text("a < b ")], "stop_sequence", "and"))


def trimmed(found):
    """White space before a call may stay or go."""
    blocks, *rest = found
    return ([{**b, "text": b["text"].rstrip()} if b["type"] == "text" else b for b in blocks], *rest)


def accepted(c, s, tools):
    """Forms of a request that must all be taken."""
    plain = asked("C")
    history = [
        {"role": "user", "content": [{**text("q"), **CACHED}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "any+signature=="}, {**text("x"), "citations": None}, {"id": "toolu_1", **used("get_time", {}), **CACHED}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{**text("noon"), **CACHED}], "is_error": False, **CACHED}]},
        {"role": "user", "content": [{**text("C"), "unheard_of": {"a": [1]}, **CACHED}]},
    ]
    rows = {
        "system as text": {"system": "be brief"},
        "system as blocks": {"system": [{**text("be brief"), **CACHED}, text("and kind")]},
        "history": {"messages": history, "tools": tools},
        "unknown fields": {"metadata": {"user_id": "u"}, "service_tier": "auto", "unheard_of": 1},
        "an empty list of tools": {"tools": []},
    }
    for name, more in rows.items():
        c.same(f"P1 accepted: {name}", lambda: ended(answer(s, {**plain, **more}))[0][0]["text"], "a < b and <tool is a word")


def refused(c, s):
    without = asked("A")
    del without["max_tokens"]
    for name, body in {"no max_tokens": without, "max_tokens 0": asked("A", max_tokens=0), "no messages": {"max_tokens": 5},
                       "an alien": {"max_tokens": 5, "messages": [{"role": "alien", "content": "x"}]}, "too long": asked("b" * 600), "no JSON": b"{"}.items():
        c.tally.run(f"P1 refused: {name}", lambda: envelope(s.post(MESSAGES, body), 400, "invalid_request_error"))
    c.tally.run("P1 refused: no such model", lambda: envelope(s.post(MESSAGES, asked("A", model="none")), 404, "not_found_error"))


def envelope(response, status, kind):
    body = response.json
    good = response.status == status and body["type"] == "error" and body["error"]["type"] == kind and body["error"]["message"]
    return bool(good), str(body)[:200]


def thoughts(c, s):
    both = [thinking("Let me see"), text("The answer")]
    rows = [
        ({}, both, "end_turn"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, both, "end_turn"),
        ({"thinking": {"type": "disabled"}}, [text("Direct")], "end_turn"),
        ({"max_tokens": 1}, [thinking("Let me")], "max_tokens"),
    ]
    for more, blocks, reason in rows:
        c.same(f"P1 thoughts {more}", lambda: ended(answer(s, asked("q", **more))), (blocks, reason, None))
    c.same("P1 a stop sequence ends content only", lambda: ended(answer(s, asked("q", stop_sequences=["e"]))),
           ([thinking("Let me see"), text("Th")], "stop_sequence", "e"))


def failed(s):
    *_, (name, data) = s.events(MESSAGES, asked("N"))
    whole, _ = envelope(s.post(MESSAGES, asked("N")), 500, "api_error")
    return whole and name == data["type"] == "error" and data["error"]["type"] == "api_error", f"{name} {data}"


def pinged(s):
    """The prompt takes longer than a connection may stand still; the first ping is part of the beginning."""
    begun = time.monotonic()
    with contextlib.closing(s.stream(MESSAGES, asked("b" * 60_000))) as stream:
        names = [name for name, _ in itertools.islice(stream, 3)]
    return names == ["message_start", "ping", "ping"], f"{names} after {time.monotonic() - begun:.1f} s"
