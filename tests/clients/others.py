"""langchain-openai and litellm against a running server."""
import os, sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

base = sys.argv[1]
name = sys.argv[2]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}


@tool
def get_weather(city: str) -> str:
    """The weather in a city"""
    return "sunny"


def langchain():
    chat = ChatOpenAI(model=name, base_url=base + "/v1", api_key="none", temperature=0, max_tokens=60, max_retries=0, extra_body=OFF)
    answer = chat.invoke("Tell me a story about a cat.")
    assert answer.content and answer.usage_metadata["total_tokens"] > 0, answer
    assert "".join(piece.content for piece in chat.stream("Tell me a story about a cat.")) == answer.content
    calls = chat.bind_tools([get_weather]).invoke("What is the weather in Paris?").tool_calls
    assert calls and calls[0]["name"] == "get_weather" and "city" in calls[0]["args"], calls
    print("langchain-openai passed")


def lite():
    arguments = dict(model="openai/" + name, api_base=base + "/v1", api_key="none", temperature=0, max_tokens=30, num_retries=0,
                     messages=[{"role": "user", "content": "Tell me a story about a cat."}], extra_body=OFF)
    answer = litellm.completion(**arguments)
    text = answer.choices[0].message.content
    assert text and answer.usage.prompt_tokens > 0, answer
    pieces = litellm.completion(**arguments, stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == text
    try:
        litellm.completion(**{**arguments, "messages": [{"role": "user", "content": "word " * 20000}]})
        raise AssertionError("a prompt that is too long was taken")
    except litellm.ContextWindowExceededError:
        pass
    except litellm.BadRequestError as e:
        assert "context" in str(e), e
    print("litellm passed")


langchain()
lite()
