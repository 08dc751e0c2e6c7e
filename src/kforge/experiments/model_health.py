"""Models that do not answer, and a budget that is spent: what need not be tried again in a session."""

from __future__ import annotations

from kforge.run.result import RunResult

DEAD_AFTER = 3
"""A model that gave no reply to this many cells in a row is not asked for the rest of the session."""


class ModelHealth:
    """What was learned in a session about who answers."""

    def __init__(self) -> None:
        self._silent: dict[str, set[str]] = {}
        self._reasons: dict[str, str] = {}
        self._broke = ""

    def put_off(self, models: tuple[str, ...]) -> str:
        """Why a cell of these models is not begun now; empty if it is."""
        return next((self._reasons[model] for model in models if model in self._reasons), self._broke)

    def take(self, problem: str, models: tuple[str, ...], result: RunResult) -> None:
        """Note how a cell ended; one hopeless problem, however many cells it has, says nothing about a model."""
        for place, model in enumerate(models):
            # Chain i is the i-th model's, round and round.
            stops = result.stops[place :: len(models)]
            unanswered = [stop.words for stop in stops if stop.reason == "model"]
            self._silent[model] = self._silent.get(model, set()) | {problem} if unanswered else set()
            if len(self._silent[model]) >= DEAD_AFTER:
                self._reasons[model] = f"{model} gave no reply for {DEAD_AFTER} problems in a row: {unanswered[0]}"
        self._broke = next((stop.words for stop in result.stops if stop.reason == "budget"), self._broke)
