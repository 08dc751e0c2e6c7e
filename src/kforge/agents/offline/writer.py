"""The generation agent that is no model: programs lifted from PyTorch's compiler, one variant after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kforge.agents.base import Draft, Situation
from kforge.agents.offline import rules, variant_history, variants
from kforge.agents.offline.lowering_client import Lowering
from kforge.agents.offline.recipe import LoweringRequest, language_of
from kforge.types import Intent, Recommendation

_WORK_RULES = ("no_custom_kernel", "decorative_kernel", "library_compute")


class OfflineWriter:
    """Chooses the next variant from the chain's past, and has it lifted."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering

    async def write(self, situation: Situation) -> Draft:
        seen = {variant_history.body(attempt.candidate.source) for attempt in situation.past if attempt.candidate}
        notes: list[str] = []
        reason = ""
        for choice in _untried_choices(situation):
            name = choice.name
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
                heading = f"lifted from PyTorch's compiler: {name}"
                return Draft(
                    product.source, notes=(heading, *notes), recommendation=_actual_move(situation, choice, notes)
                )
        return Draft(None, reason or "every variant that could help has been tried", notes=tuple(notes), exhausted=True)


@dataclass(frozen=True)
class _Choice:
    """A variant to try."""

    name: str
    move: rules.RankedMove | None = None
    """The move that leads to it, where that is not the one advised."""


def _actual_move(situation: Situation, choice: _Choice, notes: list[str]) -> Recommendation | None:
    """The move that was made, where it is not the one advised, and what the notes say of that one."""
    if choice.move is None:
        return None
    evidence, advice = choice.move.reading.evidence, situation.recommendation
    if advice is not None:
        advised = variants.combine(variant_history.parent_variant(situation), advice.action)
        why = next((note for note in notes if note.startswith(f"{advised} ")), f"{advised} was tried before")
        evidence += f"; the advice, {advice.action}, was not followed: {why}"
    return Recommendation(variants.VARIANTS[choice.move.action].advice, evidence, choice.move.action)


def _untried_choices(situation: Situation) -> Iterator[_Choice]:
    """The variants to try for a move, in order, none twice."""
    done = variant_history.spent_names(situation)
    for choice in _possible_choices(situation):
        if choice.name not in done:
            done.add(choice.name)
            yield choice


def _possible_choices(situation: Situation) -> Iterator[_Choice]:
    start = variant_history.parent_variant(situation)
    if situation.move.intent is Intent.OPTIMISE:
        advice = situation.recommendation
        if advice is not None and variants.moves_in(advice.action):
            yield _Choice(variants.combine(start, advice.action))
        # Where the advice changes nothing in this program, or there is none, the next move takes its place.
        choices = rules.ranked_moves(situation) if advice is not None else rules.possible_moves(situation)
        for move in choices:
            yield _Choice(variants.combine(start, move.action), move)
        return
    if situation.move.intent is Intent.FRESH:
        yield _Choice(variants.DEFAULT)
    last = situation.past[-1].verdict if situation.past else None
    language, own_work = language_of(situation.target.device_class), last is not None and last.rule in _WORK_RULES
    yield from map(_Choice, variants.repairs(language, own_work))
