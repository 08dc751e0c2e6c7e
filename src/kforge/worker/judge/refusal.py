"""How an evaluation ends before its time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kforge.types import Outcome
from kforge.worker.judge.lane import NONSENSE
from kforge.worker.judge.runner_handle import RunnerLost


class Refused(Exception):
    """The evaluation ends here."""

    def __init__(self, outcome: Outcome, detail: str, rule: str = "") -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.rule = rule


@contextlib.contextmanager
def refuse_nonsense() -> Iterator[None]:
    """Turn what reading a runner's reply raises into RunnerLost: one that cannot be read ends the conversation."""
    try:
        yield
    except NONSENSE as error:
        raise RunnerLost("protocol", f"a reply that makes no sense ({type(error).__name__})") from None
