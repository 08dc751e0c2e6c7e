"""`kforge platform new`: a copy of a platform's folder under another name, made a package that can be installed."""

from __future__ import annotations

import ast
import io
import keyword
import re
import shutil
import tokenize
from pathlib import Path

from rich.markup import escape

from kforge import registry
from kforge.cli.screen import Screen
from kforge.errors import UsageError
from kforge.platforms.base import Platform

_LEFT = shutil.ignore_patterns("__pycache__", ".*", "build", "dist", "*.egg-info", "tests", "pyproject.toml")
_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "kforge-{dashed}"
version = "0.1.0"
description = "The platform {name} for KForge."
requires-python = ">=3.11"
dependencies = ["kforge-kernels"]

[project.entry-points."kforge.platforms"]
{name} = "kforge_{name}.platform:PLUGIN"

[tool.setuptools]
packages = ["kforge_{name}"]
package-dir = {{ kforge_{name} = "." }}

[tool.setuptools.package-data]
kforge_{name} = ["*.md", "example/*.py", "example/broken/*.py"]
"""
_TEST = '''\
"""Does the platform {name} keep KForge's contract? What this machine lacks is skipped by name."""

from pathlib import Path

import pytest

from kforge.testing import CLAUSES, ClauseState, Contract


@pytest.fixture(scope="module")
def contract():
    with Contract(Path(__file__).resolve().parents[1]) as opened:
        yield opened


@pytest.mark.parametrize("clause", CLAUSES)
def test_contract(contract, clause):
    finding = contract.finding(clause)
    if finding.mark is ClauseState.SKIPPED:
        pytest.skip(finding.said)
    assert finding.mark is ClauseState.KEPT, finding.said
'''


def run(name: str, source: str, into: Path) -> int:
    """0 once the folder is there."""
    console, folder = Screen(), make(name, source, into)
    console.print(f"made [bold]{escape(str(folder))}[/] from {escape(source)}:", highlight=False)
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        console.print(f"  {escape(str(path.relative_to(folder)))}", highlight=False)
    console.print(f"next: kforge platform check {escape(str(folder))}", highlight=False, soft_wrap=True)
    return 0


def make(name: str, source: str, into: Path) -> Path:
    """The new platform's folder; UsageError where the name or the place is taken or cannot be used."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(f"a platform cannot be called {name!r}: use small letters, digits and _, as in my_accelerator")
    if name in registry.names("platforms"):
        raise UsageError(f"there is a platform called {name} already: choose another name")
    platform: Platform = registry.load("platforms", source)
    folder = into / name
    if folder.exists():
        raise UsageError(f"{folder} is there already: remove it, or choose another place with --into")
    try:
        shutil.copytree(platform.home(), folder, ignore=_LEFT)
        code = folder / "platform.py"
        code.write_text(rename_platform(code.read_text(encoding="utf-8"), platform.name, name), encoding="utf-8")
        (folder / "__init__.py").touch()
        (folder / "pyproject.toml").write_text(_PYPROJECT.format(name=name, dashed=name.replace("_", "-")))
        (folder / "tests").mkdir()
        (folder / "tests" / "test_contract.py").write_text(_TEST.format(name=name))
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}") from None
    return folder


def rename_platform(code: str, old: str, new: str) -> str:
    """A platform's code under another name: its `name`, and its classes that are called after it."""
    lines = code.splitlines(keepends=True)
    classes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ClassDef)]
    camel = "".join(word.capitalize() for word in new.split("_"))
    new_names = {node.name: re.sub(old.replace("_", ""), camel, node.name, flags=re.IGNORECASE) for node in classes}
    # From the end, so that what is replaced moves nothing that is yet to be.
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(code).readline))):
        if token.type == tokenize.NAME and token.string in new_names:
            (line, begin), (_, end) = token.start, token.end
            lines[line - 1] = lines[line - 1][:begin] + new_names[token.string] + lines[line - 1][end:]
    for line in (each.lineno - 1 for node in classes for each in node.body if _sets_name(each, old)):
        lines[line] = re.sub(r"=.*", f'= "{new}"', lines[line], count=1)
    return "".join(lines)


def _sets_name(node: ast.stmt, name: str) -> bool:
    """Whether a statement says `name = "..."`."""
    return isinstance(node, ast.Assign) and ast.unparse(node) == f"name = {name!r}"
