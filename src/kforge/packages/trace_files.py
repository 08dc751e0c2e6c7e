"""A verified program as flashinfer-bench and SOL-ExecBench keep programs: a Solution, and a Trace for each workload.

The Solution's sources are the package that `--as package` writes, without its evidence, and a file whose `run` is the
operator; it is strict: a call that was not verified is an error, and never the reference's time. A problem that was
made of a Definition has its own Definition and Workloads beside it; for another, both are made of what was verified.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

from kforge.errors import UsageError
from kforge.packages.description import Description, Winner, describe, function_name
from kforge.packages.package_files import LICENSE, fill, module_files, words_of
from kforge.trace_definition import FLASHINFER, SOL, SOL_FILE, SOL_WORKLOADS, TraceOrigin, origin_of
from kforge.types import Timing

AUTHOR = "kforge"
_ENTRY = "main.py"
_DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool")
"""What flashinfer-bench can draw for any operator; integers it draws from a range of its own."""
_SCALARS = {"i": "int64", "f": "float32", "b": "bool"}
_STARTED = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)")


def trace_files(
    winner: Winner, name: str, op: str = "", gradients: str = "reference", licence: str = LICENSE
) -> dict[str, bytes]:
    """The files of a dataset by their paths: Definition, Workloads, Solution and Traces; UsageError says why not."""
    # `name` is the folder's, which holds programs of many operators: each is called as its own.
    made = describe(winner, op or function_name(winner.problem.name), op, gradients)
    origin = origin_of(winner.problem.source) or _make_origin(winner, made)
    # SOL-ExecBench has Definitions that are called as their folders, and the problem is called so too.
    definition = str(origin.definition.get("name") or winner.problem.name)
    solution = _solution(winner, made, origin.format, definition, licence)
    traces = [
        {
            "definition": definition,
            "workload": workload,
            "solution": solution["name"],
            "evaluation": data,
        }
        for workload, data in zip(origin.workloads, _evaluations(winner), strict=True)
    ]
    if origin.format == SOL:
        return {
            SOL_FILE: _json(origin.definition),
            SOL_WORKLOADS: _lines(origin.workloads),
            "solution.json": _json(solution),
            "trace.jsonl": _lines(traces),
        }
    kind = str(origin.definition["op_type"])
    listed = [{"definition": definition, "workload": workload} for workload in origin.workloads]
    return {
        f"definitions/{kind}/{definition}.json": _json(origin.definition),
        f"workloads/{kind}/{definition}.jsonl": _lines(listed),
        f"solutions/{AUTHOR}/{kind}/{definition}/{solution['name']}.json": _json(solution),
        f"traces/{AUTHOR}/{kind}/{definition}.jsonl": _lines(traces),
    }


def write_traces(files: dict[str, bytes], to: Path) -> None:
    """Add the files to a dataset. A Definition that is there stays, and must be the same; so do others' Traces."""
    try:
        merged = {path: _merge(path, data, to / path) for path, data in files.items()}
        for path, data in merged.items():
            target = to / path
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f".{target.name}.partial")
            partial.write_bytes(data)
            partial.replace(target)
    except OSError as error:
        raise UsageError(f"{to}: cannot be written: {error.strerror}") from None


def _merge(path: str, data: bytes, target: Path) -> bytes:
    """What a file of a dataset holds when ours is added to it."""
    if not target.exists():
        return data
    there = target.read_bytes()
    if path.startswith("definitions/") or path == SOL_FILE:
        if json.loads(there) != json.loads(data):
            raise UsageError(f"{target} is another Definition of that name: name another folder with --to")
        return there
    if not path.endswith(".jsonl"):
        return data
    ours = [json.loads(line) for line in data.splitlines()]
    theirs = [json.loads(line) for line in there.splitlines() if line.strip()]
    names = {line.get("solution") for line in ours} - {None}
    if names:
        return _lines([*(line for line in theirs if line.get("solution") not in names), *ours])
    known = [_uuid(line) for line in theirs]
    return _lines([*theirs, *(line for line in ours if _uuid(line) not in known)])


def _uuid(line: dict[str, Any]) -> str:
    return str(line.get("workload", line)["uuid"])


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()


def _lines(records: Any) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


# -- the Solution ------------------------------------------------------------------------------------------------------


