"""`kforge prompt`: exactly what would be sent."""

from __future__ import annotations

import asyncio
import json
import sys

from kforge import jsonable
from kforge.agents.base import Situation
from kforge.agents.prompt_maker import FittedPrompt, PromptMaker
from kforge.spec.donor_source import with_donor
from kforge.spec.judging_platform import target_of
from kforge.types import Intent, Move, RunSpec
from kforge.visible_text import visible


def run(spec: RunSpec, store: str, as_json: bool) -> int:
    target = target_of(spec.platform, spec.executor, spec.problem.form)
    spec = asyncio.run(with_donor(spec, target, store))
    situation = Situation(spec.problem, target, Move(0, 1, Intent.FRESH), donor=spec.donor)
    prompts = PromptMaker(spec.style, spec.prompts, spec.prompt_tokens, spec.plan.seed, spec.settings)
    written = prompts.generate(situation)
    if as_json:
        print(json.dumps({**jsonable.encode(written.prompt), "tokens": written.tokens, "omitted": written.omitted}))
        return 0
    _print(written)
    return 0


def _print(written: FittedPrompt) -> None:
    for message in written.prompt.messages:
        print(f"--- {message.role}")
        # In a file it must stay what the model is sent.
        print(visible(message.text) if sys.stdout.isatty() else message.text)
    left_out = f"; left out for its length: {', '.join(written.omitted)}" if written.omitted else ""
    print(f"about {written.tokens} tokens{left_out}", file=sys.stderr)
