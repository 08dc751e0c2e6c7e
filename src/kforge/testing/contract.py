"""A platform's contract: its clauses in order, asked with one judge for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from kforge import registry
from kforge.errors import PlatformFault, UsageError
from kforge.platforms.base import Platform
from kforge.testing import judged_clauses, static_clauses
from kforge.testing.clauses import ClauseResult, ClauseState, ask

_ON_PAPER = {clause.name: clause for clause in static_clauses.CLAUSES}
_BEFORE_JUDGE = {clause.name: clause for clause in judged_clauses.CLAUSES}
CLAUSES = (*_ON_PAPER, *_BEFORE_JUDGE)
"""The names of all clauses, in the order in which they are looked at."""


class Contract:
    """One platform, asked for what every platform must prove. Use it as a context manager, or close it.

    It is named as everywhere, or by the path of its folder.
    """

    def __init__(self, platform: str | Path) -> None:
        self.platform = registry.load("platforms", str(platform.resolve()) if isinstance(platform, Path) else platform)
        self.absent = _absence_reason(self.platform)
        """Why programs cannot be run here; their clauses are then skipped."""
        self._bench: judged_clauses.ContractJudge | None = None
        self._faulty_at = ""
        """The clause at which the platform's own code raised in the judge or a runner: no later one can be asked."""

    def findings(self) -> Iterator[ClauseResult]:
        """Every clause, one after the other."""
        return map(self.finding, CLAUSES)

    def finding(self, name: str) -> ClauseResult:
        """What came of one clause."""
        if name not in CLAUSES:
            raise UsageError(f"the contract has no clause {name!r}; there are: {', '.join(CLAUSES)}")
        if self.absent and (name in _BEFORE_JUDGE or _ON_PAPER[name].where_present):
            return ClauseResult(name, ClauseState.SKIPPED, f"platform {self.platform.name}: {self.absent}")
        if name in _ON_PAPER:
            return ask(_ON_PAPER[name], self.platform)
        if self._faulty_at not in ("", name):
            return ClauseResult(name, ClauseState.SKIPPED, f"the platform raised an error: see {self._faulty_at}")
        try:
            return self._judge_clause(name)
        except PlatformFault as fault:
            self._faulty_at = name
            return ClauseResult(name, ClauseState.BROKEN, str(fault))

    def _judge_clause(self, name: str) -> ClauseResult:
        if self._bench is None:
            try:
                self._bench = judged_clauses.ContractJudge(self.platform)
            except PlatformFault:
                raise
            except Exception as error:
                return ClauseResult(name, ClauseState.BROKEN, f"there can be no judge: {type(error).__name__}: {error}")
        return ask(_BEFORE_JUDGE[name], self._bench)

    def close(self) -> None:
        if self._bench is not None:
            self._bench.close()

    def __enter__(self) -> Contract:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _absence_reason(platform: Platform) -> str:
    try:
        return str(platform.unavailable_reason() or "")
    except Exception as error:
        return f"unavailable_reason raised {type(error).__name__}: {error}"
