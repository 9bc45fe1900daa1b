"""The anthropic package against a running server: messages, streaming, thinking, tools, parsed output, counting, errors."""
import json, sys

import anthropic
import pydantic

base, model = sys.argv[1], sys.argv[2]
client = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0)
STORY = [{"role": "user", "content": "Tell me a story about a cat."}]
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]
OFF = {"thinking": {"type": "disabled"}}
WEATHER = {"name": "get_weather", "description": "The weather in a city",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def create(**more):
    return client.messages.create(**{"model": model, "messages": STORY, "max_tokens": 40, "extra_body": {"temperature": 0}, **OFF, **more})


def messages():
    answer = create(system="You are kind.", metadata={"user_id": "me"})
    assert answer.role == "assistant" and answer.type == "message" and answer.model == model, answer
    assert answer.content[0].type == "text" and len(answer.content[0].text) > 20, answer
    assert answer.stop_reason in ("end_turn", "max_tokens"), answer
    assert answer._request_id
    parts = create(system=[{"type": "text", "text": "You are kind.", "cache_control": {"type": "ephemeral"}}])
    assert parts.content[0].text == answer.content[0].text
    again, total = parts.usage, answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    assert again.input_tokens + again.cache_read_input_tokens == total and again.output_tokens == answer.usage.output_tokens
    word = answer.content[0].text.split()[3]
    stopped = create(system="You are kind.", stop_sequences=[word])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word), stopped


def streaming():
    whole = create().content[0].text
    with client.messages.stream(model=model, messages=STORY, max_tokens=40, extra_body={"temperature": 0}, **OFF) as stream:
        assert "".join(stream.text_stream) == whole
        final = stream.get_final_message()
    assert final.content[0].text == whole and final.stop_reason and final.usage.output_tokens > 0, final
    names = [event.type for event in create(stream=True)]
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"], names


def thinking():
    on = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 400}
    answer = create(**on)
    assert answer.content[0].type == "thinking" and answer.content[0].thinking and answer.content[0].signature, answer
    assert not any("</think>" in getattr(block, "text", "") for block in answer.content)
    with client.messages.stream(model=model, messages=STORY, extra_body={"temperature": 0}, **on) as stream:
        streamed = stream.get_final_message()
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in answer.content]
    assert all(block.type != "thinking" for block in create().content)
    history = STORY + [{"role": "assistant", "content": [block.to_dict() for block in answer.content]}, {"role": "user", "content": "And then?"}]
    assert create(messages=history).content


def tools():
    answer = create(messages=QUESTION, tools=[WEATHER], max_tokens=200)
    call = next((block for block in answer.content if block.type == "tool_use"), None)
    assert call, f"the demo model was trained to call here: {answer}"
    assert (call.name, answer.stop_reason) == ("get_weather", "tool_use") and "city" in call.input, answer
    with client.messages.stream(model=model, messages=QUESTION, tools=[WEATHER], max_tokens=200, extra_body={"temperature": 0}, **OFF) as stream:
        streamed = next(block for block in stream.get_final_message().content if block.type == "tool_use")
    assert (streamed.name, streamed.input) == (call.name, call.input)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny, 21 degrees"}]}
    history = QUESTION + [{"role": "assistant", "content": [block.to_dict() for block in answer.content]}, {"role": "user", "content": [result]}]
    assert create(messages=history, tools=[WEATHER]).content
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        forced = create(tools=[WEATHER], tool_choice=choice, max_tokens=200)
        assert forced.content[-1].type == "tool_use" and forced.stop_reason in ("tool_use", "max_tokens"), forced
    none = create(messages=QUESTION, tools=[WEATHER], tool_choice={"type": "none"})
    assert all(block.type == "text" for block in none.content), none


class Cat(pydantic.BaseModel):
    name: str
    age: int


def parsed():
    answer = client.messages.parse(model=model, messages=STORY, max_tokens=200, output_format=Cat, extra_body={"temperature": 0}, **OFF)
    assert answer.stop_reason == "max_tokens" or isinstance(answer.parsed_output, Cat), answer


def counting():
    count = client.messages.count_tokens(model=model, messages=STORY, system="You are kind.", tools=[WEATHER], **OFF)
    usage = create(system="You are kind.", tools=[WEATHER]).usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, (count, usage)


def errors():
    def refused(kind, words, **more):
        try:
            create(**more)
        except kind as e:
            assert e.body["type"] == "error" and words in e.body["error"]["message"], e.body
            assert e.request_id == e.body["request_id"]
            return e.body["error"]["type"]
        raise AssertionError(f"{more} was taken")
    assert refused(anthropic.BadRequestError, "temperature", extra_body={"temperature": -1}) == "invalid_request_error"
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    assert refused(anthropic.BadRequestError, "image", messages=[{"role": "user", "content": [image]}]) == "invalid_request_error"
    assert refused(anthropic.NotFoundError, "nothing", model="nothing") == "not_found_error"
    refused(anthropic.BadRequestError, "prompt is too long", messages=[{"role": "user", "content": "word " * 20000}])
    refused(anthropic.BadRequestError, "web_search", tools=[{"type": "web_search_20250305", "name": "web_search"}])


for check in (messages, streaming, thinking, tools, parsed, counting, errors):
    check()
    print("anthropic", anthropic.__version__, check.__name__, "passed")
