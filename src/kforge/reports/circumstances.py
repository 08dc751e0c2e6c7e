"""Where a study was made: what all its sessions share, and in what they differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from kforge.types import Session, Study


@dataclass(frozen=True)
class Fact:
    """One line about the machine or its programs."""

    name: str
    value: str


@dataclass(frozen=True)
class SessionText:
    """One session, as a reader wants it."""

    number: int
    """The session's number, from 1."""
    began: str
    command: str
    trials: int
    """Trials last worked on in it."""
    own: tuple[Fact, ...]
    """What holds for this session and is not shared."""


@dataclass(frozen=True)
class Circumstances:
    """What was run where."""

    shared: tuple[Fact, ...]
    """What holds for every session in which trials were worked on."""
    sessions: tuple[SessionText, ...]
    differing: tuple[str, ...]
    """Names of the facts in which those sessions differ: figures from before and after may not be comparable."""


def circumstances(study: Study) -> Circumstances:
    """The facts of all sessions, each said once."""
    facts = [_facts(session) for session in study.sessions]
    worked = Counter(trial.session for trial in study.trials)
    # A session that only looked on has no figure to compare.
    used = [known for number, known in enumerate(facts) if worked[number]] or facts
    names = list(dict.fromkeys(name for known in used for name in known))
    shared = {name: used[0][name] for name in names if len({known.get(name) for known in used}) == 1}
    sessions = tuple(
        SessionText(
            number + 1,
            moment(datetime.fromtimestamp(session.began, UTC)),
            session.command,
            worked[number],
            tuple(Fact(name, value) for name, value in known.items() if shared.get(name) != value),
        )
        for number, (session, known) in enumerate(zip(study.sessions, facts, strict=True))
    )
    differing = tuple(name for name in names if name not in shared)
    return Circumstances(tuple(Fact(name, value) for name, value in shared.items()), sessions, differing)


def moment(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _facts(session: Session) -> dict[str, str]:
    commit = {"KForge commit": session.commit} if session.commit else {}
    return {**session.machine, **session.versions, **commit}
