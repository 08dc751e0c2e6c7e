"""A package as files: the same run gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import shutil
import string
from pathlib import Path
from typing import Any

from kforge import jsonable
from kforge.errors import UsageError
from kforge.packages.description import Description, Winner, describe
from kforge.run import eager_comparison
from kforge.run.guarded_program import domain_lines
from kforge.types import Evidence, Report, Verdict

_HERE = Path(__file__).parent
_TOLERANCES = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 1e-3, "float64": 1e-6}
_VERSION = "1.0.0"
LICENSE = "Apache-2.0"


def package_files(
    winner: Winner, name: str, op: str = "", gradients: str = "reference", licence: str = LICENSE
) -> dict[str, bytes]:
    """A package's files by their paths; UsageError says why a program can be none."""
    if gradients not in ("reference", "error"):
        raise UsageError("gradients must be reference (recomputed with the reference) or error")
    made = describe(winner, name, op, gradients)
    files = {f"{made.name}/{path}": data for path, data in module_files(winner, made).items()}
    words = words_of(winner, made, licence)
    files["README.md"] = fill("readme", words)
    files["pyproject.toml"] = fill("pyproject", words)
    files["LICENSE"] = _licence(licence)
    files[f"tests/test_{made.name}.py"] = fill("test", words)
    files["benchmarks/benchmark.py"] = fill("benchmark", words)
    files[f"{made.name}/__init__.py"] = fill("init", words)
    return files


