"""`kforge prompt`: exactly what would be sent."""

from __future__ import annotations

import asyncio
import json
import sys

from kforge import jsonable
from kforge.agents.base import Situation
from kforge.agents.prompt_maker import PromptMaker, Written
from kforge.spec.run_spec import Options, make_request, target_of
from kforge.types import Intent, Move
from kforge.visible_text import visible


def run(place: str, platform: str, options: Options, as_json: bool, store: str = "") -> int:
    target = target_of(platform)
    request = asyncio.run(make_request(place, platform, "prompt-only", options, target, store))
    situation = Situation(
        request.problem, target, Move(0, 1, Intent.FRESH), (), request.reference, request.reference_origin
    )
    prompts = PromptMaker(options.style, options.prompts, options.prompt_tokens, options.plan.seed)
    written = prompts.generate(situation)
    if as_json:
        print(json.dumps({**jsonable.encode(written.prompt), "tokens": written.tokens, "omitted": written.omitted}))
        return 0
    _print(written)
    return 0


def _print(written: Written) -> None:
    for message in written.prompt.messages:
        print(f"--- {message.role}")
        # In a file it must stay what the model is sent.
        print(visible(message.text) if sys.stdout.isatty() else message.text)
    left_out = f"; left out for its length: {', '.join(written.omitted)}" if written.omitted else ""
    print(f"about {written.tokens} tokens{left_out}", file=sys.stderr)
