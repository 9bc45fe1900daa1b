"""Talks to a served binary as clients do, down to the socket, and puts streamed answers together as they do."""
import contextlib
import http.client
import json
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import server

CHAT, TEXT, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
JSON = {"content-type": "application/json"}


class Refused(Exception):
    """A request that was not answered with 200."""

    def __init__(self, answer):
        super().__init__(f"{answer.status}: {answer.raw[:300]}")
        self.answer = answer


class Answer:
    """A whole response."""

    def __init__(self, response):
        self.status, self.headers, self.raw = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.raw)

    @property
    def error(self):
        """The error that it must be, in the form of OpenAI's API."""
        assert self.status >= 400, f"{self.status}: {self.raw[:300]}"
        error = self.json["error"]
        assert set(error) >= {"message", "type", "code", "param"}, error
        return error


@dataclass
class Said:
    """One choice of an answer."""
    content: str = ""
    reasoning: str = ""
    calls: list = field(default_factory=list)
    finish: str = None
    deltas: list = field(default_factory=list, compare=False)


class Stream:
    """A streamed answer while it is read: events as (name or None, data)."""

    def __init__(self, connection):
        self.connection, self.socket = connection, connection.sock
        self.response = connection.getresponse()
        if self.response.status != 200:
            raise Refused(Answer(self.response))
        assert self.response.headers["content-type"].startswith("text/event-stream"), self.response.headers

    def __iter__(self):
        name = None
        for line in self.response:
            line = line.decode().rstrip("\r\n")      # half a character is an error
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data = line[5:].strip()
                yield name, data if data == "[DONE]" else json.loads(data)
                name = None
            else:
                assert not line or line.startswith(":"), line

    def leave(self):
        """Ends the connection, also while another thread waits for more."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.response.close()
        self.connection.close()


class Server:
    """A server at an address."""

    def __init__(self, base, process):
        host, port = base.removeprefix("http://").rsplit(":", 1)
        self.address, self.process = (host, int(port)), process

    def begin(self, method, path, body=None, headers=None, timeout=120):
        """A connection on which this request has been sent."""
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, data, {**JSON, "connection": "close", **(headers or {})})
        return connection

    def ask(self, method, path, body=None, headers=None, timeout=120):
        with contextlib.closing(self.begin(method, path, body, headers, timeout)) as connection:
            return Answer(connection.getresponse())

    def post(self, path, body, **more):
        return self.ask("POST", path, body, **more)

    def good(self, path, body, **more):
        """The value that a good request is answered with."""
        answer = self.post(path, body, **more)
        if answer.status != 200:
            raise Refused(answer)
        return answer.json

    def stream(self, path, body, timeout=120):
        return Stream(self.begin("POST", path, {**body, "stream": True}, timeout=timeout))

    def events(self, path, body, timeout=120):
        with contextlib.closing(self.stream(path, body, timeout)) as stream:
            return list(stream)

    def socket(self, path, body):
        """A bare connection on which this request has been sent."""
        data = json.dumps(body).encode()
        line = socket.create_connection(self.address, timeout=120)
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        line.sendall(head.encode() + data)
        return line

    def say(self, prompt, path=CHAT, **more):
        """The first choice, which must be the same whole and streamed."""
        return self.choices(prompt, path, **more)[0]

    def choices(self, prompt, path=CHAT, **more):
        body = asked(prompt, path, **more)
        value = self.good(path, body)
        told, usage = (told_chat if path == CHAT else told_text)(
            self.events(path, {**body, "stream_options": {"include_usage": True}}))
        choices = [whole(choice) for choice in sorted(value["choices"], key=lambda c: c["index"])]
        assert choices == told, f"whole {choices}, streamed {told}"
        sums = [{k: u[k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")} for u in (value["usage"], usage)]
        assert sums[0] == sums[1], sums
        return told

    def prompt_tokens(self, body, path=CHAT):
        return self.good(path, {"max_tokens": 1, "temperature": 0, **body})["usage"]["prompt_tokens"]

    def metrics(self):
        """Numbers by name; those with more labels than the model's name are left out."""
        text = self.ask("GET", "/metrics").raw.decode()
        found = re.findall(r"^shardwright:(\w+)\{model_name=\"[^\"]*\"\} (\S+)$", text, re.M)
        return {name: float(value) for name, value in found}

    def wait_until(self, what, holds, seconds=30):
        """Until the metrics are so."""
        end = time.monotonic() + seconds
        while not holds(found := self.metrics()):
            assert time.monotonic() < end, f"{seconds} s without {what}: {found}"
            time.sleep(0.02)

    def wait_until_idle(self, seconds=30):
        self.wait_until("an end of work", lambda m: m["num_requests_running"] == m["num_requests_waiting"] == 0, seconds)

    def memory(self):
        """Bytes that are the process's own, swapped or not."""
        with open(f"/proc/{self.process.pid}/status") as f:
            fields = dict(line.split(":", 1) for line in f)
        return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "VmSwap"))

    def files(self):
        """Open files, connections among them."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@contextlib.contextmanager
def serve(cases, model, *flags):
    """A server on this file."""
    with server.process_of(cases.engine.path, model, *flags) as (base, process):
        yield Server(base, process)


def asked(prompt, path=CHAT, **more):
    """A greedy request."""
    if path == TEXT:
        return {"prompt": prompt, "temperature": 0, "max_tokens": None, **more}
    return {"messages": [{"role": "user", "content": prompt}], "temperature": 0, **more}


def whole(choice):
    """A choice of an unstreamed answer."""
    message = choice.get("message") or {"content": choice["text"]}
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []]
    return Said(message["content"] or "", message.get("reasoning_content") or "", calls, choice["finish_reason"])


def framed(events):
    """The chunks of a stream of OpenAI's APIs, without those that hold the usage and the end, and the usage."""
    *chunks, end = events
    assert end == (None, "[DONE]"), f"the last event is {end}"
    chunks = [data for name, data in chunks if name is None]
    assert len(chunks) == len(events) - 1 and "[DONE]" not in chunks, events
    for chunk in chunks:
        assert "error" not in chunk, chunk
    usage = chunks.pop() if not chunks[-1]["choices"] else {"usage": None}
    for chunk in chunks:
        assert chunk["choices"] and not chunk.get("usage"), chunk
    return chunks, usage["usage"]


