"""`kforge compare`: two configurations on the same problems."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from kforge import jsonable
from kforge.cli.comparison_lines import print_comparison
from kforge.cli.screen import Screen
from kforge.errors import UsageError
from kforge.experiments.study_reader import is_known, read_study
from kforge.metrics.comparison import compare, questions_of
from kforge.metrics.first_programs import after
from kforge.metrics.records import Comparison
from kforge.reports.findings import find
from kforge.store.experiments import ExperimentRecord, Experiments
from kforge.store.store import Store
from kforge.types import Study, Trial

_MOST = 50
_AFTER = re.compile(r"(.+)@(\d+)")


@dataclass(frozen=True)
class _Side:
    """Groups of trials that may be compared, and what they are called."""

    name: str
    groups: dict[tuple[str, str], tuple[Trial, ...]]
    """By platform and configuration."""


def run(a: str, b: str, platform: str, store: str, as_json: bool) -> int:
    with Store.open(store) as opened:
        comparisons = _compare_within(opened, a, platform) if not b else _compare_between(opened, a, b, platform)
    console = Screen()
    for number, item in enumerate(comparisons):
        if as_json:
            print(json.dumps(jsonable.encode(item)))
            continue
        if number:
            console.print()
        print_comparison(console, item)
    return 0


def _compare_within(store: Store, name: str, platform: str) -> tuple[Comparison, ...]:
    """The configurations of one experiment, each against the first."""
    name, programs = _split_programs(store, name)
    if not is_known(store, name):
        # What is wrong with the name is said there.
        _side(store, name, platform)
        raise UsageError(f"{name} is one side: name the other one too")
    study = _read(store, name, platform, programs)
    comparisons = find(study).comparisons
    if not comparisons:
        raise UsageError(f"{name} has one configuration only: name another experiment to compare it with")
    return comparisons


def _split_programs(store: Store, name: str) -> tuple[str, int]:
    """A name, and after how many programs of each chain: what is behind its @; 0 for the end."""
    written = _AFTER.fullmatch(name)
    if written is None or is_known(store, name):
        return name, 0
    if not int(written[2]):
        raise UsageError(f"{name}: programs are counted from 1, as in {written[1]}@1")
    return written[1], int(written[2])


def _read(store: Store, name: str, platform: str, programs: int) -> Study:
    study = read_study(store, [name])
    if platform:
        study = _select_platform(study, platform)
    if not programs:
        return study
    trials = (
        replace(trial, cell=replace(trial.cell, configuration=_name_after(trial.cell.configuration, programs)))
        for trial in after(study.trials, programs)
    )
    return replace(study, trials=tuple(trials))


def _name_after(configuration: str, programs: int) -> str:
    if not programs:
        return configuration
    return f"{configuration} after {programs} {'program' if programs == 1 else 'programs'}"


def _select_platform(study: Study, platform: str) -> Study:
    trials = tuple(trial for trial in study.trials if trial.cell.platform == platform)
    if not trials:
        there = ", ".join(dict.fromkeys(trial.cell.platform for trial in study.trials))
        raise UsageError(f"{study.name} has nothing on platform {platform}; it has: {there}")
    return replace(study, trials=trials)


def _compare_between(store: Store, a: str, b: str, platform: str) -> tuple[Comparison, ...]:
    pairs = _pairs(_side(store, a, platform), _side(store, b, platform))
    questions = sum(questions_of(one, other) for one, other, _ in pairs)
    return tuple(compare(one, other, names, questions) for one, other, names in pairs)


def _side(store: Store, name: str, platform: str) -> _Side:
    """An experiment, or one configuration of it: a colon stands between them, and either may have more of them."""
    name, programs = _split_programs(store, name)
    for at in (len(name), *(place for place, letter in enumerate(name) if letter == ":")):
        whole, configuration = name[:at], name[at + 1 :]
        if not is_known(store, whole):
            continue
        study = _read(store, whole, platform, programs)
        groups = study.groups()
        if not configuration:
            return _Side(study.name, groups)
        named = _name_after(configuration, programs)
        own = {key: trials for key, trials in groups.items() if key[1] == named}
        if not own:
            there = ", ".join(item.name for item in study.configurations)
            raise UsageError(f"{whole} has no configuration {configuration!r}; it has: {there}")
        return _Side(study.name, own)
    known = [begun for begun in Experiments(store).newest(_MOST) if name in _configurations(begun)]
    if known:
        raise UsageError(f"{name} is a configuration: write {known[0].experiment.name}:{name}, or last:{name}")
    # The error says what there is.
    return _Side(name, read_study(store, [name]).groups())


def _configurations(begun: ExperimentRecord) -> list[str]:
    return [item.name for item in begun.experiment.configurations]


def _pairs(a: _Side, b: _Side) -> list[tuple[tuple[Trial, ...], tuple[Trial, ...], tuple[str, str]]]:
    """What to compare with what: on each platform both have, the one group of each, or those of the same name."""
    pairs = []
    for platform in dict.fromkeys(key[0] for key in a.groups):
        ours = {key[1]: trials for key, trials in a.groups.items() if key[0] == platform}
        theirs = {key[1]: trials for key, trials in b.groups.items() if key[0] == platform}
        if len(ours) == 1 and len(theirs) == 1:
            both = [(next(iter(ours)), next(iter(theirs)))]
        else:
            both = [(name, name) for name in ours if name in theirs]
        for one, other in both:
            names = (_full_name(a.name, one, b.name), _full_name(b.name, other, a.name))
            if len({key[0] for key in a.groups}) > 1:
                names = (f"{names[0]} on {platform}", f"{names[1]} on {platform}")
            if names[0] == names[1]:
                names = (f"{names[0]} (first)", f"{names[1]} (second)")
            pairs.append((ours[one], theirs[other], names))
    if not pairs:
        raise UsageError(
            f"nothing to compare: {_groups_text(a)} and {_groups_text(b)} have no platform and configuration in "
            "common; name one configuration of each, as in EXPERIMENT:CONFIGURATION"
        )
    return pairs


def _full_name(name: str, configuration: str, other: str) -> str:
    return configuration if name == other else f"{name}: {configuration}"


def _groups_text(side: _Side) -> str:
    return f"{side.name} ({', '.join(f'{name} on {platform}' for platform, name in side.groups)})"
