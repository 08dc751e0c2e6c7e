"""The generation agent that is no model: programs lifted from PyTorch's compiler, one variant after another."""

from __future__ import annotations

from collections.abc import Iterator

from kforge.agents.base import Draft, Situation
from kforge.agents.offline import rules, variant_history, variants
from kforge.agents.offline.lowering_client import Lowering
from kforge.agents.offline.recipe import LoweringRequest, language_of
from kforge.types import Intent

_WORK_RULES = ("no_custom_kernel", "decorative_kernel", "library_compute")


class OfflineWriter:
    """Chooses the next variant from the chain's past, and has it lifted."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering

    async def write(self, situation: Situation) -> Draft:
        seen = {variant_history.body(attempt.candidate.source) for attempt in situation.past if attempt.candidate}
        notes: list[str] = []
        reason = ""
        for name in _wanted(situation):
            device_class = situation.target.device_class
            order = LoweringRequest(
                situation.problem, device_class, name, variants.recipe(name, language_of(device_class))
            )
            product = await self._lowering.make(order)
            if product.source is None:
                if not situation.past:
                    return Draft(None, product.reason)
                reason = product.reason
                notes.append(variant_history.failed_note(name, reason))
            elif variant_history.body(product.source) in seen:
                notes.append(variant_history.idle_note(name))
            else:
                return Draft(product.source, notes=(f"lifted from PyTorch's compiler: {name}", *notes))
        return Draft(None, reason or "every variant that could help has been tried", notes=tuple(notes), exhausted=True)


def _wanted(situation: Situation) -> Iterator[str]:
    """Names of the variants to try for a move, in order, none twice."""
    spent = variant_history.spent(situation)
    for name in dict.fromkeys(_candidates(situation)):
        if name not in spent:
            yield name


def _candidates(situation: Situation) -> Iterator[str]:
    start = variant_history.parent_variant(situation)
    if situation.move.intent is Intent.OPTIMISE:
        advice = situation.recommendation
        if advice is not None and variants.moves_in(advice.action):
            yield variants.combined(start, advice.action)
        # Where the advice changes nothing in this program, or there is none, the next move takes its place.
        choices = rules.ranked(situation) if advice is not None else rules.possible(situation)
        for choice in choices:
            yield variants.combined(start, choice.action)
        return
    if situation.move.intent is Intent.FRESH:
        yield variants.DEFAULT
    last = situation.past[-1].verdict if situation.past else None
    yield from variants.repairs(
        language_of(situation.target.device_class), last is not None and last.rule in _WORK_RULES
    )
