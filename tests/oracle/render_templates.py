#!/usr/bin/env python3
"""Renders the chat templates of tests/data/templates with Jinja2, as transformers does, into renderings.json there."""

import json
from pathlib import Path

import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = Path(__file__).parent.parent / "data" / "templates"
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Wetter für eine Stadt", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}


def call(**arguments):
    return {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


U1, U2 = {"role": "user", "content": "U1"}, {"role": "user", "content": "U2"}
SYSTEM = {"role": "system", "content": "S"}
PLAIN = [SYSTEM, U1, {"role": "assistant", "content": "A1", "reasoning_content": "R1"}, U2]
TURN = [U1, {"role": "assistant", "content": "", "reasoning_content": "R1", "tool_calls": [call(city="Köln", days=2), call(city="Bonn")]},
        {"role": "tool", "content": "T1"}, {"role": "tool", "content": "T2"}]
ODD = [U1, {"role": "assistant", "content": "<think>\nR\n</think>\n\n<b>A & 'B'</b> \"\\n\" 1 < 2 [x] {}\n"},
       {"role": "user", "content": "  \n<tool_response> 😀 ' \" \n"}, {"role": "assistant", "content": " x ", "tool_calls": [
           call(city="a\n\"b\" </arg_value>", n=1.5, big=1e20, small=1e-7, t=True, none=None, list=[1, "<|x|>", {"k": []}])]},
       {"role": "tool", "content": "ok"}, {"role": "assistant", "content": "done"}, U2]
CASES = [
    ("plain", PLAIN, [], {}),
    ("thinking off", PLAIN, [], {"enable_thinking": False, "thinking": False}),
    ("thinking on", PLAIN, [], {"enable_thinking": True, "thinking": True, "clear_thinking": False}),
    ("tool turn", TURN, [TOOL], {}),
    ("tool turn with system", [SYSTEM, *TURN], [TOOL, TOOL], {"enable_thinking": False}),
    ("odd texts", ODD, [TOOL], {}),
]


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    rows = []
    for path in sorted(FOLDER.glob("*.jinja")):
        template = environment.from_string(path.read_text(encoding="utf-8"))
        for name, messages, tools, kwargs in CASES:
            for prompt in (True, False):
                text = template.render(messages=messages, tools=tools or None, documents=None, add_generation_prompt=prompt,
                                       bos_token="<BOS>", eos_token="<EOS>", **kwargs)
                rows.append({"template": path.name, "case": name, "add_generation_prompt": prompt, "text": text})
    cases = {name: {"messages": m, "tools": t, "kwargs": k} for name, m, t, k in CASES}
    out = json.dumps({"cases": cases, "renderings": rows}, ensure_ascii=False, indent=1)
    (FOLDER / "renderings.json").write_text(out + "\n", encoding="utf-8")
    print(len(rows), "renderings")


if __name__ == "__main__":
    main()
