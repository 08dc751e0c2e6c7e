"""Every attack of a catalogue with what the judge says of it, as a table in Markdown.

    python benchmarks/attacks.py > docs/results/attacks-cpu.md
    python tests/catalogue_cuda/judging.py OUT --only hacks       # on a machine with an NVIDIA GPU
    python benchmarks/attacks.py --judged OUT > docs/results/attacks-cuda.md
    python benchmarks/attacks.py --judged docs/results/attacks-cuda.md > NEW    # without a GPU

The first judges the processor's catalogue here, some minutes; the third reads what the one before it wrote. The last
takes over what a page says already, and names the attacks that are not on it as not run.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("", "worker/judge", "catalogue_cuda")]

import judging  # noqa: E402
import test_catalogue as catalogue  # noqa: E402

_JUDGED = re.compile(r"(ok|WRONG|BROKEN|skip) +hacks/(\S+)  expected .*?  got (\S+) (\S+)  (.*?)  [\d.]+ s$")

_ROW = re.compile(r"\| (\w+) \| .* \| (.*) \|$")

_KNOWN = "not refused: a known limit"
_NOT_RUN = "not run yet"


def here() -> Iterator[tuple[str, str, str]]:
    """Attack, what it does, what the judge says of it."""
    from kforge.worker.judge.judge import Judge

    with Judge("cpu") as judge:
        for item in catalogue.entries("hacks"):
            entry = item.values[0]
            yield entry.path.stem, entry.headers["hack"], _said(judge, entry)


def _said(judge: Any, entry: Any) -> str:
    if entry.headers.get("open") == "yes":
        return _KNOWN
    try:
        verdict = catalogue.verdict_of(judge, entry)
        wrong = catalogue.wrong_with_hack(entry, verdict)
        if wrong and catalogue.by_the_clock(verdict):
            verdict = catalogue.verdict_of(judge, entry)
            wrong = catalogue.wrong_with_hack(entry, verdict)
        if wrong and verdict.timing is not None:
            twin = catalogue.benign(entry.headers["twin"])
            wrong = catalogue.wrong_with_hack(entry, verdict, catalogue.verdict_of(judge, twin))
    except pytest.skip.Exception as reason:
        return f"not judged here: {reason}"
    said = verdict.outcome.value + (f" ({verdict.rule})" if verdict.rule else "")
    if verdict.timing is not None:
        low, high = verdict.timing.interval
        said = f"no gain: {verdict.timing.speedup:.2f} ({low:.2f} to {high:.2f})"
    return f"**{wrong}**" if wrong else said


def elsewhere(judged: Path) -> Iterator[tuple[str, str, str]]:
    """The same of the CUDA catalogue, from lines that its own program wrote, or from an earlier page."""
    said = dict(_from_page(judged) if judged.suffix == ".md" else _from_lines(judged))
    for entry in judging.entries("hacks"):
        yield entry.path.stem, entry.headers["hack"], said.get(entry.path.stem, _NOT_RUN)


def _from_page(page: Path) -> Iterator[tuple[str, str]]:
    for line in page.read_text(encoding="utf-8").splitlines():
        match = _ROW.match(line)
        if match is not None and match[1] != "attack" and match[2] != _NOT_RUN:
            yield match[1], match[2].replace("\\_", "_").replace("\\|", "|")


def _from_lines(judged: Path) -> Iterator[tuple[str, str]]:
    for line in judged.read_text(encoding="utf-8").splitlines():
        match = _JUDGED.match(line)
        if match is None:
            continue
        state, name, outcome, rule, detail = match.groups()
        said = outcome + (f" ({rule})" if rule != "-" else "")
        if outcome == "correct":
            said = "no gain: " + detail.partition("; ")[2].replace("x against eager", "")
        yield name, said if state == "ok" else f"**{state} {said}**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judged", type=Path, help="what tests/catalogue_cuda/judging.py wrote, or a page")
    asked = parser.parse_args()
    rows = []
    for row in sorted(elsewhere(asked.judged)) if asked.judged else here():
        rows.append(row)
        print(f"{len(rows)} {row[0]}: {row[2]}", file=sys.stderr, flush=True)
    wrong = sum(row[2].startswith("**") for row in rows)
    known = sum(row[2] == _KNOWN for row in rows)
    print(f"# Every attack on platform {'cuda' if asked.judged else 'cpu'}, and what became of it\n")
    print("Made by `benchmarks/attacks.py`. Refused attacks have their outcome, with the rule where one was broken;")
    print(
        "accepted ones have their speedup over eager, with its interval; where that begins above 1.15, the honest twin"
    )
    print("of the same kernel was judged beside it and is as fast.\n")
    if not asked.judged:
        print("An attack that was timed and seems to get through is judged once more, as the tests do: other work on")
        print("the machine may have had a part in it.\n")
    not_run = sum(row[2] == _NOT_RUN for row in rows)
    later = f" Not run on a GPU: {not_run}." if not_run else ""
    print(
        f"{len(rows)} attacks; {wrong} with another end than they should have, {known} that are known limits.{later}\n"
    )
    print("| attack | what it does | the judge |\n| --- | --- | --- |")
    for row in sorted(rows):
        print("| " + " | ".join(cell.replace("|", "\\|").replace("__", "\\_\\_") for cell in row) + " |")


if __name__ == "__main__":
    main()
