"""`kforge report --records`: everything behind a report as files. Programs, replies, evidence that can be replayed."""

from __future__ import annotations

import re
from pathlib import Path

from kforge.cli.evidence_file import save_evidence
from kforge.store.store import Store
from kforge.types import Attempt, Report, Study, Trial, Verdict, draw_name
from kforge.whole_file import write_for_user

_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_ASKED = ("analyse", "generate")
_README = """\
# Records of {name}

A folder for each configuration, in it one for each problem, and in that for every program, by its chain and step:

    1.2.py            the program
    1.2.json          the evidence: verdict, times, settings, machine, versions
    1.2.generate.md   the writer's reply; 1.2.analyse.md the analyst's, where it was asked
    winner.json       the evidence of the winner, judged once more

`kforge evaluate --replay 1.2.json` measures it again and says whether the claim holds.
{problems}"""
_WITHOUT = """
The problems' own texts are not in the records: they are those of {suite}{version}. Name the problem's file beside the
record: `kforge evaluate PROBLEM.py --replay 1.2.json`; its text is checked against the record.
"""


def write_records(store: Store, study: Study, folder: Path, with_problems: bool) -> int:
    """Write the files; how many evidence records there are."""
    version = f" at {study.suite_version}" if study.suite_version else ""
    without = "" if with_problems else _WITHOUT.format(suite=study.suite or "the suite", version=version)
    write_for_user(folder / "README.md", _README.format(name=study.name, problems=without))
    several = len({trial.cell.seed for trial in study.trials}) > 1
    count = 0
    for trial in study.trials:
        cell = trial.cell
        seed = f"-seed{cell.seed}" if several else ""
        home = folder / _plain(f"{cell.platform}-{cell.configuration}{seed}") / _plain(cell.problem)
        for attempt in trial.history:
            count += _write_attempt(store, trial, attempt, home, with_problems)
        if trial.confirmation is not None:
            count += _write_evidence(home / "winner.json", trial, trial.confirmation, with_problems)
    return count


def _write_attempt(store: Store, trial: Trial, attempt: Attempt, home: Path, with_problems: bool) -> int:
    move = attempt.move
    name = f"{move.chain + 1}.{move.step}"
    for purpose in _ASKED:
        for ask in (1, 2):
            reply = store.call(trial.run, f"{purpose}:{draw_name(trial.cell.seed, move.chain, move.step, ask)}")
            if reply is not None:
                again = "" if ask == 1 else "-again"
                write_for_user(home / f"{name}.{purpose}{again}.md", reply.text)
    if attempt.candidate is not None:
        write_for_user(home / f"{name}.py", attempt.candidate.source)
    return _write_evidence(home / f"{name}.json", trial, attempt.verdict, with_problems)


def _write_evidence(path: Path, trial: Trial, verdict: Verdict, with_problems: bool) -> int:
    """1 if there was evidence to write: a reply without a program leaves none."""
    if verdict.evidence is None:
        return 0
    candidate = verdict.evidence.candidate
    report = Report(path.stem, trial.cell.problem, candidate.id, candidate.platform, verdict)
    save_evidence(path, report, with_problems)
    return 1


def _plain(text: str) -> str:
    """A name that every file system takes."""
    return _ODD.sub("_", text)
