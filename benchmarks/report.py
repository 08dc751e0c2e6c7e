"""How large the report of a large study is, how long it takes to make, and how soon a browser shows it.

    PYTHONPATH=tests python benchmarks/report.py [--problems 250] [--configurations 2] [--keep report.html]
    PYTHONPATH=tests python benchmarks/report.py --open report.html     only opens a page that is there

The study is made up, with programs of about 3 KB that differ from iteration to iteration. Opening is timed in Chromium
from asking for the file to the page being drawn and its table ready, and once more for opening a problem. Times are of
this machine; the figures are in docs/reports.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import study_maker
from browser_driver import Browser, browser
from kforge.profilers import _browser
from kforge.reports.findings import find
from kforge.reports.markdown import markdown
from kforge.reports.page import page
from kforge.reports.table import csv_text

READY = "document.documentElement.classList.contains('scripted')"
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=250)
    parser.add_argument("--configurations", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--keep", default="")
    parser.add_argument("--open", type=Path)
    asked = parser.parse_args()
    if asked.open:
        print(f"page: {asked.open.stat().st_size / 1e6:.2f} MB")
        with browser() as chromium:
            show(chromium, asked.open.resolve().as_uri(), "", asked.times)
        return
    names = [f"configuration-{number + 1}" for number in range(asked.configurations)]
    study = study_maker.study(study_maker.Shape(asked.problems, names, iterations=asked.iterations))
    sources = [attempt.candidate.source for trial in study.trials for attempt in trial.history if attempt.candidate]
    average = statistics.mean(map(len, sources))
    print(f"{len(study.trials)} trials, {len(sources)} programs of {average:.0f} characters on average")
    findings = timed("findings (summaries, comparisons)", lambda: find(study))
    text = timed("page", lambda: page(findings))
    print(f"page: {len(text.encode()) / 1e6:.2f} MB")
    timed("Markdown", lambda: markdown(findings))
    timed("CSV", lambda: csv_text(findings))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(asked.keep).resolve() if asked.keep else Path(folder) / "report.html"
        file.write_text(text, encoding="utf-8")
        if _browser.find():
            with browser() as chromium:
                show(chromium, file.as_uri(), study.trials[-1].cell.problem, asked.times)
        else:
            print(f"opening was not timed: {_browser.unavailable_reason()}")


def timed(what: str, make: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    made = make()
    print(f"{what}: {time.perf_counter() - began:.2f} s")
    return made


def show(chromium: Browser, address: str, problem: str, times: int) -> None:
    chromium.resize(1440, 900)
    opened, detailed = [], []
    for _ in range(times):
        began = time.perf_counter()
        chromium.open(address)
        chromium.wait_for(READY)
        chromium.run(DRAWN)
        opened.append(time.perf_counter() - began)
        if not problem:
            continue
        began = time.perf_counter()
        chromium.run(f"location.hash = 'problem={problem}'; 0")
        chromium.wait_for("!document.getElementById('detail').hidden")
        chromium.run(DRAWN)
        detailed.append(time.perf_counter() - began)
    print(f"opening: median {statistics.median(opened):.2f} s, worst {max(opened):.2f} s of {times}")
    if detailed:
        print(f"a problem's details: median {statistics.median(detailed):.2f} s, worst {max(detailed):.2f} s")


if __name__ == "__main__":
    main()