def _solution(winner: Winner, made: Description, form: str, definition: str, licence: str) -> dict[str, Any]:
    assert winner.verdict.evidence is not None
    source = module_files(winner, made)
    source.pop("evidence.json")
    digest = hashlib.sha256(b"".join(source[path] for path in sorted(source))).hexdigest()[:8]
    # Solutions of one operator are loaded side by side, and so each has a namespace of its own.
    words = {**words_of(winner, made, licence), "namespace": f"_{made.name}_{digest}"}
    source["__init__.py"] = fill("init", words)
    main = fill("trace_entry", words)
    files = {_ENTRY: main, **{f"{made.name}/{path}": data for path, data in sorted(source.items())}}
    language = "triton" if winner.platform == "triton" else "python"
    figures = " ".join(line.lstrip("- ") for line in words["figures"].splitlines())
    spec: dict[str, Any] = {
        "language": language,
        "target_hardware": [winner.verdict.evidence.hardware or winner.platform],
        "entry_point": f"{_ENTRY}::run",
        "dependencies": list(made.dependencies),
        "destination_passing_style": False,
    }
    if form == SOL:
        spec["languages"] = [spec.pop("language")]
        # Names of machines are a closed list there; this one is whichever it is run on.
        spec["target_hardware"] = ["LOCAL"]
    return {
        "name": f"{AUTHOR}_{made.op}_{digest}",
        "definition": definition,
        "author": AUTHOR,
        "spec": spec,
        "sources": [{"path": path, "content": data.decode()} for path, data in files.items() if data.strip()],
        "description": f"Verified by KForge ({winner.where}). {words['summary']} {figures}".strip(),
    }


# -- Traces ------------------------------------------------------------------------------------------------------------


def _evaluations(winner: Winner) -> list[dict[str, Any]]:
    """An evaluation for each workload; UsageError where there is no time, without which none counts as passed."""
    verdict = winner.verdict
    timed = [(item.workload, item.timing) for item in verdict.workloads] or [("", verdict.timing)]
    evidence = verdict.evidence
    assert evidence is not None
    started = _STARTED.search(winner.where)
    found = []
    for workload, timing in timed:
        if timing is None:
            why = "it ran on an emulator" if verdict.emulated else "it was judged without a time"
            raise UsageError(f"a Trace holds a program's time, and there is none: {why}")
        found.append(
            {
                "status": "PASSED",
                "environment": {"hardware": evidence.hardware or winner.platform, "libs": dict(evidence.versions)},
                "timestamp": "{}-{}-{}T{}:{}:{}+00:00".format(*started.groups()) if started else winner.where,
                "log": "",
                "correctness": _correctness(winner, workload, timing),
                "performance": {
                    "latency_ms": statistics.median(timing.candidate_ns) / 1e6,
                    "reference_latency_ms": statistics.median(timing.baseline_ns) / 1e6,
                    "speedup_factor": timing.speedup,
                },
            }
        )
    return found


def _correctness(winner: Winner, workload: str, timing: Timing) -> dict[str, Any]:
    verdict = winner.verdict
    evidence = verdict.evidence
    assert evidence is not None
    errors = [item for item in verdict.errors if item.workload == workload] or list(verdict.errors)
    return {
        "max_relative_error": max((item.norm for item in errors if math.isfinite(item.norm)), default="NaN"),
        # No record has it.
        "max_absolute_error": "NaN",
        "extra": {
            "relative_error": "norm of the difference over the norm of the float64 reference, the worst output",
            "checked_calls": len(errors) + timing.checked_calls,
            "speedup_interval_95": list(timing.interval),
            "speedup_vs_best_baseline": timing.speedup_vs_best,
            "baseline": timing.baseline,
            "contended": timing.contended,
            "kforge": winner.where,
        },
    }


# -- a Definition of what was verified ---------------------------------------------------------------------------------


