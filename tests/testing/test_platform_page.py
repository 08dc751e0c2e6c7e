"""The page on adding a platform works as written: its commands are taken from it and run, in its order."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

PAGE = Path(__file__).parents[2] / "docs/platforms.md"
INSTALLING = "pip install"
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler cc (apt-get install gcc)")
needs_setuptools = pytest.mark.skipif(
    importlib.util.find_spec("setuptools") is None, reason="setuptools is not installed (pip install setuptools)"
)


def blocks() -> list[str]:
    """What stands in the page's shell fences."""
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def shell(commands: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a user's shell does with them; what pip installs lands in a folder of the test's own."""
    site = folder / "site"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(site)))),
        "PIP_TARGET": str(site),
        "PIP_NO_DEPS": "1",
        # pip reads this one the other way round: 0 means that builds are not isolated.
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return subprocess.run(
        ["bash", "-e"], input=commands, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.pure
def test_the_page_has_every_step():
    text = "\n".join(blocks())
    for command in ("kforge platform new", "kforge platform check", "kforge evaluate", INSTALLING):
        assert command in text


@pytest.mark.pure
def test_launches_are_noted_as_the_page_shows(monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (text,) = [block for block in blocks if "enter_runner" in block]
    ran = []

    class Queue:
        def launch(self, kernel, count, *, wait=False):
            ran.append((kernel.name, count, wait))
            return "done"

    monkeypatch.setitem(sys.modules, "acme", SimpleNamespace(Queue=Queue))
    known = {}
    exec(text, known)
    platform = known["Acme"]()
    platform.enter_runner()
    assert platform.notes_launches
    assert platform.launched() == []
    assert Queue().launch(SimpleNamespace(name="gelu"), 64, wait=True) == "done"
    assert ran == [("gelu", 64, True)]
    assert platform.launched() == ["gelu"]
    assert platform.launched() == []


@needs_cc
@pytest.mark.toolchain
@pytest.mark.slow
def test_the_page_works_as_written(tmp_path):
    done = shell("\n".join(block for block in blocks() if INSTALLING not in block), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the contract is kept: 18 kept" in done.stdout
    assert re.search(r"^correct +reference$", done.stdout, re.MULTILINE)
    assert "# C on one core" in done.stdout


@needs_cc
@needs_setuptools
@pytest.mark.toolchain
def test_an_installed_platform_is_found_by_name(tmp_path):
    steps = [block for block in blocks() if block.startswith(("kforge platform new", "cat >")) or INSTALLING in block]
    done = shell("\n".join(steps), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"yes +plain_c", done.stdout)
