"""The client library behind `provider:model`, built by pydantic-ai."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from kforge.errors import PluginAbsent, UsageError
from kforge.models import keys
from kforge.models.forms import unknown_model_error

if TYPE_CHECKING:
    from pydantic_ai.models import Model as Client

_RENAMED = {"google-gla": "google", "google-vertex": "google-cloud"}
"""Older names that people still type."""
_OWN_FORMAT = ("anthropic", "google", "openai-responses")
"""Providers whose own wire format is kept at a base URL; every other name there means OpenAI's chat completions."""
_CHATTY = ("openai", "anthropic", "google_genai", "httpx2", "httpcore2")
"""Loggers of client libraries that print whole requests at DEBUG."""


def client_for(spec: str, base_url: str = "") -> Client:
    """The client of a model, at a base URL or at the provider's own address. Nothing is sent.

    Raises UsageError for an unknown provider or a missing key, PluginAbsent for a client that is not installed.
    """
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    provider, _, name = spec.partition(":")
    provider = _RENAMED.get(provider, provider)
    problem: PluginAbsent | UsageError
    try:
        return _server_model(provider, name, base_url) if base_url else infer_model(f"{provider}:{name}")
    except UserError as error:
        problem = _unusable_error(spec, error.message)
    except ImportError as error:
        problem = _not_installed_error(spec, str(error))
    raise problem


def silence_clients() -> None:
    """Client libraries print prompts at DEBUG only where somebody has asked that very library to."""
    for name in _CHATTY:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


def _server_model(provider: str, name: str, base_url: str) -> Client:
    """A model at somebody's own server."""
    from pydantic_ai.models import infer_model
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers import Provider, infer_provider_class
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    def make_provider(kind: str) -> Provider[object]:
        there: dict[str, str] = {"base_url": base_url, "api_key": keys.server_key()}
        return infer_provider_class(kind)(**there)

    if provider in _OWN_FORMAT:
        return infer_model(f"{provider}:{name}", make_provider)
    server = OpenAICompatibleProvider(provider, base_url=base_url, api_key=keys.server_key())
    return OpenAIChatModel(name, provider=server)


def _unusable_error(spec: str, message: str) -> UsageError:
    variable = keys.variable_named_in(message)
    if variable.endswith(("_URL", "_ENDPOINT")):
        return UsageError(f"{spec} needs an address: give a base URL, or export {variable}=http://...")
    if variable:
        return keys.missing_key_error(spec, variable)
    close = re.search(r"Did you mean '([^']+)'", message)
    return unknown_model_error(spec, f" Did you mean {close.group(1)}?" if close else "")


def _not_installed_error(spec: str, message: str) -> PluginAbsent:
    extra = re.search(r"pydantic-ai-slim\[[\w-]+\]", message)
    cure = f": pip install '{extra.group()}'" if extra else ""
    return PluginAbsent(f"{spec} needs a client library that is not installed{cure}")
