"""The wheel, as somebody else installs it: everything is in it, and it works in an environment of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").is_file())
PACKAGE = ROOT / "src" / "kforge"
PLAIN = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY") and name != "PYTHONPATH"}
QUICK = ["--iterations", "1", "--no-compile-baseline"]

Run = Callable[..., subprocess.CompletedProcess[str]]


def _done(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], cwd=folder, env=PLAIN, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the backend that is installed here: no network is needed."""
    for name in ("build", "hatchling"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed (make setup)")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    done = _done(*build, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the wheel in it.

    Dependencies are this environment's. Its folder comes last on the path and its own .pth files are not read, so that
    an editable KForge in it stays out of sight.
    """
    home = tmp_path_factory.mktemp("environment")
    python = home / "bin" / "python"
    assert _done(sys.executable, "-m", "venv", "--without-pip", home, folder=home).returncode == 0
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel]
    done = _done(*install, folder=home)
    assert done.returncode == 0, done.stderr
    [packages] = home.glob("lib/python*/site-packages")
    ours = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("".join(f"{folder}\n" for folder in ours))
    return python


@pytest.fixture
def kforge(python: Path, tmp_path: Path) -> Run:
    """The installed command, in an empty folder."""
    return lambda *words: _done(python.parent / "kforge", *words, folder=tmp_path)


@pytest.mark.pure
def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    assert names == {name for name in files if "__pycache__" not in name}


@pytest.mark.pure
@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("prompts", "kforge/*/prompts/*/*.j2"),
        ("templates of reports", "kforge/*/template/*.html"),
        ("viewers of traces", "kforge/*/viewer/*.html"),
        ("examples", "kforge/platforms/*/example/candidate.py"),
        ("guides", "kforge/platforms/*/guide.md"),
        ("bundled problems", "kforge/*/bundled/level3/*.py"),
        ("migrations", "kforge/*/migrations/versions/*.py"),
        ("the emulator's headers", "kforge/*/native/*.h"),
        ("the emulator's sources", "kforge/*/native/*.cpp"),
        ("types", "kforge/py.typed"),
    ],
)
def test_data_files_are_in_the_wheel(wheel: Path, what: str, pattern: str) -> None:
    names = [Path(name) for name in zipfile.ZipFile(wheel).namelist()]
    assert [name for name in names if name.match(pattern)], f"{what} are missing"


@pytest.mark.pure
def test_the_description_names_authors_addresses_and_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    for line in ("Name: kforge-kernels", "Author: The KForge authors", "License-Expression: Apache-2.0"):
        assert line in lines
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= {
        line.removeprefix("Project-URL: ").split(",")[0] for line in lines if line.startswith("Project-URL: ")
    }


@pytest.mark.toolchain
@pytest.mark.slow
def test_doctor_forge_and_report_work_where_only_the_wheel_is(kforge: Run, python: Path, tmp_path: Path) -> None:
    where = _done(python, "-c", "import kforge; print(kforge.__file__)", folder=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(python.parent.parent / "lib"), where.stdout + where.stderr

    doctor = kforge("doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert all(word in doctor.stdout for word in ("cpu", "cuda", "metal", "opencl", "triton", "roofline"))

    forged = kforge("forge", "bundled:level1/2", *QUICK, "--to", "best.py")
    assert forged.returncode == 0, forged.stdout + forged.stderr
    assert "correct" in forged.stdout + forged.stderr
    assert "class ModelNew" in (tmp_path / "best.py").read_text()

    report = kforge("report", "last", "--html", "report.html")
    assert report.returncode == 0, report.stdout + report.stderr
    page = (tmp_path / "report.html").read_text()
    assert "level1/2" in page
    assert page.rstrip().endswith("</html>")
