"""What is known of a study: a summary of each group, and each configuration against the first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata

from kforge.metrics.comparison import compare, questions_of
from kforge.metrics.records import Against, Comparison, Summary
from kforge.metrics.summary import summarise
from kforge.types import Study, Trial


@dataclass(frozen=True)
class StudyFindings:
    """Everything a report says, before it has a form."""

    study: Study
    summaries: tuple[Summary, ...]
    """A summary for each platform and configuration, in the study's order."""
    comparisons: tuple[Comparison, ...]
    """Each configuration against the first one of its platform."""
    made: datetime
    version: str
    """KForge's version."""


def find(study: Study) -> StudyFindings:
    """Summaries of all groups, and all comparisons, which allow for one another."""
    groups = study.groups()
    pairs = list(_pairs(groups))
    several = len({platform for platform, _ in groups}) > 1
    questions = sum(questions_of(groups[a], groups[b]) for a, b in pairs)
    return StudyFindings(
        study,
        tuple(summarise(trials) for trials in groups.values()),
        tuple(
            compare(groups[a], groups[b], (_group_name(a, several), _group_name(b, several)), questions)
            for a, b in pairs
        ),
        datetime.now(UTC),
        _version(),
    )


def any_timed(summaries: Sequence[Summary], against: Against) -> bool:
    """Whether any summary has a time against that baseline; one that is 0 by definition is shown beside those only."""
    return any(against in summary.mean_correct for summary in summaries)


def _pairs(groups: dict[tuple[str, str], tuple[Trial, ...]]) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    for _, keys in itertools.groupby(sorted(groups, key=lambda key: key[0]), key=lambda key: key[0]):
        first, *others = keys
        for other in others:
            yield first, other


def _group_name(key: tuple[str, str], several: bool) -> str:
    platform, configuration = key
    return f"{configuration} on {platform}" if several else configuration


def _version() -> str:
    try:
        return metadata.version("kforge-kernels")
    except metadata.PackageNotFoundError:
        return "source tree"