def _make_origin(winner: Winner, made: Description) -> TraceOrigin:
    """The Definition and the Workloads of a problem that was not made of any."""
    verified = made.verified
    if winner.problem.payload_hash:
        raise UsageError("a live module has no text that a Definition could hold: write the problem as a file first")
    calls = verified["calls"]
    if any(call["ranges"] for call in calls) or verified["backward"]:
        raise UsageError(
            "a Definition made of a problem file has fixed lengths and no gradients: start from a Definition "
            "(flashinfer:PATH), or judge the problem without dynamic sizes and gradients"
        )
    axes = _Axes()
    inputs: dict[str, Any] = {}
    scalars: dict[str, list[Any]] = {}
    count = len(verified["parameters"])
    for place, name in enumerate(made.arguments):
        if place >= count:
            shapes = [call["state"][place - count]["shape"] for call in calls]
            inputs[name] = _tensor(name, calls[0]["state"][place - count]["dtype"], shapes, axes)
            continue
        trees = [call["arguments"][1][place] for call in calls]
        if all(tree[0] == "T" for tree in trees):
            layouts = [call["tensors"][tree[1]] for call, tree in zip(calls, trees, strict=True)]
            inputs[name] = _tensor(name, layouts[0]["dtype"], [layout["shape"] for layout in layouts], axes)
        elif all(tree[0] == trees[0][0] and tree[0] in _SCALARS for tree in trees):
            inputs[name] = {"shape": None, "dtype": _SCALARS[trees[0][0]]}
            scalars[name] = [tree[1] for tree in trees]
        else:
            raise UsageError(f"{name} is neither a tensor nor a number: a Definition has no such input")
    outputs = {}
    for number, layout in enumerate(calls[0]["outputs"]):
        shapes = [call["outputs"][number]["shape"] for call in calls]
        named = f"output_{number}" if len(calls[0]["outputs"]) > 1 else "output"
        outputs[f"{named}_" if named in inputs else named] = {
            "shape": [axes.name(lengths) for lengths in zip(*shapes, strict=True)],
            "dtype": layout["dtype"],
        }
    definition = {
        "name": made.op,
        "op_type": "module",
        "description": f"The problem {winner.problem.name} of KForge, at the sizes it was verified for.",
        "axes": axes.described(),
        "inputs": inputs,
        "outputs": outputs,
        "reference": _reference(made),
    }
    workloads = []
    for number in range(len(calls)):
        given = {name: {"type": "scalar", "value": values[number]} for name, values in scalars.items()}
        drawn = {name: {"type": "random"} for name in inputs}
        uuid = hashlib.sha256(f"{winner.problem.id} {number}".encode()).hexdigest()[:32]
        workloads.append({"axes": axes.lengths(number), "inputs": {**drawn, **given}, "uuid": uuid})
    return TraceOrigin(FLASHINFER, definition, tuple(workloads))


class _Axes:
    """Axes by their lengths in each call: what is as long in all of them is one axis."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, ...], str] = {}

    def add(self, lengths: tuple[int, ...]) -> str:
        if lengths not in self._found:
            self._found[lengths] = f"n{len(self._found)}"
        return self._found[lengths]

    def name(self, lengths: tuple[int, ...]) -> str:
        """The axis of an output; one whose length varies must be an input's too."""
        if lengths not in self._found and len(set(lengths)) > 1:
            raise UsageError("an output's length varies and is none of the inputs': a Definition cannot say so")
        return self.add(lengths)

    def described(self) -> dict[str, Any]:
        return {
            name: {"type": "var"} if len(set(lengths)) > 1 else {"type": "const", "value": lengths[0]}
            for lengths, name in self._found.items()
        }

    def lengths(self, number: int) -> dict[str, int]:
        return {name: lengths[number] for lengths, name in self._found.items() if len(set(lengths)) > 1}


def _tensor(name: str, dtype: str, shapes: list[list[int]], axes: _Axes) -> dict[str, Any]:
    if dtype not in _DTYPES:
        raise UsageError(
            f"{name} is of {dtype}: a Definition says nothing of which values an input may take, so that "
            "flashinfer-bench would draw wrong ones"
        )
    if len({len(shape) for shape in shapes}) > 1:
        raise UsageError(f"{name} has another number of dimensions in each workload: a Definition has one")
    return {"shape": [axes.add(lengths) for lengths in zip(*shapes, strict=True)], "dtype": dtype}


def _reference(made: Description) -> str:
    """A text whose `run` is the reference as a function of its inputs and tensors."""
    (text,) = made.references.values()
    verified = made.verified
    count = len(verified["parameters"])
    forward, state = made.arguments[:count], made.arguments[count:]
    names = [item["name"] for item in verified["state"]]
    lines = [
        text.rstrip("\n"),
        "",
        "",
        f"def run({', '.join(made.arguments)}):",
        "    import torch",
        "",
        "    model = Model(*get_init_inputs())",
    ]
    if verified["training"] is not None:
        lines.append(f"    model.train({verified['training']})")
    if verified["dtype"]:
        lines.append(f"    model.to(torch.{verified['dtype']})")
    tensors = ", ".join(f"{name!r}: {argument}" for name, argument in zip(names, state, strict=True))
    called = f"({', '.join(forward)}{',' if len(forward) == 1 else ''})"
    lines += [
        "    with torch.no_grad():",
        f"        return torch.func.functional_call(model, {{{tensors}}}, {called})",
        "",
    ]
    return "\n".join(lines)
