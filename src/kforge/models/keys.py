"""Which environment variable holds a provider's key, asked before anything is spent."""

from __future__ import annotations

import os
import re

from kforge.errors import UsageError

SERVER_KEY = "KFORGE_SERVER_KEY"
"""The key for a server named by a base URL, if it wants one. A provider's own key is never sent elsewhere."""

_VARIABLES = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "openrouter": ("OPENROUTER_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "xai": ("XAI_API_KEY",),
    "together": ("TOGETHER_API_KEY",),
    "fireworks": ("FIREWORKS_API_KEY",),
    "cerebras": ("CEREBRAS_API_KEY",),
    "moonshotai": ("MOONSHOTAI_API_KEY",),
}
"""The common ones, in the order in which `any_key` looks; any of a provider's variables will do."""

_SAME_KEY = {"openai-chat": "openai", "openai-responses": "openai", "google-gla": "google"}
_VARIABLE = re.compile(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`")


def variables(provider: str) -> tuple[str, ...]:
    """The variables a provider's key may be in; empty for one that only pydantic-ai knows."""
    return _VARIABLES.get(_SAME_KEY.get(provider, provider), ())


def any_key() -> str | None:
    """The first provider whose key is set, or None."""
    return next((provider for provider in _VARIABLES if _is_set(variables(provider))), None)


def require_key(spec: str, base_url: str = "") -> None:
    """Raises UsageError that names the variable if `provider:model` needs a key that is not set.

    A server at a base URL needs none. Providers that are not listed here are asked when the model is built.
    """
    names = variables(spec.partition(":")[0])
    if not base_url and names and not _is_set(names):
        raise missing_key_error(spec, names[0])


def missing_key_error(spec: str, variable: str) -> UsageError:
    """The error that says which variable to set, and how."""
    return UsageError(f"{spec} needs a key, and {variable} is not set. Set it: export {variable}=your-key")


def variable_named_in(message: str) -> str:
    """The first environment variable that pydantic-ai names in an error, or nothing."""
    match = _VARIABLE.search(message)
    return match.group(1) if match else ""


def is_secret(variable: str) -> bool:
    """Whether a key may be in that environment variable: a provider's, or one whose name says so."""
    known = {SERVER_KEY, *(name for group in _VARIABLES.values() for name in group)}
    return variable in known or variable.endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD"))


def secrets() -> tuple[str, ...]:
    """The values of all keys that are set, for keeping them out of messages."""
    names = sorted(filter(is_secret, os.environ))
    return tuple(value for name in names if len(value := os.environ.get(name, "")) >= 8)


def server_key() -> str:
    """What is sent to a server named by a base URL; clients insist on something."""
    return os.environ.get(SERVER_KEY) or "no-key"


def _is_set(names: tuple[str, ...]) -> bool:
    return any(os.environ.get(name) for name in names)
