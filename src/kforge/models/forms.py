"""How models are named, for whoever got it wrong."""

from __future__ import annotations

from kforge import registry
from kforge.errors import UsageError

_HOSTED = (
    ("openai:gpt-5", "a hosted model: provider:model, as pydantic-ai names them"),
    ("anthropic:claude-sonnet-5-5", "another one"),
    ("local:qwen3 with a base URL", "a server that speaks OpenAI's chat completions"),
)


def forms() -> str:
    """Every form, a line each: those of providers, then the plug-ins'."""
    own = [(plugin.form or f"{name}:...", plugin.what) for name, plugin in registry.load_all("models").items()]
    return "\n".join(f"  {form:<30}  {what}".rstrip() for form, what in (*_HOSTED, *own))


def unknown_model_error(spec: str, hint: str = "") -> UsageError:
    """The error for a name that means nothing."""
    return UsageError(f"{spec!r} names no model that is known.{hint} The forms are:\n{forms()}")