def write_package(files: dict[str, bytes], to: Path) -> None:
    """Write a package into a folder, whole or not at all; UsageError where something else is there."""
    if to.exists() and not _is_replaceable(to, files):
        raise UsageError(
            f"{to} is there already and holds something else than a package of that name: name another folder with --to"
        )
    partial, old = to.with_name(f".{to.name}.partial"), to.with_name(f".{to.name}.old")
    for folder in (partial, old):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        for path, data in files.items():
            target = partial / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        if to.exists():
            to.rename(old)
        partial.rename(to)
    except OSError as error:
        if old.exists() and not to.exists():
            old.rename(to)
        raise UsageError(f"{to}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _is_replaceable(folder: Path, files: dict[str, bytes]) -> bool:
    """Whether a folder is empty, or holds an older version of these files and what using them leaves behind."""
    if not folder.is_dir() or folder.is_symlink():
        return False
    left = {path for path in folder.rglob("*") if path.is_file() or path.is_symlink()}
    if not left:
        return True
    homes = [path.removesuffix("verified.json") for path in files if path.endswith("/verified.json")]
    if not any((folder / home / "verified.json").is_file() for home in homes):
        return False
    tops = tuple(f"{home}{part}" for home in homes for part in ("runtime/", "built/", "reference"))
    for path in left:
        name = path.relative_to(folder).as_posix()
        made = (
            "__pycache__/" in name or ".egg-info/" in name or ".pytest_cache/" in name or name.startswith("build/lib/")
        )
        if not (name in files or made or name.startswith(tops)):
            return False
    return True


def module_files(winner: Winner, made: Description) -> dict[str, bytes]:
    """What is imported: program, reference, runtime, and the data they are used by."""
    texts = {"program.py": made.program.encode(), **{file: text.encode() for file, text in made.references.items()}}
    texts |= made.files
    texts |= {f"runtime/{path.name}": path.read_bytes() for path in sorted((_HERE / "runtime").glob("*.py"))}
    verified = {
        **made.verified,
        "machine": _machine(winner.verdict),
        "summary": _summary(winner.verdict),
        "files": {file: hashlib.sha256(data).hexdigest() for file, data in sorted(texts.items())},
        "built": [],
    }
    files = dict(texts)
    files["verified.json"] = (json.dumps(verified, indent=1, sort_keys=True) + "\n").encode()
    files["evidence.json"] = _evidence(winner)
    return files


def _evidence(winner: Winner) -> bytes:
    """The record behind the verdict, as `kforge evaluate --replay` reads it."""
    report = Report(winner.where, winner.problem.name, winner.candidate.id, winner.platform, winner.verdict)
    record = {"kforge_evidence": Evidence.version, **jsonable.encode(report)}
    return json.dumps(record, indent=1).encode()


def _machine(verdict: Verdict) -> dict[str, str]:
    """The machine that it was judged on, as far as a package can tell it from another."""
    evidence = verdict.evidence
    assert evidence is not None
    facts, versions = evidence.device, evidence.versions
    found = {
        "torch": versions.get("torch", ""),
        "device": facts.get("gpu", facts.get("device", "")),
        "model": facts.get("processor", facts.get("cpu", "")),
    }
    return {name: value for name, value in found.items() if value}


def _summary(verdict: Verdict) -> list[str]:
    lines = [*domain_lines(verdict.domain)]
    lines = [" ".join(lines).replace("; any other call raises an error", "")]
    hazards = verdict.hazards
    if hazards:
        lines.append(f"Without its guard it is wrong without a word when {'; '.join(hazards)}.")
    lines += _figures(verdict)
    return lines


_IN_FLOAT32 = (
    "PyTorch ran in float32 throughout. Its defaults let cuDNN use TF32 in convolutions, which is less exact and may "
    "be several times faster: the benchmark times both."
)


def _figures(verdict: Verdict) -> list[str]:
    if verdict.emulated:
        return ["It ran on an emulator, not on the hardware it is for: there is no time and no speedup."]
    lines = [f"{verdict.headline}"]
    timing = verdict.timing
    if timing is not None and timing.speedup_vs_best is not None:
        lines.append(f"Against the best baseline: {timing.speedup_vs_best:.2f}x.")
    timed = ((item.workload, item.timing) for item in verdict.workloads)
    lines += [f"On {name}: {timing}." for name, timing in timed if timing is not None]
    warning = eager_comparison.advice(verdict)
    lines += [f"Beware: {warning}."] if warning else []
    lines += [f"The problem is degenerate: {reason}" for reason in verdict.degenerate]
    evidence = verdict.evidence
    if evidence is not None:
        machine = ", ".join(f"{name} {value}" for name, value in list(evidence.device.items())[:4])
        lines.append(f"Machine: {machine}; torch {evidence.versions.get('torch', 'unknown')}.")
    return lines


def words_of(winner: Winner, made: Description, licence: str) -> dict[str, str]:
    """What the texts' blanks are filled with."""
    verified = made.verified
    count = len(verified["parameters"])
    forward, state = made.arguments[:count], made.arguments[count:]
    dtypes = [item["dtype"] for call in verified["calls"] for item in call["tensors"]]
    tolerance = max((_TOLERANCES.get(dtype, 0.0) for dtype in dtypes), default=0.0) or 1e-3
    summary = _summary(winner.verdict)
    figures = _figures(winner.verdict)
    if verified["device"] == "cuda" and "float32" in dtypes and winner.verdict.timing is not None:
        figures.append(_IN_FLOAT32)
    dependencies = ["torch>=2.6", *made.dependencies]
    if verified["backward"]:
        gradients = "Its first derivatives were verified too."
    elif verified["gradients"] == "reference":
        gradients = "Gradients are those of the reference, computed anew in the backward pass."
    else:
        gradients = "It has no gradient: asking for one is an error."
    needs = f" It needs {', '.join(made.dependencies)} beside torch." if made.dependencies else ""
    if "subprocess" in made.program:
        needs += " It needs a C++ compiler."
    return {
        "name": made.name,
        "namespace": made.name,
        "distribution": made.name.replace("_", "-"),
        "op": made.op,
        "device": verified["device"],
        "arguments": ", ".join(made.arguments),
        "forward": f"({', '.join(forward)}{',' if len(forward) == 1 else ''})",
        "state": f"({', '.join(state)}{',' if len(state) == 1 else ''})",
        "version": _VERSION,
        "license": licence,
        "dependencies": ", ".join(f'"{item}"' for item in dependencies),
        "tolerance": repr(tolerance),
        "summary": "\n".join(line for line in summary if line not in figures),
        "figures": "\n".join(f"- {line}" for line in figures),
        "gradients": gradients,
        "needs": needs,
    }


def fill(template: str, words: dict[str, Any]) -> bytes:
    """A template with its blanks filled in."""
    text = (_HERE / "templates" / f"{template}.txt").read_text(encoding="utf-8")
    return string.Template(text).substitute(words).encode()


def _licence(licence: str) -> bytes:
    return f"SPDX-License-Identifier: {licence}\n".encode()
