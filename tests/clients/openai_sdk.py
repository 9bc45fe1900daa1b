"""The openai package against a running server: chat, streaming, tools, completions, responses, errors."""
import json, sys, typing

import openai, pydantic

base = sys.argv[1]
client = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0)
model = client.models.list().data[0].id
STORY = [{"role": "user", "content": "Tell me a story about a cat."}]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def chat():
    answer = client.chat.completions.create(model=model, messages=STORY, temperature=0, max_tokens=40, extra_body=OFF)
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and len(choice.message.content) > 20, answer
    assert choice.finish_reason in ("stop", "length") and answer.model == model
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    return choice.message.content


def streaming(whole):
    stream = client.chat.completions.create(model=model, messages=STORY, temperature=0, max_tokens=40, stream=True,
                                            stream_options={"include_usage": True}, extra_body=OFF)
    text, usages, finishes = "", 0, []
    for chunk in stream:
        usages += chunk.usage is not None
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finishes += [choice.finish_reason] if choice.finish_reason else []
    assert text == whole and usages == 1 and len(finishes) == 1, (text, usages, finishes)
    # this helper raises where a limit ends the answer, so a stop string ends it here
    with client.chat.completions.stream(model=model, messages=STORY, temperature=0, stop=["."], extra_body=OFF) as events:
        assert events.get_final_completion().choices[0].message.content == whole.split(".")[0]


def reasoning():
    answer = client.chat.completions.create(model=model, messages=STORY, temperature=0, max_tokens=200)
    message = answer.choices[0].message
    assert "</think>" not in (message.content or "") + (getattr(message, "reasoning_content", None) or "")
    none = client.chat.completions.create(model=model, messages=STORY, temperature=0, max_tokens=8, reasoning_effort="none")
    assert getattr(none.choices[0].message, "reasoning_content", None) is None


def tools():
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    answer = client.chat.completions.create(model=model, messages=question, tools=[WEATHER], temperature=0, max_tokens=200, extra_body=OFF)
    message = answer.choices[0].message
    assert message.tool_calls, f"the demo model was trained to call here: {answer}"
    call = message.tool_calls[0]
    assert call.function.name == "get_weather" and answer.choices[0].finish_reason == "tool_calls"
    assert "city" in json.loads(call.function.arguments)
    with client.chat.completions.stream(model=model, messages=question, tools=[WEATHER], temperature=0, max_tokens=200, extra_body=OFF) as events:
        streamed = events.get_final_completion().choices[0].message.tool_calls[0].function
    assert (streamed.name, streamed.arguments) == (call.function.name, call.function.arguments)
    history = question + [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}]
    after = client.chat.completions.create(model=model, messages=history, tools=[WEATHER], temperature=0, max_tokens=60, extra_body=OFF)
    assert after.choices[0].message.content


def completions():
    answer = client.completions.create(model=model, prompt="Once upon a time", temperature=0, max_tokens=8, logprobs=2, echo=False, seed=1)
    assert answer.choices[0].text and len(answer.choices[0].logprobs.tokens) <= 8
    two = client.completions.create(model=model, prompt=["Once", "Twice"], temperature=0, max_tokens=4)
    assert [choice.index for choice in two.choices] == [0, 1]
    text = "".join(chunk.choices[0].text for chunk in client.completions.create(
        model=model, prompt="Once upon a time", temperature=0, max_tokens=8, stream=True))
    assert text == answer.choices[0].text


def choices():
    answer = client.chat.completions.create(model=model, messages=STORY, temperature=1, seed=5, n=2, max_tokens=12, logprobs=True, top_logprobs=3, extra_body=OFF)
    again = client.chat.completions.create(model=model, messages=STORY, temperature=1, seed=5, n=2, max_tokens=12, extra_body=OFF)
    assert [c.message.content for c in answer.choices] == [c.message.content for c in again.choices]
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 3


def responses():
    answer = client.responses.create(model=model, input="Tell me a story about a cat.", temperature=0, max_output_tokens=40, reasoning={"effort": "none"})
    assert answer.output_text and answer.status in ("completed", "incomplete"), answer
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    text, last = "", None
    for event in client.responses.create(model=model, input="Tell me a story about a cat.", temperature=0, max_output_tokens=40, reasoning={"effort": "none"}, stream=True):
        last = event
        text += event.delta if event.type == "response.output_text.delta" else ""
    assert text == answer.output_text and last.response.output_text == text, (text, last)
    flat = {"type": "function", **WEATHER["function"], "strict": False}
    called = client.responses.create(model=model, input="What is the weather in Paris?", tools=[flat], temperature=0, reasoning={"effort": "none"}, max_output_tokens=200)
    call = next(item for item in called.output if item.type == "function_call")
    assert call.name == "get_weather" and "city" in json.loads(call.arguments)
    history = [{"role": "user", "content": "What is the weather in Paris?"}, *[i.model_dump(exclude_none=True) for i in called.output],
               {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    assert client.responses.create(model=model, input=history, tools=[flat], temperature=0, reasoning={"effort": "none"}, max_output_tokens=60).output_text


def parsed():
    class Animal(pydantic.BaseModel):
        kind: typing.Literal["cat", "dog"]
        legs: int
    answer = client.chat.completions.parse(model=model, messages=STORY, temperature=0, max_tokens=60, response_format=Animal, extra_body=OFF)
    assert answer.choices[0].message.parsed.kind in ("cat", "dog"), answer
    forced = client.chat.completions.create(model=model, messages=STORY, temperature=0, max_tokens=100, tools=[WEATHER], extra_body=OFF,
                                            tool_choice={"type": "function", "function": {"name": "get_weather"}})
    assert forced.choices[0].message.tool_calls[0].function.name == "get_weather", forced


def embeddings():
    found = client.embeddings.create(model=model, input=["a cat", "a dog"])
    assert len(found.data) == 2 and abs(sum(x * x for x in found.data[0].embedding) - 1) < 1e-3
    plain = client.embeddings.create(model=model, input="a cat", encoding_format="float")
    assert max(abs(a - b) for a, b in zip(plain.data[0].embedding, found.data[0].embedding)) < 1e-6


def errors():
    def refused(kind, code, **more):
        try:
            client.chat.completions.create(**{"model": model, "messages": STORY, "max_tokens": 4, **more})
        except kind as e:
            assert code is None or e.code == code, e
            return e
        raise AssertionError(f"{more} was taken")
    assert refused(openai.BadRequestError, None, temperature=-1).param == "temperature"
    refused(openai.NotFoundError, "model_not_found", model="nothing")
    refused(openai.BadRequestError, "context_length_exceeded", messages=[{"role": "user", "content": "word " * 20000}])


whole = chat()
streaming(whole)
for check in (reasoning, tools, completions, choices, responses, parsed, embeddings, errors):
    check()
    print("openai", openai.__version__, check.__name__, "passed")
