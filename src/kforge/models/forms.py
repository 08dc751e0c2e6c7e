"""How models are named, for whoever got it wrong."""

from __future__ import annotations

from kforge.errors import UsageError

FORMS = """\
  openai:gpt-5                    a hosted model: provider:model, as pydantic-ai names them
  anthropic:claude-sonnet-5-5     another one
  local:qwen3 with a base URL     a server that speaks OpenAI's chat completions
  'command:claude -p'             a program: prompt on standard input, reply on standard output
  mailbox:DIR                     a folder: prompts as files out, replies as files in
  replay:FILE                     a recording"""


def unknown(spec: str, hint: str = "") -> UsageError:
    """The error for a name that means nothing."""
    return UsageError(f"{spec!r} names no model that is known.{hint} The forms are:\n{FORMS}")
