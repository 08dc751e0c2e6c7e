"""The loop's commands, as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kforge.cli.evidence_file import load_evidence
from kforge.types import Outcome

HERE = Path(__file__).parents[1]
KFORGE = [sys.executable, "-m", "kforge.cli.app"]
PROBLEM = HERE / "catalogue/problems/scale_relu.py"
KERNEL = HERE / "catalogue/benign/example_style.py"
QUICK = ["--no-compile-baseline", "--iterations", "1"]
NO_KEYS = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kforge(kforge_warm: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """A command in this process, in a folder of its own, without keys; what it judges, the warm judge does."""
    monkeypatch.chdir(tmp_path)
    for name in set(os.environ) - set(NO_KEYS):
        monkeypatch.delenv(name)
    return kforge_warm


@pytest.mark.pure
@pytest.mark.parametrize("command", ["forge", "resume", "runs", "show", "export", "prompt"])
def test_help(kforge_here: Run, command: str) -> None:
    done = kforge_here(command, "--help")
    assert done.returncode == 0
    assert command in done.stdout


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["forge", "nowhere.py"], "nowhere.py: cannot be read"),
        (["forge", PROBLEM, "--model", "openai:gpt-5"], "export OPENAI_API_KEY="),
        (["forge", PROBLEM, "--model", "anthropic:any", "--budget", "1"], "export ANTHROPIC_API_KEY="),
        (["forge", PROBLEM, "--model", "command:no-such-program-here"], "no-such-program-here"),
        (["forge", PROBLEM, "--model", "what"], "provider:model"),
        (["forge", PROBLEM, "--platform", "abacus"], "no platform is called 'abacus'"),
        (["forge", PROBLEM, "--policy", "lax"], "strict, hybrid, any"),
        (["forge", PROBLEM, "--samples", "3"], "always write the same"),
        (["forge", PROBLEM, "--reference", "no/such/file.cu"], "no/such/file.cu"),
        (["show", "nothing"], "nothing"),
        (["resume"], "no run"),
    ],
)
def test_a_request_that_cannot_work_says_what_to_do(kforge: Run, words: list[Any], says: str, tmp_path: Path) -> None:
    done = kforge(*words)
    assert done.returncode == 2, done.stdout
    assert says in " ".join((done.stderr + done.stdout).replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert words[0] != "forge" or not (tmp_path / ".kforge").exists(), "nothing is begun"


@pytest.mark.pure
def test_prompt_prints_what_would_be_sent(kforge_here: Run) -> None:
    done = kforge_here("prompt", PROBLEM)
    assert done.returncode == 0
    assert "# Task" in done.stdout
    assert "about" in done.stderr
    data = json.loads(kforge_here("prompt", PROBLEM, "--json").stdout)
    assert [message["role"] for message in data["messages"]] == ["system", "user"]
    assert all(message["text"] in done.stdout for message in data["messages"])


@pytest.mark.toolchain
def test_forge_with_a_command_then_runs_show_export_and_replay(kforge: Run, tmp_path: Path) -> None:
    answer = tmp_path / "answer.py"
    answer.write_text(
        "import sys\n"
        f"program = open({str(KERNEL)!r}).read()\n"
        "asked = sys.stdin.read()\n"
        "assert 'ModelNew' in asked\n"
        "print('Here you are.\\n```python\\n' + program + '```')\n"
    )
    model = f"command:{sys.executable} {answer}"
    done = kforge("forge", PROBLEM, "--model", model, *QUICK, "--to", "best.py", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["correct"]
    assert result["usage"]["unpriced"] == 1
    assert "class ModelNew" in (tmp_path / "best.py").read_text()

    listed = kforge("runs", "--json")
    assert json.loads(listed.stdout)["id"] == result["run"]
    shown = kforge("show", result["run"][:20])
    assert "correct" in shown.stdout
    assert "Forged by KForge" in (tmp_path / "best.py").read_text()
    assert "class ModelNew" in kforge("show", "--step", "1").stdout

    out = kforge("export", "last", "--to", "out/kernel.py", "--evidence", "out/kernel.json")
    assert out.returncode == 0, out.stderr
    assert (tmp_path / "out/kernel.py").read_text() == (tmp_path / "best.py").read_text()
    record = load_evidence(tmp_path / "out/kernel.json")
    assert record.verdict.outcome is Outcome.CORRECT
    assert record.candidate == result["attempts"][0]["candidate"]


@pytest.mark.toolchain
def test_a_budget_is_for_all_problems_of_a_command_and_stays_spent(kforge: Run, tmp_path: Path) -> None:
    answer = tmp_path / "answer.py"
    answer.write_text(f"print('```python\\n' + open({str(KERNEL)!r}).read() + '```')\n")
    problems = [tmp_path / "one.py", tmp_path / "two.py"]
    for number, path in enumerate(problems):
        path.write_text(f"# {number}\n" + PROBLEM.read_text())
    words = ["--model", f"command:{sys.executable} {answer}", *QUICK, "--analyst-model", "none", "--store", "a store"]
    done = kforge("forge", *problems, *words, "--budget-tokens", "3000")
    assert done.returncode == 1, done.stdout + done.stderr
    printed = kforge("runs", "--json", "--store", "a store").stdout
    listed = [json.loads(line) for line in printed.splitlines()]
    assert [item["attempts"] for item in listed] == [0, 1], "newest first"
    assert f"kforge show {listed[0]['id']} --store 'a store'" in done.stdout
    again = kforge("resume", "--store", "a store")
    assert again.returncode == 1, again.stdout
    assert "budget" in again.stdout


@pytest.mark.toolchain
def test_ctrl_c_loses_nothing_and_resume_asks_nothing_twice(tmp_path: Path) -> None:
    mail = tmp_path / "mail"
    command = [
        *KFORGE,
        "forge",
        str(PROBLEM),
        "--model",
        f"mailbox:{mail}",
        "--no-compile-baseline",
        "--iterations",
        "2",
    ]
    started = subprocess.Popen(command, cwd=tmp_path, env=NO_KEYS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    first = _question(mail, started, 1)
    _answer(first, KERNEL.read_text())
    second = _question(mail, started, 2)
    assert "analyse" in second.name
    started.send_signal(signal.SIGINT)
    said = started.communicate(timeout=600)[0].decode()
    assert started.returncode == 130, said
    assert "kforge resume" in said
    assert "Traceback" not in said

    _answer(second, '{"recommendation": "Use wider vectors.", "evidence": "narrow ones"}', fenced=False)
    resumed = subprocess.Popen(
        [*KFORGE, "resume"], cwd=tmp_path, env=NO_KEYS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    third = _question(mail, resumed, 3)
    _answer(third, KERNEL.read_text().replace("import torch\n", "import torch  # again\n", 1))
    said = resumed.communicate(timeout=600)[0].decode()
    assert resumed.returncode == 0, said
    assert len(list(mail.glob("*.prompt.md"))) == 3


def _question(mail: Path, process: subprocess.Popen[bytes], number: int) -> Path:
    """The newest prompt in the mailbox, once there are so many."""
    for _ in range(3000):
        found = sorted(mail.glob("*.prompt.md"), key=lambda path: path.stat().st_mtime)
        if len(found) >= number:
            return found[-1]
        assert process.poll() is None, process.communicate()[0].decode()
        time.sleep(0.1)
    raise AssertionError("no question came")


def _answer(question: Path, text: str, fenced: bool = True) -> None:
    reply = question.with_name(question.name.replace(".prompt.md", ".reply.md"))
    partial = reply.with_suffix(".partial")
    partial.write_text(f"```python\n{text}```\n" if fenced else text)
    partial.rename(reply)
