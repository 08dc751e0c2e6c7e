"""The performance-analysis agent: a model asked for the one change to make next."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from kforge.agents.base import Advice, Situation
from kforge.agents.prompt_maker import PromptMaker
from kforge.models.base import Model
from kforge.types import Completion, Finish, Recommendation

_LONGEST = 2_000
_LONGEST_ANSWER = 40_000
_LABELLED = re.compile(
    r"^[ \t*#_>-]{0,8}recommendation[*_ \t]{0,4}:(?P<text>.+?)^[ \t*#_>-]{0,8}evidence[*_ \t]{0,4}:(?P<evidence>.+)\Z",
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)


class Malformed(Exception):
    """An answer that is not one recommendation; the message says why, for whoever answers again."""


@dataclass(frozen=True)
class ModelAnalyst:
    """Asks a model about a profile; an answer that cannot be read is asked for once more."""

    model: Model
    prompts: PromptMaker

    async def advise(self, situation: Situation) -> Advice:
        written = self.prompts.analyse(situation)
        first = await self.model.complete(written.prompt)
        left_out = tuple(f"left out of the analyst's prompt, for its length: {name}" for name in written.omitted)
        try:
            return Advice(read_advice(first), first.usage, left_out, first.seconds)
        except Malformed as problem:
            why = str(problem)
        second = await self.model.complete(self.prompts.repeat_prompt(written.prompt, first.text, why))
        usage, seconds = first.usage + second.usage, first.seconds + second.seconds
        try:
            notes = (*left_out, f"the analyst was asked twice: {why}")
            return Advice(read_advice(second), usage, notes, seconds)
        except Malformed as problem:
            notes = (*left_out, f"the analyst gave no usable recommendation: {problem}")
            return Advice(None, usage, notes, seconds)


def read_advice(completion: Completion) -> Recommendation:
    """The one recommendation in an answer; Malformed says what is wrong with it."""
    if completion.finish is not Finish.STOP:
        raise Malformed(f"the answer is not whole ({completion.finish.value})")
    text = completion.text.encode("utf-8", "replace").decode().strip()[:_LONGEST_ANSWER]
    objects = [item for item in _json_objects(text) if "recommendation" in item]
    if len(objects) > 1 and any(item != objects[0] for item in objects):
        raise Malformed(f"it holds {len(objects)} recommendations instead of one")
    if objects:
        return _check_recommendation(objects[0]["recommendation"], objects[0].get("evidence", ""))
    labelled = _LABELLED.search(text)
    if labelled:
        return _check_recommendation(labelled["text"].strip(" *_\n"), labelled["evidence"].strip(" *_\n"))
    raise Malformed('it holds no JSON object with "recommendation" and "evidence"' if text else "it is empty")


def _check_recommendation(text: object, evidence: object) -> Recommendation:
    if isinstance(text, list) and len(text) == 1:
        text = text[0]
    if isinstance(text, list):
        raise Malformed(f"it names {len(text)} changes instead of one")
    if isinstance(evidence, list):
        evidence = "; ".join(map(str, evidence))
    if not isinstance(text, str) or not text.strip():
        raise Malformed('"recommendation" is not a sentence')
    if not isinstance(evidence, str) or not evidence.strip():
        raise Malformed('"evidence" is missing: say which facts the recommendation rests on')
    return Recommendation(" ".join(text.split())[:_LONGEST], " ".join(evidence.split())[:_LONGEST])


def _json_objects(text: str) -> list[dict[str, object]]:
    """Every JSON object that stands in a text, outermost only."""
    decoder = json.JSONDecoder(strict=False)
    objects: list[dict[str, object]] = []
    place = text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            if isinstance(value, dict):
                objects.append(value)
        place = text.find("{", end)
    return objects
