"""A local server that speaks enough of the OpenAI HTTP API to drive real clients in tests and examples.

    with OpenAIStub(scores=[5, 7, 9]) as stub:
        client = openai.OpenAI(base_url=stub.base_url, api_key="any")

or, as a process of its own, ``python openai_stub.py --port 0 --scores 5,7,9``, which prints its port.

Without a script it plays both sides of an evaluation loop: a request that asks for a verdict gets the next
score of ``scores``, one that asks whether a goal is met gets ``continue`` until ``goal_turns`` requests
have asked, and any other request gets the next of ``answers``. The last score and answer repeat.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeAlias, cast

try:
    from support import responses_api
except ImportError:  # run as a script
    import responses_api

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """A reply that goes wrong.

    Attributes:
        status: HTTP status. With 200 and nothing else set, the default reply is played after the delay.
        retry_after: Value of the Retry-After header, in seconds.
        delay: Seconds to wait before replying.
        malformed: Reply with status 200 and a body that is not JSON.
        drop: Close the connection without a reply.
        message: The message in the error body.
        param: The request field that the error body blames.
    """

    status: int = 500
    retry_after: float | None = None
    delay: float = 0.0
    malformed: bool = False
    drop: bool = False
    message: str = "stub fault"
    param: str | None = None


class Served(NamedTuple):
    """The usage that one reply told its client.

    Attributes:
        request: What it replied to.
        input_tokens: Its ``prompt_tokens``, or ``input_tokens``.
        output_tokens: Its ``completion_tokens``, or ``output_tokens``.
    """

    request: JsonObject
    input_tokens: int
    output_tokens: int


Reply: TypeAlias = str | JsonObject | Fault | None
Script: TypeAlias = Callable[[JsonObject], Reply] | Sequence[Reply]


def tool_call(name: str, arguments: JsonObject | str | None = None, call_id: str | None = None) -> JsonObject:
    """One tool call, for the ``tool_calls`` of a reply (arguments may be a raw string, valid or not)."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {
        "id": call_id or f"call_{name}",
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def message(
    content: str | None = None,
    *,
    tool_calls: Sequence[JsonObject] = (),
    usage: tuple[int, int] | None = None,
) -> JsonObject:
    """A reply with tool calls, or with its token usage (input, output) fixed."""
    reply: JsonObject = {"role": "assistant", "content": content}
    if tool_calls:
        reply["tool_calls"] = list(tool_calls)
    if usage:
        reply["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return reply


def prompt_text(request: JsonObject) -> str:
    """All the text of a request's messages."""
    parts: list[str] = []
    for item in cast("list[JsonObject]", request.get("messages") or []):
        content = item.get("content")
        if isinstance(content, str):
            parts.append(content)
        elif isinstance(content, list):
            blocks = cast("list[JsonObject]", content)
            parts.extend(str(block["text"]) for block in blocks if "text" in block)
    return "\n".join(parts)


def asks_for_score(request: JsonObject) -> bool:
    """Whether the request comes from a judge that wants a score (ours or praisonaiagents')."""
    text = prompt_text(request)
    return "Respond in this EXACT format" in text or '{"score":' in text


def asks_about_goal(request: JsonObject) -> bool:
    """Whether the request comes from a judge that gates a goal (ours or praisonaiagents')."""
    return '{"verdict":' in prompt_text(request)


def environment_for(port: int) -> dict[str, str]:
    """Variables with which OpenAI clients and praisonaiagents use a stub on loopback and nothing else."""
    base_url = f"http://127.0.0.1:{port}/v1"
    return {
        "OPENAI_API_KEY": "stub-key",
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENAI_MODEL_NAME": "gpt-4o-mini",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PRAISONAI_TELEMETRY_DISABLED": "true",
        "DO_NOT_TRACK": "true",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }


class OpenAIStub:
    """The server. A context manager; also usable with ``start()`` and ``close()``.

    Args:
        script: What to reply. A callable from the request's JSON to a reply, or a list of replies in
            order. A reply is text, a message dict (see :func:`message`), a whole response dict (with
            ``choices``), a :class:`Fault`, or None for the default behaviour, which also follows once
            a list has run out.
        scores: Scores of the default judge, in order; the last repeats.
        answers: Answers of the default agent, in order; the last repeats.
        goal_turns: The default goal judge says ``done`` from this request on.
        port: Port on 127.0.0.1; 0 takes a free one.

    Attributes:
        requests: The JSON of every request to ``/v1/chat/completions`` and ``/v1/responses``, in order of
            arrival; those to the latter have their input as ``messages`` too.
        headers: Their headers, with lower-case names.
        served: The usage that replies told their clients, in order; streams tell it only if asked to.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        scores: Sequence[float] = (5.0, 7.0, 9.0),
        answers: Sequence[str] = ("A first draft.", "A better draft.", "A good answer."),
        goal_turns: int = 2,
        port: int = 0,
    ) -> None:
        self.requests: list[JsonObject] = []
        self.headers: list[dict[str, str]] = []
        self.served: list[Served] = []
        self._script = script
        self._scores = list(scores)
        self._answers = list(answers)
        self._goal_turns = goal_turns
        self._lock = threading.Lock()  # protects the records above and the counters below
        self._counts = {"script": 0, "score": 0, "answer": 0, "goal": 0, "id": 0}
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.stub = self
        self._thread: threading.Thread | None = None

    def start(self) -> "OpenAIStub":
        """Serve in a background thread."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop serving and free the port."""
        if self._thread:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()

    def serve_forever(self) -> None:
        """Serve in this thread until interrupted."""
        self._server.serve_forever()

    def __enter__(self) -> "OpenAIStub":  # noqa: PYI034  # Self needs Python 3.11
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_address[1]

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as ``base_url``."""
        return f"http://127.0.0.1:{self.port}/v1"

    def environment(self) -> dict[str, str]:
        """Variables with which OpenAI clients and praisonaiagents use this server and nothing else."""
        return environment_for(self.port)

    def reply_to(self, request: JsonObject, headers: dict[str, str]) -> Reply:
        """Record a request and decide its reply."""
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)
        reply = self._scripted(request)
        if reply is None:
            return self.default_reply(request)
        return reply

    def default_reply(self, request: JsonObject) -> str:
        """What is replied where the script says nothing."""
        if asks_for_score(request):
            score = self._scores[min(self._next("score"), len(self._scores) - 1)]
            return _verdict(score, structured='{"score":' in prompt_text(request))
        if asks_about_goal(request):
            done = self._next("goal") + 1 >= self._goal_turns
            verdict = {"verdict": "done" if done else "continue", "reason": "met" if done else "not yet"}
            return json.dumps(verdict)
        return self._answers[min(self._next("answer"), len(self._answers) - 1)]

    def rewind(self) -> None:
        """Start the script, the scores, the answers and the goal from their beginning again."""
        with self._lock:
            self._counts = dict.fromkeys(self._counts, 0)

    def completion_id(self) -> str:
        """A fresh id for a response."""
        return f"chatcmpl-stub-{self._next('id')}"

    def note_served(self, request: JsonObject, usage: JsonObject) -> None:
        """Remember the usage that a reply tells its client."""
        told = Served(request, usage["prompt_tokens"], usage["completion_tokens"]) if usage else None
        if told is not None:
            with self._lock:
                self.served.append(told)

    def _scripted(self, request: JsonObject) -> Reply:
        if self._script is None:
            return None
        if callable(self._script):
            return self._script(request)
        position = self._next("script")
        return self._script[position] if position < len(self._script) else None

    def _next(self, counter: str) -> int:
        with self._lock:
            value = self._counts[counter]
            self._counts[counter] += 1
            return value


def _verdict(score: float, *, structured: bool) -> str:
    if structured:
        return json.dumps(
            {"score": score, "reasoning": f"Worth {score:g}.", "suggestions": [f"Improve on {score:g}."]}
        )
    return f"SCORE: {score:g}\nREASONING: Worth {score:g}.\nSUGGESTIONS:\n- Improve on {score:g}."


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client may keep its connection open for longer than the stub lives
    request_queue_size = 128
    stub: OpenAIStub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that give up in the middle of a reply are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one segment per reply
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride] # only ever made by _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name for it
        pass

    def do_GET(self) -> None:
        if self.path.rstrip("/").endswith("/models"):
            models = [{"id": "gpt-4o-mini", "object": "model", "created": 0, "owned_by": "stub"}]
            self._send(200, {"object": "list", "data": models})
        else:
            self._send(404, _error(404, f"no such path: {self.path}"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        if not path.endswith(("/chat/completions", "/responses")):
            self._send(404, _error(404, f"no such path: {self.path}"))
            return
        try:
            request: JsonObject = json.loads(body)
        except ValueError:
            self._send(400, _error(400, "the body is not JSON"))
            return
        if path.endswith("/responses"):
            request = {**request, "messages": responses_api.as_messages(request)}
        reply = self.server.stub.reply_to(
            request, {key.lower(): value for key, value in self.headers.items()}
        )
        if isinstance(reply, Fault):
            if self._fault(reply):
                return
            reply = self.server.stub.default_reply(request)
        response = self._response(request, reply if reply is not None else "")
        options: JsonObject = request.get("stream_options") or {}
        include_usage = bool(options.get("include_usage"))
        chunks = _chunks(response, include_usage=include_usage)
        if path.endswith("/responses"):
            include_usage = True
            usage = response["usage"]
            response = responses_api.as_response(response)
            chunks = responses_api.as_events(response)
        else:
            usage = response.get("usage") or {}
        if include_usage or not request.get("stream"):
            self.server.stub.note_served(request, usage)
        if request.get("stream"):
            self._stream(chunks, done=not path.endswith("/responses"))
        else:
            self._send(200, response)

    def _fault(self, fault: Fault) -> bool:
        """Play a fault; False if a proper reply shall follow."""
        if fault.delay:
            time.sleep(fault.delay)
        if fault.drop:
            self.close_connection = True
            self.connection.close()
            return True
        if fault.malformed:
            self._send_bytes(200, b'{"choices": [{"message": ', {})
            return True
        if fault.status == 200:
            return False
        extra = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
        self._send(fault.status, _error(fault.status, fault.message, fault.param), extra)
        return True

    def _response(self, request: JsonObject, reply: str | JsonObject) -> JsonObject:
        if isinstance(reply, dict) and "choices" in reply:
            return reply
        answer: JsonObject = {"content": reply} if isinstance(reply, str) else dict(reply)
        usage = answer.pop("usage", None) or {
            "prompt_tokens": len(prompt_text(request).split()),
            "completion_tokens": len(str(answer.get("content") or "").split()),
        }
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        finish = "tool_calls" if answer.get("tool_calls") else "stop"
        return {
            "id": self.server.stub.completion_id(),
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": request.get("model", "gpt-4o-mini"),
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": None, **answer},
                    "finish_reason": answer.pop("finish_reason", finish),
                }
            ],
            "usage": usage,
        }

    def _send(self, status: int, payload: JsonObject, extra: dict[str, str] | None = None) -> None:
        self._send_bytes(status, json.dumps(payload).encode(), extra or {})

    def _send_bytes(self, status: int, body: bytes, extra: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in extra.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _stream(self, chunks: Iterator[JsonObject], *, done: bool = True) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self._event(json.dumps(chunk))
        if done:
            self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.flush()


def _error(status: int, text: str, param: str | None = None) -> JsonObject:
    return {"error": {"message": text, "type": "stub_error", "param": param, "code": str(status)}}


def _chunks(response: JsonObject, *, include_usage: bool) -> Iterator[JsonObject]:
    """Cut a response into the chunks of a stream: role, words, tool calls, finish, usage."""
    head = {key: response[key] for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    choice = response["choices"][0]
    answer: JsonObject = choice["message"]

    def chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    words = str(answer.get("content") or "").split(" ")
    for position, word in enumerate(words):
        if word or len(words) > 1:
            yield chunk({"content": word if position == 0 else f" {word}"})
    for index, call in enumerate(answer.get("tool_calls") or []):
        function = call["function"]
        opening = {"name": function["name"], "arguments": ""}
        first = {"index": index, "id": call["id"], "type": "function", "function": opening}
        yield chunk({"tool_calls": [first]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]})
    yield chunk({}, choice["finish_reason"])
    if include_usage:
        yield {**head, "choices": [], "usage": response["usage"]}


def main(argv: Sequence[str] | None = None) -> None:
    """Serve in the foreground; the first line of output is the port."""
    parser = argparse.ArgumentParser(description="A local stub of the OpenAI API.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--scores", default="5,7,9", help="scores of the default judge")
    parser.add_argument("--goal-turns", type=int, default=2, help="turn at which the goal is met")
    options = parser.parse_args(argv)
    scores = [float(score) for score in options.scores.split(",")]
    stub = OpenAIStub(scores=scores, goal_turns=options.goal_turns, port=options.port)
    print(stub.port, flush=True)
    try:
        stub.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        stub.close()


if __name__ == "__main__":
    main()
