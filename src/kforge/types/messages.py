"""What is said to a model, and what comes back."""

from __future__ import annotations

import enum
import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from kforge import jsonable
from kforge.types.evaluation import Image


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    text: str
    images: tuple[Image, ...] = ()
    """Shown after the text."""


@dataclass(frozen=True)
class Prompt:
    """One request to a model."""

    messages: tuple[Message, ...]
    purpose: Literal["generate", "analyse"] = "generate"
    """Which agent asks."""
    sample: str = ""
    """Which independent draw this is (chain, step and ask of a run): equal prompts of two draws are two questions."""
    problem: str = ""
    """The name of the problem it is about, for people who look at many questions; no part of what is asked."""

    @property
    def id(self) -> str:
        """The identity of what is asked: 16 hexadecimal digits over everything but the problem's name."""
        asked = jsonable.encode(self)
        del asked["problem"]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def text(self) -> str:
        """All of it as one text, for models that read a single stream."""
        return "\n\n".join(message.text for message in self.messages)


def draw_name(seed: int, chain: int, step: int, ask: int = 1) -> str:
    """What a prompt's `sample` is called: two runs with other seeds draw apart, and so does a second ask."""
    return f"{f's{seed}-' if seed else ''}{chain}.{step}.{ask}"


@dataclass(frozen=True)
class ModelSettings:
    """How a model is to be asked. None leaves the provider's own default."""

    temperature: float | None = None
    max_output_tokens: int | None = None
    timeout_seconds: float = 600.0
    """Wall clock for one request."""
    base_url: str = ""
    """Where an OpenAI-compatible server listens; empty: the provider's own address."""


@dataclass(frozen=True)
class Usage:
    """What something cost."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    """The known part of the price."""
    unpriced: int = 0
    """Requests whose price is not known; `dollars` leaves them out."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.dollars + other.dollars,
            self.unpriced + other.unpriced,
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Finish(enum.Enum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    """Cut off at the token limit."""
    FILTERED = "filtered"
    """The provider's content filter took it."""
    REFUSED = "refused"
    """The model declined."""


@dataclass(frozen=True)
class Completion:
    """A model's reply."""

    text: str
    model: str
    """The model that gave it, as the user named it."""
    usage: Usage = Usage()
    finish: Finish = Finish.STOP
    seconds: float = 0.0
    """How long it took; 0 for a reply from a cache or a record."""
