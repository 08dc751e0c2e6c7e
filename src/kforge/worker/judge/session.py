"""One problem, kept from candidate to candidate: its cases, its timed inputs, its baselines."""

from __future__ import annotations

from kforge.types import Problem, Settings
from kforge.worker.judge.baselines import Baselines
from kforge.worker.judge.casebook import CaseBook
from kforge.worker.judge.nursery import Nursery
from kforge.worker.judge.rotation import Rotation
from kforge.worker.judge.site import Site


class Session:
    """Everything learned of a problem on one platform under one master seed."""

    def __init__(self, problem: Problem, site: Site, trusted: Nursery, settings: Settings, seed: int) -> None:
        self.book = CaseBook(problem, site, seed)
        self.rotation = Rotation(self.book)
        self.baselines = Baselines(self.book, self.rotation, trusted, settings.timing_seconds)

    def close(self) -> None:
        self.baselines.close()
        self.rotation.close()
