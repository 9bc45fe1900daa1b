"""Texts against the few kinds of JSON schemas that case A4 has, whole texts and beginnings of them."""
import json
import re

SPACE = re.compile(r"[ \t\r\n]*")
INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
# Of what an integer may still become; JSON has whole numbers with a fraction or an exponent too.
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]*)?")


class More(Exception):
    """The text ended, and could go on."""


def fits(schema, text, whole):
    """Is the text in the schema? If it is not whole: could it become so?"""
    try:
        ends = read(schema, schema, text, 0)
    except More:
        return not whole
    return any(SPACE.fullmatch(text, end) for end in ends)


def read(root, schema, text, at):
    """Where a value that begins here may end; `More` if the text ends before."""
    at = SPACE.match(text, at).end()
    if at == len(text):
        raise More
    if "$ref" in schema:
        target = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        return read(root, target, text, at)
    if "anyOf" in schema:
        return either(root, schema["anyOf"], text, at)
    if "enum" in schema:
        return either(root, [{"const": value} for value in schema["enum"]], text, at)
    if "const" in schema or schema["type"] in ("null", "boolean"):
        values = [schema["const"]] if "const" in schema else {"null": [None], "boolean": [True, False]}[schema["type"]]
        return literal({json.dumps(v, ensure_ascii=ascii) for v in values for ascii in (False, True)}, text, at)
    return {"integer": number, "object": members, "array": items}[schema["type"]](root, schema, text, at)


def either(root, schemas, text, at):
    ends, more = set(), False
    for schema in schemas:
        try:
            ends |= read(root, schema, text, at)
        except More:
            more = True
    if more and not ends:
        raise More
    return ends


def literal(words, text, at):
    if any(word.startswith(text[at:]) and word != text[at:] for word in words):
        raise More
    return {at + len(word) for word in words if text.startswith(word, at)}


def number(root, schema, text, at):
    found = NUMBER.match(text, at)
    if found.end() == len(text):
        raise More
    return {found.end()} if INTEGER.fullmatch(found[0]) or (found[0] and float(found[0]).is_integer()) else set()


def symbol(word, text, at):
    """Behind this sign, or None."""
    at = SPACE.match(text, at).end()
    if at == len(text):
        raise More
    return at + 1 if text[at] == word else None


def members(root, schema, text, at):
    """Objects whose members all are required and come in the schema's order."""
    sign = "{"
    for name, value in schema["properties"].items():
        at = symbol(sign, text, at)
        ends = set() if at is None else literal({json.dumps(name)}, text, SPACE.match(text, at).end())
        at = symbol(":", text, ends.pop()) if ends else None
        ends = set() if at is None else read(root, value, text, at)
        if not ends:
            return set()
        at, sign = ends.pop(), ","
    at = symbol("}", text, at)
    return set() if at is None else {at}


def items(root, schema, text, at):
    sign = "["
    for count in range(schema["maxItems"]):
        start = symbol(sign, text, at)
        if start is None:
            break
        ends = read(root, schema["items"], text, start)
        if not ends:
            return set()
        at, sign = ends.pop(), ","
    at = symbol("]", text, at)
    return set() if at is None or count < schema["minItems"] else {at}
