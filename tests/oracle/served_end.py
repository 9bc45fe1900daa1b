"""Cases of the beginning and the end of a server: O4, O5."""
import contextlib
import signal
import socket
import threading
import time

import server
from served_client import CHAT, Refused, Server, asked, serve

ENDLESS = 60_000


def o4(c):
    c.build("o1")
    c.tally.run("O4 from the first moment to ready", lambda: becomes_ready(c))
    with open("o1.gguf", "rb") as f:
        data = f.read()
    with open("o4_cut.gguf", "wb") as f:
        f.write(data[:-4096])
    with open("o4_lacks.gguf", "wb") as f:
        f.write(data.replace(b"blk.0.attn_q.weight", b"blk.0.attn_z.weight"))
    for model in ("o4_cut.gguf", "o4_lacks.gguf", "no-such-file.gguf"):
        c.tally.run(f"O4 {model} was never ready", lambda: never_ready(c, model))
    with serve(c, "o1.gguf", "--max-num-seqs", "1", "--max-queue", "1") as s:
        c.tally.run("O4 a full queue is no illness", lambda: full_queue(s))


def polled(base, process, until):
    """What health, liveness, the list of models and a request are answered with, again and again."""
    s, seen = Server(base, process), []
    while True:
        with contextlib.suppress(OSError):
            health = s.ask("GET", "/health")
            live, models = s.ask("GET", "/live").status, s.ask("GET", "/v1/models")
            asked_for = s.post(CHAT, asked("A", max_tokens=1))
            seen.append((health, live, models, asked_for))
        if until(seen):
            return seen


def becomes_ready(c):
    begun = time.monotonic()
    # The slowest way to compute, so that there is something to see.
    with server.listening(c.engine.path, "o1.gguf", "--activations", "f32", "--threads", "1") as (base, process):
        listened = time.monotonic() - begun
        seen = polled(base, process, lambda seen: seen and seen[-1][0].status == 200 or time.monotonic() > begun + 60)
        ready_line = any(" ready" in line for line in process.log)
    before = [row for row in seen if row[0].status != 200]
    states = list(dict.fromkeys(row[0].json["status"] for row in before))
    for health, live, models, request in before:
        assert health.status == 503 and health.json["message"] and health.headers["retry-after"], health.raw
        assert live == 200, live
        # It may have become ready between two questions.
        assert (request.status == 503 and request.headers["retry-after"] and request.error) or (request.status == 200 and health is before[-1][0])
        assert models.status == 503 or models.json["data"] == [] or health is before[-1][0], models.raw
    good = before and seen[-1][0].status == 200 and listened < 1 and set(states) <= {"loading", "testing"} and ready_line
    return good, f"listened after {listened:.2f} s, {len(before)} looks at {states} before ready after {time.monotonic() - begun:.1f} s"


def never_ready(c, model):
    with server.listening(c.engine.path, model) as (base, process):
        seen = polled(base, process, lambda _: process.poll() is not None)
        status = process.wait(10)
    ready = any(row[0].status == 200 or row[3].status == 200 for row in seen)
    errors = [line for line in process.log if "error" in line.lower()]
    return status == 1 and not ready and len(errors) >= 1, f"exit {status}, {len(seen)} looks: {''.join(errors).strip()[:160]}"


def full_queue(s):
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(contextlib.closing(s.stream(CHAT, asked("A", max_tokens=ENDLESS))))
        next(iter(running))
        stack.enter_context(contextlib.closing(s.begin("POST", CHAT, asked("A", max_tokens=ENDLESS))))
        s.wait_until("a queue", lambda m: m["num_requests_waiting"] == 1)
        third = s.post(CHAT, asked("A", max_tokens=1))
        health = s.ask("GET", "/health").status
    s.wait_until_idle()
    return third.status == 429 and third.headers["retry-after"] and health == 200, f"{third.status} {third.error['code']}, health {health}"


class Heard(threading.Thread):
    """A request whose end is looked at: how it ended, and when."""

    def __init__(self, s, streamed, tokens):
        super().__init__(daemon=True)
        self.s, self.streamed, self.body = s, streamed, asked("A", max_tokens=tokens)
        self.end, self.ended, self.pieces = None, None, 0
        self.start()

    def run(self):
        try:
            self.end = self.read() if self.streamed else self.s.post(CHAT, self.body).status
        except Refused as e:
            self.end = e.answer.status
        except Exception as e:
            self.end = f"{type(e).__name__}: {e}"
        self.ended = time.monotonic()

    def read(self):
        """`length`, or the code of the error with which the stream ended; the connection must be closed in order."""
        how = None
        with contextlib.closing(self.s.stream(CHAT, self.body)) as stream:
            for _, data in stream:
                assert how != "[DONE]", data
                if data == "[DONE]":
                    return how
                if "error" in data:
                    how = data["error"]["code"]
                else:
                    self.pieces += 1
                    how = data["choices"][0]["finish_reason"]
        return f"no end after {how}"


def o5(c):
    c.build("o1")
    # grace, tokens of the streams, a second signal after, how streams end, seconds until the process has
    rows = [
        ("0 s", 0, ENDLESS, None, "service_unavailable", (0, 2)),
        ("2 s", 2, ENDLESS, None, "service_unavailable", (2, 4)),
        ("60 s, and streams that end", 60, 600, None, "length", (0, 60)),
        ("60 s, and a second signal", 60, ENDLESS, 1, "service_unavailable", (1, 3)),
    ]
    for name, *row in rows:
        c.tally.run(f"O5 grace {name}", lambda: ends(c, *row))


def ends(c, grace, tokens, again, how, within):
    flags = ("o1.gguf", "--max-num-seqs", "3", "--shutdown-grace", str(grace))
    with server.listening(c.engine.path, *flags) as (base, process):
        server.wait_until_ready(base, process)
        s = Server(base, process)
        streams = [Heard(s, True, tokens) for _ in range(3)]
        s.wait_until("three streams", lambda m: m["num_requests_running"] == 3 and all(r.pieces > 2 for r in streams))
        queued = [Heard(s, streamed, 5) for streamed in (False, True)]
        s.wait_until("a queue of two", lambda m: m["num_requests_waiting"] == 2)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        late = at_the_door(s)
        if again:
            time.sleep(begun + again - time.monotonic())
            process.send_signal(signal.SIGTERM)
        status = process.wait(grace + 30)
        took = time.monotonic() - begun
        for thread in (*streams, *queued):
            thread.join(5)
    waited = max(thread.ended - begun for thread in queued)
    found = {"streams": [r.end for r in streams], "queued": [r.end for r in queued], "late": late}
    # The status of a stream that waits has been sent; it hears the same as an event.
    good = found == {"streams": [how] * 3, "queued": [503, "service_unavailable"], "late": True}
    good &= status == 0 and within[0] - 0.1 <= took <= within[1] and waited <= 1
    return good, f"{found}, the queue heard after {waited:.2f} s, exit {status} after {took:.2f} s"


def at_the_door(s):
    """Who comes now is refused at once, by the system or with 503; health says so while there is somebody to say it."""
    begun = time.monotonic()
    while time.monotonic() < begun + 0.5:
        try:
            answers = [s.post(CHAT, asked("A", max_tokens=1)), s.ask("GET", "/health")]
        except OSError:
            return s.process.poll() is not None or refused(s)
        if [answer.status for answer in answers] == [503, 503]:
            return bool(answers[0].headers["retry-after"])
    return [answer.status for answer in answers]


def refused(s):
    with contextlib.closing(socket.socket()) as line:
        return line.connect_ex(s.address) != 0
