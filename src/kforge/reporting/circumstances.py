"""Where a study was made: what all its sittings share, and in what they differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from kforge.types import Sitting, Study


@dataclass(frozen=True)
class Fact:
    """One line about the machine or its programs."""

    name: str
    value: str


@dataclass(frozen=True)
class Sat:
    """One sitting, as a reader wants it."""

    number: int
    """From 1."""
    began: str
    command: str
    trials: int
    """Trials last worked on in it."""
    own: tuple[Fact, ...]
    """What holds for it and is not shared."""


@dataclass(frozen=True)
class Circumstances:
    """What was run where."""

    shared: tuple[Fact, ...]
    """What holds for every sitting in which trials were worked on."""
    sittings: tuple[Sat, ...]
    differing: tuple[str, ...]
    """Names of the facts in which those sittings differ: figures from before and after may not be comparable."""


def circumstances(study: Study) -> Circumstances:
    """The facts of all sittings, each said once."""
    facts = [_facts(sitting) for sitting in study.sittings]
    worked = Counter(trial.sitting for trial in study.trials)
    # A sitting that only looked on has no figure to compare.
    used = [found for number, found in enumerate(facts) if worked[number]] or facts
    names = list(dict.fromkeys(name for found in used for name in found))
    shared = {name: used[0][name] for name in names if len({found.get(name) for found in used}) == 1}
    sittings = tuple(
        Sat(
            number + 1,
            moment(datetime.fromtimestamp(sitting.began, UTC)),
            sitting.command,
            worked[number],
            tuple(Fact(name, value) for name, value in found.items() if shared.get(name) != value),
        )
        for number, (sitting, found) in enumerate(zip(study.sittings, facts, strict=True))
    )
    differing = tuple(name for name in names if name not in shared)
    return Circumstances(tuple(Fact(name, value) for name, value in shared.items()), sittings, differing)


def moment(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _facts(sitting: Sitting) -> dict[str, str]:
    commit = {"KForge commit": sitting.commit} if sitting.commit else {}
    return {**sitting.machine, **sitting.versions, **commit}
