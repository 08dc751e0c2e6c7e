"""`kforge report`: what experiments came to, as a page, as Markdown, as a table."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from kforge.cli.record_folder import write_records
from kforge.cli.screen import Screen
from kforge.errors import UsageError
from kforge.experiments.study_reader import read_study
from kforge.reports.findings import StudyFindings, find
from kforge.reports.kernelbench_results import BASELINE, kernelbench_results
from kforge.reports.markdown import markdown
from kforge.reports.page import page
from kforge.reports.table import csv_text
from kforge.store.store import Store
from kforge.types import Study
from kforge.visible_text import visible
from kforge.whole_file import write_for_user


@dataclass(frozen=True)
class Files:
    """Where the report is to go."""

    html: Path | None = None
    markdown: Path | None = None
    csv: Path | None = None
    records: Path | None = None
    """A folder for everything behind the report."""
    kernelbench: Path | None = None
    """A folder for the results as KernelBench's scripts read them."""
    problem_texts: bool = True
    """Whether the problems' own texts go into page and records: they may be somebody else's."""


def run(names: list[str], files: Files, store: str) -> int:
    with Store.open(store) as opened:
        study = read_study(opened, names)
        if not files.problem_texts:
            study = replace(study, trials=tuple(replace(trial, source="") for trial in study.trials))
        findings = find(study)
        console = Screen(stderr=True)
        if files.records is not None:
            count = write_records(opened, study, files.records, files.problem_texts)
            console.print(
                f"{count} evidence records written to {files.records}", highlight=False, markup=False, soft_wrap=True
            )
    if files.kernelbench is not None:
        _write_kernelbench(study, files.kernelbench, console)
    texts = ((files.html, page), (files.markdown, markdown), (files.csv, csv_text))
    for path, make in texts:
        if path is not None and str(path) == "-":
            _show(make(findings))
        elif path is not None:
            write_for_user(path, make(findings))
            console.print(f"written to {path}", highlight=False, markup=False, soft_wrap=True)
    if files.records is None and files.kernelbench is None and all(path is None for path, _ in texts):
        _show(markdown(findings))
    return 0


def _write_kernelbench(study: Study, folder: Path, console: Screen) -> None:
    made = kernelbench_results(study)
    if not made:
        raise UsageError("no problem of it is called as KernelBench's are, like level1/23_Softmax: nothing to write")
    for path, text in made.items():
        write_for_user(folder / path, text)
    for name in dict.fromkeys(path.partition("/")[0] for path in made):
        level = name.rpartition("-level")[2]
        console.print(
            f"{folder / name}: python scripts/benchmark_eval_analysis.py run_name={name} level={level} hardware=any "
            f"baseline=any eval_results_dir={folder} baseline_file={folder / name / BASELINE}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def _show(text: str) -> None:
    """A terminal obeys some characters; a file or another program gets them as they are."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


def write_page(findings: StudyFindings, path: Path) -> None:
    """Write the page, whole or not at all."""
    write_for_user(path, page(findings))
