"""`provider:model`: whatever pydantic-ai knows, by its direct requests, one attempt each.

The client libraries' own retries are off: `Retrying` does that, where it can be seen and budgeted.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kforge.errors import ModelError, ModelUnavailable
from kforge.models import keys
from kforge.models.clients import client_for, silence_clients
from kforge.models.failures import FailedRequest, explain
from kforge.models.prices import Rate, dollars, listed_rate
from kforge.types import Completion, Finish, Message, ModelSettings, Prompt, Usage

if TYPE_CHECKING:
    from pydantic_ai import messages as wire
    from pydantic_ai.settings import ModelSettings as Options


class Hosted:
    """A model behind a provider's API, or behind a server that speaks one."""

    def __init__(self, spec: str, settings: ModelSettings = ModelSettings()) -> None:
        """Raises UsageError for an unknown provider or a missing key, PluginAbsent for a client that is not installed.

        Nothing is sent.
        """
        keys.require_key(spec, settings.base_url)
        self._spec = spec
        self._settings = settings
        self._client = client_for(spec, settings.base_url)
        self._address = self._client.base_url or ""
        self._rate = listed_rate(self._client.model_name, self._address)
        self._entered = False
        silence_clients()

    @property
    def name(self) -> str:
        return self._spec

    @property
    def rate(self) -> Rate | None:
        """The listed price; None if it is not listed, as for any local server."""
        return self._rate

    @property
    def reads_pictures(self) -> bool:
        """Whether nothing says that the model does not; only its server knows for sure."""
        return bool(self._client.profile.get("supports_image_input", True))

    async def complete(self, prompt: Prompt) -> Completion:
        started = time.monotonic()
        response = await self._request(prompt)
        if not _is_whole(response):
            raise ModelUnavailable(f"{self._spec}: the reply broke off")
        return Completion(
            text=response.text or _details(response).get("refusal") or "",
            model=self._spec,
            usage=self._usage_of(response),
            finish=finish_of(response),
            seconds=time.monotonic() - started,
        )

    async def close(self) -> None:
        if self._entered:
            self._entered = False
            await self._client.__aexit__(None, None, None)

    def __repr__(self) -> str:
        return f"Hosted({self._spec!r})"

    async def _request(self, prompt: Prompt) -> wire.ModelResponse:
        from pydantic_ai.direct import model_request

        failure: ModelError
        limit = self._settings.timeout_seconds
        try:
            # The clients' timeouts start anew with every byte; this one covers the whole request.
            async with asyncio.timeout(limit):
                if not self._entered:
                    self._entered = True
                    await self._client.__aenter__()
                return await model_request(
                    self._client, conversation(prompt), model_settings=self._options(), instrument=False
                )
        except TimeoutError:
            failure = ModelUnavailable(f"{self._spec}: no whole reply within {limit:g} s")
        except Exception as error:
            failure = explain(error, FailedRequest(self._spec, prompt, self._settings.base_url))
        # Raised out here, so that the client's error, which holds the request, is not dragged along.
        raise failure

    def _options(self) -> Options:
        wanted: Options = {"timeout": self._settings.timeout_seconds, "max_retries": 0}
        if self._settings.temperature is not None:
            wanted["temperature"] = self._settings.temperature
        if self._settings.max_output_tokens is not None:
            wanted["max_tokens"] = self._settings.max_output_tokens
        for name in ("timeout", "max_retries"):
            if name in self._client.unsupported_settings:
                del wanted[name]
        return wanted

    def _usage_of(self, response: wire.ModelResponse) -> Usage:
        names = (response.model_name or self._client.model_name, self._client.model_name)
        paid = dollars(response.usage, names, self._address)
        return Usage(
            requests=1,
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            dollars=paid or 0.0,
            unpriced=int(paid is None),
        )


def conversation(prompt: Prompt) -> list[wire.ModelMessage]:
    """The prompt in pydantic-ai's words: runs of system and user messages are one request."""
    from pydantic_ai import messages as wire

    turns: list[wire.ModelMessage] = []
    for message in prompt.messages:
        if message.role == "assistant":
            turns.append(wire.ModelResponse(parts=[wire.TextPart(message.text)]))
            continue
        if not (turns and isinstance(turns[-1], wire.ModelRequest)):
            turns.append(wire.ModelRequest(parts=[]))
        turns[-1].parts = [*turns[-1].parts, *_request_parts(message)]
    return turns


def finish_of(response: wire.ModelResponse) -> Finish:
    """Why a reply ended. What the model declined and what a filter took look alike to pydantic-ai."""
    if response.finish_reason == "length":
        return Finish.LENGTH
    if response.finish_reason != "content_filter":
        return Finish.STOP
    details = _details(response)
    declined = (
        "refusal" in details
        or details.get("finish_reason") in ("refusal", "SAFETY")
        or details.get("block_reason") == "SAFETY"
    )
    return Finish.REFUSED if declined else Finish.FILTERED


def _is_whole(response: wire.ModelResponse) -> bool:
    """Whether the provider came to an end; clients hand on streams that stopped in the middle."""
    return response.state == "complete" and (response.finish_reason is not None or bool(_details(response)))


def _details(response: wire.ModelResponse) -> dict[str, str]:
    return response.provider_details or {}


def _request_parts(message: Message) -> list[wire.ModelRequestPart]:
    from pydantic_ai import messages as wire

    pictures = [wire.BinaryContent(image.data, media_type=image.media_type) for image in message.images]
    if message.role == "system":
        system: list[wire.ModelRequestPart] = [wire.SystemPromptPart(message.text)]
        return [*system, wire.UserPromptPart(pictures)] if pictures else system
    return [wire.UserPromptPart([message.text, *pictures] if pictures else message.text)]
