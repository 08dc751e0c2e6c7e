"""What is in no figure or needs a word, and why; problems with the same reason stand together."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.reports.findings import StudyFindings


@dataclass(frozen=True)
class Reason:
    """Problems that one reason holds for."""

    why: str
    problems: tuple[str, ...]
    where: tuple[str, ...] = ()
    """The groups that the reason holds in; empty: in all."""


@dataclass(frozen=True)
class Omission:
    """One way of not being counted, or not as it seems."""

    kind: str
    """filtered, unfinished, unusable, degenerate, unconfirmed or partial."""
    words: str
    """What the kind means."""
    reasons: tuple[Reason, ...]

    @property
    def problems(self) -> int:
        """How many different problems."""
        return len({problem for reason in self.reasons for problem in reason.problems})


KINDS = {
    "unfinished": "not worked on to the end",
    "unusable": "could not be judged: the problem or the harness is at fault",
    "degenerate": "a win on them means nothing",
    "unconfirmed": "won, and were not correct when judged once more: they count as that",
    "partial": "count, although some of their repetitions are not through",
}


def find_omissions(findings: StudyFindings) -> tuple[Omission, ...]:
    """All that does not count, or not as it seems; empty where there is nothing to say."""
    omissions = []
    if findings.study.left_out:
        filtered = {(problem, why): [""] for problem, why in findings.study.left_out.items()}
        omissions.append(Omission("filtered", "taken away by a filter before anything ran", _by_reason(filtered, 1)))
    for kind, meaning in KINDS.items():
        where: dict[tuple[str, str], list[str]] = {}
        for summary in findings.summaries:
            for problem, why in getattr(summary, kind).items():
                where.setdefault((problem, why), []).append(
                    group_name(findings, summary.platform, summary.configuration)
                )
        if where:
            omissions.append(Omission(kind, meaning, _by_reason(where, len(findings.summaries))))
    return tuple(omissions)


def group_name(findings: StudyFindings, platform: str, configuration: str) -> str:
    """A configuration, with its platform where there are several."""
    several = len({summary.platform for summary in findings.summaries}) > 1
    return f"{configuration} on {platform}" if several else configuration


def _by_reason(where: dict[tuple[str, str], list[str]], groups: int) -> tuple[Reason, ...]:
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (problem, why), places in where.items():
        named = () if len(places) == groups else tuple(places)
        together.setdefault((why, named), []).append(problem)
    return tuple(Reason(why, tuple(problems), named) for (why, named), problems in together.items())
