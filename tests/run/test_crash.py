"""What survives kill -9: attempts, and replies that were paid for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import makers
from kforge.run.journal import RunJournal
from kforge.store.store import Store
from kforge.types import Completion, Message, Prompt, RunSpec, Usage

ROOT = Path(__file__).parents[2]
REPLY = Completion(makers.reply(), "m", Usage(requests=1, dollars=0.25))
PROMPT = Prompt((Message("user", "write"),), sample="0.1.1")


@pytest.mark.cpu
def test_a_run_killed_again_and_again_loses_no_attempt() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "loop.py"), "crash", "--kills", "6", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.match(r"6 kills: (\d+) attempts lost, (\d+) model calls repeated", done.stdout)
    assert found, done.stderr
    assert found[1] == "0"
    # A kill in the microseconds between a reply and its writing down cannot be ruled out, only made rare.
    assert int(found[2]) <= 1
    assert "steps whole, run finished" in done.stdout


@pytest.mark.pure
class TestJournal:
    def run(self, folder: Path, problem: Any) -> tuple[Store, str]:
        store = Store.open(folder / "store")
        return store, store.create_run(RunSpec(problem, models=("m",)))

    def test_a_reply_caught_and_not_kept_is_handed_over(self, tmp_path: Path, scale_relu: Any) -> None:
        store, run = self.run(tmp_path, scale_relu)
        with store:
            journal = RunJournal(store, run)
            journal.catch("generate:0.1.1", PROMPT.id, REPLY)
            journal.close()
            assert store.call(run, "generate:0.1.1") is None
            again = RunJournal(store, run)
            assert again.find("generate:0.1.1") == REPLY
            assert store.spent(run).dollars == 0.25
            again.close()

    def test_a_torn_line_costs_itself_only(self, tmp_path: Path, scale_relu: Any) -> None:
        store, run = self.run(tmp_path, scale_relu)
        with store:
            journal = RunJournal(store, run)
            journal.catch("generate:0.1.1", PROMPT.id, REPLY)
            journal.close()
            path = next((tmp_path / "store" / "replies").iterdir())
            path.write_bytes(path.read_bytes() + b'{"slot": "generate:0.2.1", "comp')
            second = RunJournal(store, run)
            second.catch("generate:0.3.1", PROMPT.id, REPLY)
            second.close()
            third = RunJournal(store, run)
            third.close()
            kept = [store.call(run, f"generate:0.{step}.1") is not None for step in (1, 2, 3)]
            assert kept == [True, False, True]

    def test_the_file_is_private_and_goes_away(self, tmp_path: Path, scale_relu: Any) -> None:
        store, run = self.run(tmp_path, scale_relu)
        with store:
            journal = RunJournal(store, run)
            journal.catch("generate:0.1.1", PROMPT.id, REPLY)
            path = next((tmp_path / "store" / "replies").iterdir())
            assert path.stat().st_mode & 0o077 == 0
            journal.forget()
            journal.close()
            assert not path.exists()
