"""Help pages and completion: what somebody reads who has never used a command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest
from typer.main import get_command

pytestmark = pytest.mark.pure


def kforge(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # As the installed script does it: the name of the program is what completion goes by.
    script = "import sys; sys.argv[0] = 'kforge'; from kforge.cli.app import main; main()"
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "80", **environment}
    )


def commands() -> dict[str, Any]:
    from kforge.cli.app import app

    return dict(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in commands() if name != "platform"])
def test_every_option_is_named_whole_at_80_columns(name: str) -> None:
    text = kforge(name, "--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for parameter in commands()[name].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("-"):
                assert re.search(rf"(^|\s){re.escape(option)}\b", text), option


def test_the_options_of_a_long_command_stand_in_groups() -> None:
    lines = kforge("forge", "-h").stdout.splitlines()
    titles = [line.rstrip(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Arguments", "Problems", "Search", "Models", "Prompts and profiling", "Judging", "Options"]
    assert len(lines) < 120


def test_every_group_names_options_that_exist() -> None:
    from kforge.cli.option_groups import GROUPS

    known = {parameter.name for command in commands().values() for parameter in command.params}
    assert {name for names in GROUPS.values() for name in names} <= known


def test_a_shell_can_complete_commands_options_and_values() -> None:
    def offered(words: str) -> list[str]:
        # Click's protocol: the words typed so far, and which of them is to be completed.
        count = str(len(words.split()) - (0 if words.endswith(" ") else 1))
        done = kforge(_KFORGE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=count)
        return done.stdout.split()

    assert "forge" in offered("kforge fo")
    assert "--iterations" in offered("kforge forge --it")
    assert offered("kforge forge --platform tri") == ["triton"]


def test_the_options_of_a_worker_stand_together() -> None:
    text = kforge("worker", "--help").stdout
    assert "Configurations" not in text
    assert "Judging" not in text
    assert "--name" in text.partition("Options")[2]
