"""A loopback server that speaks the providers' wire formats and misbehaves on request."""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[[BaseHTTPRequestHandler], None]
"""What the server does with one request, once it has read it."""


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Server:
    """Does the next behaviour for each request, and the last one again and again; remembers what it was sent."""

    url: str
    behaviours: list[Behaviour] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)

    def next_behaviour(self) -> Behaviour:
        return self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]


@contextmanager
def serving() -> Iterator[Server]:
    """A server on a free port of the loopback interface."""
    server = Server("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.received.append(Received(self.path, headers, json.loads(body)))
            server.connections.add(self.client_address)
            server.next_behaviour()(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that hangs up is what some tests are about."""

    with Quiet(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def answer(body: Any, status: int = 200, **headers: str) -> Behaviour:
    """Send JSON; underscores in header names stand for hyphens."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return behave


def fail(status: int, message: str = "something is wrong", **headers: str) -> Behaviour:
    """An error in a shape that all clients read."""
    body = {"type": "error", "error": {"type": "some_error", "code": status, "status": "BAD", "message": message}}
    return answer(body, status, **headers)


def reset(handler: BaseHTTPRequestHandler) -> None:
    """Promise a long body, send a little, and reset the connection."""
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", "100000")
    handler.end_headers()
    handler.wfile.write(b'{"id": "x", ')
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True


def trickle(handler: BaseHTTPRequestHandler) -> None:
    """A byte now and then, for much longer than anybody should wait."""
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", "100000")
    handler.end_headers()
    for _ in range(6000):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.02)


def stream(*events: dict[str, Any]) -> Behaviour:
    """Send server-sent events, and then close the connection."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        for event in events:
            handler.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        handler.close_connection = True

    return behave


INPUT, OUTPUT = 120, 30
"""Tokens that every reply reports."""


@dataclass(frozen=True)
class Dialect:
    """One wire format: what a reply looks like, and where things are in a request."""

    spec: str
    path: str
    """Of the base URL."""
    reply: Callable[[str, str], Any]
    """Text and ending (stop, length, filtered, refused) -> body."""
    texts: Callable[[Any], list[tuple[str, str]]]
    """Request body -> role and text of each part, in order."""
    images: Callable[[Any], list[tuple[str, bytes]]]
    """Request body -> media type and bytes of each image, in order."""
    limits: Callable[[Any], tuple[Any, Any]]
    """Request body -> temperature and output limit."""
    streamed: bool = False
    """Whether the client asks for a stream where no output limit is set."""

    def says(self, text: str, ending: str = "stop") -> Behaviour:
        """A proper reply."""
        body = self.reply(text, ending)
        return stream(*anthropic_events(body)) if self.streamed else answer(body)


def _chat_reply(text: str, ending: str) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if ending == "refused":
        message = {"role": "assistant", "content": None, "refusal": text}
    finish = {"stop": "stop", "length": "length", "filtered": "content_filter", "refused": "stop"}[ending]
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "qwen3",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT},
    }


def _responses_reply(text: str, ending: str) -> Any:
    content: list[Any] = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    if ending == "refused":
        content = [{"type": "refusal", "refusal": text}]
    cut = {"length": "max_output_tokens", "filtered": "content_filter"}.get(ending)
    thought = {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "a secret thought"}]}
    message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": content}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": "gpt-5",
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "error": None,
        "output": [thought, message],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": INPUT,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT + OUTPUT,
        },
    }


def _anthropic_reply(text: str, ending: str) -> Any:
    # Anthropic's models know one way of declining; a filter on the way is the same thing there.
    stop = {"stop": "end_turn", "length": "max_tokens", "filtered": "refusal", "refused": "refusal"}[ending]
    thought = {"type": "thinking", "thinking": "a secret thought", "signature": "s"}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-6",
        "content": [thought, {"type": "text", "text": text}] if text else [],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": INPUT, "output_tokens": OUTPUT},
    }


def anthropic_events(message: Any) -> list[dict[str, Any]]:
    """The same message as the events of a stream."""
    empty = {**message, "content": [], "stop_reason": None, "usage": {"input_tokens": INPUT, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": empty}]
    for index, block in enumerate(message["content"]):
        kind = {"text": "text", "thinking": "thinking"}[block["type"]]
        delta = {"type": f"{kind}_delta", kind: block[kind]}
        events += [
            {"type": "content_block_start", "index": index, "content_block": {**block, kind: ""}},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    return [
        *events,
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": OUTPUT}},
        {"type": "message_stop"},
    ]


def _google_reply(text: str, ending: str) -> Any:
    finish = {"stop": "STOP", "length": "MAX_TOKENS", "filtered": "RECITATION", "refused": "SAFETY"}[ending]
    parts = [{"text": "a secret thought", "thought": True}, {"text": text}] if text else []
    return {
        "candidates": [{"index": 0, "finishReason": finish, "content": {"role": "model", "parts": parts}}],
        "modelVersion": "gemini-2.5-pro",
        "responseId": "g1",
        "usageMetadata": {
            "promptTokenCount": INPUT,
            "candidatesTokenCount": OUTPUT,
            "totalTokenCount": INPUT + OUTPUT,
        },
    }


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _data_url(url: str) -> tuple[str, bytes]:
    head, _, data = url.partition(";base64,")
    return head.removeprefix("data:"), base64.b64decode(data)


def _of_messages(messages: list[Any]) -> list[tuple[str, Any]]:
    return [(message["role"], block) for message in messages for block in _blocks(message["content"])]


def _texts(parts: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(role, block["text"]) for role, block in parts if "text" in block]


def _anthropic_parts(body: Any) -> list[tuple[str, Any]]:
    return [("system", block) for block in _blocks(body.get("system", []))] + _of_messages(body["messages"])


def _google_parts(body: Any) -> list[tuple[str, Any]]:
    system = [("system", part) for part in body.get("systemInstruction", {}).get("parts", [])]
    return system + [(turn["role"], part) for turn in body["contents"] for part in turn["parts"]]


CHAT = Dialect(
    spec="local:qwen3",
    path="/v1",
    reply=_chat_reply,
    texts=lambda body: _texts(_of_messages(body["messages"])),
    images=lambda body: [
        _data_url(block["image_url"]["url"])
        for _, block in _of_messages(body["messages"])
        if block["type"] == "image_url"
    ],
    limits=lambda body: (body.get("temperature"), body.get("max_completion_tokens") or body.get("max_tokens")),
)
RESPONSES = Dialect(
    spec="openai-responses:gpt-4o",
    path="/v1",
    reply=_responses_reply,
    texts=lambda body: _texts(_of_messages(body["input"])),
    images=lambda body: [
        _data_url(block["image_url"]) for _, block in _of_messages(body["input"]) if block["type"] == "input_image"
    ],
    limits=lambda body: (body.get("temperature"), body.get("max_output_tokens")),
)
ANTHROPIC = Dialect(
    spec="anthropic:claude-sonnet-4-6",
    path="",
    reply=_anthropic_reply,
    texts=lambda body: _texts(_anthropic_parts(body)),
    images=lambda body: [
        (block["source"]["media_type"], base64.b64decode(block["source"]["data"]))
        for _, block in _anthropic_parts(body)
        if block["type"] == "image"
    ],
    limits=lambda body: (body.get("temperature"), body.get("max_tokens")),
    streamed=True,
)
GOOGLE = Dialect(
    spec="google:gemini-2.5-pro",
    path="",
    reply=_google_reply,
    texts=lambda body: _texts(_google_parts(body)),
    images=lambda body: [
        (part["inlineData"]["mime_type"], base64.urlsafe_b64decode(part["inlineData"]["data"]))
        for _, part in _google_parts(body)
        if "inlineData" in part
    ],
    limits=lambda body: (
        body.get("generationConfig", {}).get("temperature"),
        body.get("generationConfig", {}).get("maxOutputTokens"),
    ),
)
DIALECTS = (CHAT, RESPONSES, ANTHROPIC, GOOGLE)