def told_chat(events):
    """The choices that a streamed chat comes to, as clients put them together, and its usage."""
    chunks, usage = framed(events)
    said = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        delta, first = choice["delta"], choice["index"] not in said
        one = said.setdefault(choice["index"], Said())
        assert one.finish is None, f"more after the end: {choice}"
        assert ("role" in delta) == first, f"the role in the wrong place: {choice}"
        content, reasoning = delta.get("content") or "", delta.get("reasoning_content") or ""
        assert not (content and reasoning), delta
        one.content, one.reasoning = one.content + content, one.reasoning + reasoning
        for call in delta.get("tool_calls") or []:
            add_call(one.calls, call)
        one.finish = choice["finish_reason"]
        one.deltas += [delta] if content or reasoning or delta.get("tool_calls") else []
    return [said[i] for i in range(len(said))], usage


def add_call(calls, delta):
    name, arguments = delta["function"].get("name"), delta["function"].get("arguments") or ""
    if delta["index"] == len(calls):
        assert delta["id"] and delta["type"] == "function" and name, delta
        calls.append((name, arguments))
    else:
        assert delta["index"] == len(calls) - 1 and not name, delta
        calls[-1] = (calls[-1][0], calls[-1][1] + arguments)


def told_text(events):
    """The choices that a streamed completion comes to, and its usage."""
    chunks, usage = framed(events)
    said = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        one = said.setdefault(choice["index"], Said())
        assert one.finish is None, f"more after the end: {choice}"
        one.content, one.finish = one.content + choice["text"], choice["finish_reason"]
        one.deltas += [choice] if choice["text"] else []
    return [said[i] for i in range(len(said))], usage


def at_once(calls):
    """The results of these functions, all called at the same time."""
    with ThreadPoolExecutor(max(len(calls), 1)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


class Meanwhile:
    """Does something every so often in a thread while the context lasts, and keeps how long each took."""

    def __init__(self, every, do):
        self.every, self.do, self.took, self.failed = every, do, [], None
        self.over, self.thread = threading.Event(), threading.Thread(target=self.run)

    def run(self):
        while not self.over.wait(self.every) and not self.failed:
            begun = time.monotonic()
            try:
                self.do()
            except Exception as e:
                self.failed = e
            self.took.append(time.monotonic() - begun)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
