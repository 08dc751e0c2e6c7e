"""An exported package, read back to be judged: its files against their hashes, its record against its files."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kforge import jsonable
from kforge.errors import UsageError, WireError
from kforge.packages.description import FORMAT, LIVE_FILE, Winner
from kforge.packages.hugging_face import kernel_files
from kforge.packages.package_files import package_files
from kforge.types import Candidate, Evidence, Problem, Report


@dataclass(frozen=True)
class ReadPackage:
    """What a package says of itself."""

    name: str
    home: Path
    """The folder that is imported."""
    verified: dict[str, Any]
    claim: Report
    """The verdict it was exported with."""
    evidence: Evidence

    @property
    def problem(self) -> Problem:
        return self.evidence.problem

    @property
    def candidate(self) -> Candidate:
        return self.evidence.candidate


def read_package(folder: Path) -> ReadPackage:
    """A package from its folder; UsageError says what is missing, damaged or changed."""
    home = _home(folder)
    verified = _json(home / "verified.json")
    if verified.get("kforge_package") != FORMAT:
        raise UsageError(f"{home}: a package of format {verified.get('kforge_package')}; this KForge reads {FORMAT}")
    for file, wanted in verified["files"].items():
        try:
            found = hashlib.sha256((home / file).read_bytes()).hexdigest()
        except OSError as error:
            raise UsageError(f"{home / file}: {error.strerror}: the package is damaged") from None
        if found != wanted:
            raise UsageError(f"{home / file}: not the file that was exported: export what you changed anew")
    _check_built(home, verified["built"])
    record = _json(home / "evidence.json")
    record.pop("kforge_evidence", None)
    try:
        claim = jsonable.decode(Report, record)
    except WireError as error:
        raise UsageError(f"{home / 'evidence.json'}: not an evidence record: {error}") from None
    evidence = claim.verdict.evidence
    if evidence is None or evidence.candidate.source != (home / "program.py").read_text(encoding="utf-8"):
        raise UsageError(f"{home / 'evidence.json'}: the record of another program than {home / 'program.py'}")
    if evidence.problem.payload:
        # The captured module lies in the package, and no longer where it was captured.
        problem = replace(evidence.problem, payload=str((home / LIVE_FILE).absolute()))
        evidence = replace(evidence, problem=problem)
    return ReadPackage(verified["name"], home, verified, claim, evidence)


def _check_built(home: Path, built: list[dict[str, Any]]) -> None:
    """What is carried compiled is what was listed, and nothing besides; that its source makes it is not seen."""
    listed = {item["path"]: item["sha256"] for item in built}
    there = {path.relative_to(home).as_posix() for path in (home / "built").rglob("*") if path.is_file()}
    for file in sorted(there ^ set(listed)):
        raise UsageError(
            f"{home / file}: {'missing' if file in listed else 'nothing lists it'}: the package is damaged"
        )
    for file, wanted in listed.items():
        if hashlib.sha256((home / file).read_bytes()).hexdigest() != wanted:
            raise UsageError(f"{home / file}: not the file that was exported: the package is damaged")


def doubts(package: ReadPackage) -> tuple[list[str], list[str]]:
    """(What in a package is not what its record makes, what is another version's): sentences, for people.

    Its files are made once more from the record; those of a package that nobody changed are the same to the byte.
    """
    verified = package.verified
    winner = Winner(
        package.problem, package.candidate, package.claim.platform, package.claim.verdict, package.claim.job
    )
    try:
        make, prefix = package_files, f"{package.name}/"
        if package.home.parent.name == "build":
            make, prefix = kernel_files, f"build/{package.home.name}/"
        files = make(winner, verified["name"], verified["op"], verified["gradients"])
    except UsageError as error:
        return [f"its record makes no package: {error}"], []
    wrong: list[str] = []
    other: list[str] = []
    for path, data in files.items():
        file = path.removeprefix(prefix)
        if not path.startswith(prefix) or file in ("metadata.json", "evidence.json"):
            continue
        found = package.home / file
        if file == "verified.json":
            same = _without_versions(json.loads(data)) == _without_versions(verified)
        else:
            same = found.is_file() and _without_namespace(found.read_bytes()) == _without_namespace(data)
        if file == "verified.json" and _fixed(json.loads(data)) != _fixed(verified):
            other.append("values that the program was written for come out otherwise here")
        if not same:
            (other if file.startswith("runtime/") else wrong).append(f"{file} is not what the record makes")
    return wrong, other


def _fixed(verified: dict[str, Any]) -> list[Any]:
    """Hashes of values that are computed: another processor may round them otherwise."""
    return [call["fixed"] for call in verified["calls"]]


def _without_namespace(data: bytes) -> bytes:
    """A file without the part of a kernel's namespace that comes from its runtime."""
    return re.sub(rb'"_(\w+)_[0-9a-f]{8}"', rb'"\1"', data)


def _without_versions(verified: dict[str, Any]) -> dict[str, Any]:
    """What a package says of itself, but for what was built, and for the hashes of its runtime."""
    kept = {name: value for name, value in verified.items() if name not in ("built", "files", "calls")}
    kept["calls"] = [{name: value for name, value in call.items() if name != "fixed"} for call in verified["calls"]]
    files = {file: digest for file, digest in verified["files"].items() if not file.startswith("runtime/")}
    return {**kept, "files": files}


def _home(folder: Path) -> Path:
    """The folder that is imported: the one named, or the one in it."""
    if (folder / "verified.json").is_file():
        return folder
    found = sorted(path.parent for path in folder.glob("*/verified.json")) if folder.is_dir() else []
    found = found or sorted(path.parent for path in folder.glob("build/*/verified.json"))
    if len(found) != 1:
        what = "there is no such folder" if not folder.exists() else "no package of KForge: it has no verified.json"
        raise UsageError(f"{folder}: {what} (kforge export RUN --as package --to {folder} writes one)")
    return found[0]


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path}: damaged: not JSON") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: damaged: not an object")
    return data
