"""How far an experiment is: what is done, what it cost, how long the rest will take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kforge.run.context import RunEvent
from kforge.types import Cell, Experiment, Outcome, Usage, Verdict

End = Literal["finished", "stopped", "waiting", "failed", "earlier", "put off"]
"""earlier: it was finished before this session; put off: not begun, the same command will."""


@dataclass(frozen=True)
class News:
    """Something happened to a cell: it was begun, something happened in its run, or it ended."""

    cell: Cell
    event: RunEvent | None = None
    end: End | None = None
    reason: str = ""
    verdict: Verdict | None = None
    """At the end: what counts of the winner, if there is one."""
    spent: Usage | None = None
    """What the experiment has cost by now."""


_FIRST = 3
"""Cells before their pace says anything."""
Tell = Callable[[News], None]


@dataclass
class Progress:
    """Counts news. Times are of this session."""

    experiment: Experiment
    usage: Usage = field(default_factory=Usage)
    """What the experiment has cost, earlier sessions included."""
    ends: Counter[str] = field(default_factory=Counter)
    at_work: dict[Cell, str] = field(default_factory=dict)
    """Cells that are being worked on, and what is being done."""
    correct: int = 0
    """Of those that are finished, by now or before."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.total = sum(1 for _ in self.experiment.cells())
        self._began = self.clock()

    def take(self, news: News) -> None:
        if news.spent is not None:
            self.usage = news.spent
        if news.end is None:
            self.at_work[news.cell] = _activity_text(news)
            return
        self.at_work.pop(news.cell, None)
        self.ends[news.end] += 1
        outcome = news.verdict.outcome if news.verdict and news.end in ("finished", "earlier") else None
        self.correct += outcome is Outcome.CORRECT

    @property
    def done(self) -> int:
        """Cells that were worked on as far as they go now, or before."""
        return sum(self.ends.values()) - self.ends["put off"]

    @property
    def seconds(self) -> float:
        return self.clock() - self._began

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end at the pace of this session; None before there is one worth the name."""
        worked = self.ends["finished"] + self.ends["stopped"] + self.ends["failed"]
        left = self.total - self.done - self.ends["put off"]
        return None if worked < _FIRST else self.seconds / worked * left


def _activity_text(news: News) -> str:
    if news.event is None:
        return "begun"
    activity = f"waiting for {news.event.awaits}" if news.event.awaits else news.event.words
    return f"{news.event.step}: {activity}" if news.event.step else activity
