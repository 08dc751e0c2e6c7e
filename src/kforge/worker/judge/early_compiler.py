"""Programs for a GPU that is elsewhere, compiled here: what NVRTC surely refuses there too needs no trip.

A program is never run in this process: it is loaded in a runner, at the strongest level of the sandbox, and not at all
where that level does not hide this machine's files. Only one end is a verdict: with an error of NVRTC's, when the
program is imported or its module constructed, in which nothing that is unknown here has a part. About everything else
there is nothing to say, and the device has the word.
"""

from __future__ import annotations

import importlib.metadata
import platform as machine_platform
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kforge.errors import KForgeError
from kforge.platforms._nvidia.run_time_compiler import nvrtc_version
from kforge.types import Evidence, Job, Limits, Outcome, Report, Verdict
from kforge.worker.bundle_folder import EMULATED
from kforge.worker.judge import explain, machine, static_rules
from kforge.worker.judge.runner_handle import ProgramError, RunnerLost
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.protocol.compiler import CompilerTrial, TryCompiler
from kforge.worker.sandbox import levels

_WARM_IMPORTS = ("cuda.bindings.nvrtc", "cuda.core")
_CLASS = "ModelNew"
_DEVICE_CLASS = "gpu"
_SECONDS = 60.0
_LIMITS = Limits(build_seconds=_SECONDS, memory_bytes=4 << 30, file_bytes=64 << 20, processes=256)
_LONGEST_SOURCE = 1 << 20
_COMPILES = re.compile(r"\bnvrtc|\bcuda\.core\b|\bfrom\s+cuda\s+import\b")
_BUILDS_BEFORE = re.compile(r"\bload_inline\b|\bcpp_extension\b")
"""What is built before a program is imported."""


@dataclass(frozen=True)
class CompilerTarget:
    """A device that programs may be judged on, and the compiler they find there."""

    capability: tuple[int, int]
    nvrtc: tuple[int, int]
    name: str
    multiprocessors: int
    """0 where it is not known."""

    @classmethod
    def from_facts(cls, facts: dict[str, str]) -> CompilerTarget | None:
        """None where the facts of a platform do not say what matters, or say that no compiler of NVIDIA's is there."""
        capability, nvrtc = _pair(facts.get("capability", "")), _pair(facts.get("nvrtc", ""))
        if EMULATED in facts or capability is None or nvrtc is None:
            return None
        count = facts.get("multiprocessors", "")
        name = facts.get("processor", "")
        return cls(capability, nvrtc, name, int(count) if re.fullmatch(r"[0-9]{1,4}", count) else 0)

    @property
    def architecture(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"


class EarlyCompiler:
    """Compiles programs that are about to travel. May be used from several threads; nothing is started before."""

    def __init__(self) -> None:
        self._pool: RunnerPool | None = None
        self._starting = threading.Lock()
        self._closed = False

    def report(self, job: Job, devices: Sequence[dict[str, str]]) -> Report | None:
        """A report on a program that surely compiles on none of the devices it may be judged on; None for any other.

        `devices`: the facts of each kind of them. The job is for a platform whose programs NVRTC compiles.
        """
        targets = list(map(CompilerTarget.from_facts, devices))
        if not _is_tried(job.candidate.source) or not targets:
            return None
        known = [target for target in targets if target is not None and _is_as_strict(target.nvrtc)]
        if len(known) < len(targets) or len({(target.capability, target.multiprocessors) for target in known}) > 1:
            return None
        began = time.monotonic()
        try:
            sentence = self._refusal(job, known[0])
        except (KForgeError, RunnerLost, ProgramError, OSError):
            # It hung, crashed or was ended: the device's judge will find out why.
            return None
        except Exception:
            if not self._closed:
                raise
            return None
        if not sentence:
            return None
        verdict = _verdict(job, known, sentence, time.monotonic() - began)
        candidate = job.candidate
        seconds = {"verdict": round(time.monotonic() - began, 3)}
        return Report(job.id, job.problem.name, candidate.id, candidate.platform, verdict, seconds=seconds)

    def close(self) -> None:
        """End everything, what is compiled just now too."""
        self._closed = True
        if self._pool is not None:
            self._pool.close()

    def _refusal(self, job: Job, target: CompilerTarget) -> str:
        """What the verdict says; empty where nothing is sure."""
        seconds = min(_SECONDS, job.settings.limits.build_seconds)
        runner = self._started_pool().spawn_bounded(_LIMITS, 0)
        try:
            trial = runner.ask(_request(job, target), seconds)
        finally:
            runner.end()
        return "" if runner.findings else _sure_refusal(trial)

    def _started_pool(self) -> RunnerPool:
        with self._starting:
            if self._pool is None:
                # Of the processor: no device is touched, and none need be there.
                self._pool = RunnerPool("cpu", levels.choose("auto"), blind=True, warm_imports=_WARM_IMPORTS)
                if self._closed:
                    self._pool.close()
            return self._pool


def _request(job: Job, target: CompilerTarget) -> TryCompiler:
    problem = job.problem
    return TryCompiler(
        source=job.candidate.source,
        class_name=_CLASS,
        # A live module's program takes no arguments.
        problem_source="" if problem.payload_hash else problem.sized_source(_DEVICE_CLASS),
        capability=target.capability,
        device_name=target.name,
        multiprocessors=target.multiprocessors,
    )


def _sure_refusal(trial: CompilerTrial) -> str:
    """The sentence of a program that ended with the compiler's word, and had asked nothing that is not known here."""
    if trial.error is None or trial.doubts or not trial.refusals:
        return ""
    outcome, sentence = explain.program_error("import", trial.error, "")
    # Not of what led to it: an error that was raised while another was handled may not be raised there.
    words = explain.compiler_error(trial.error.message)
    if outcome is not Outcome.COMPILATION_FAILURE or not words:
        return ""
    first = words.splitlines()[0]
    return sentence if any(first in refusal for refusal in trial.refusals) else ""


def _is_tried(source: str) -> bool:
    """Whether a program may be one that NVRTC ends, and none that a judge refuses for its text."""
    if len(source) > _LONGEST_SOURCE or not _COMPILES.search(source) or _BUILDS_BEFORE.search(source):
        return False
    return not (
        static_rules.syntax_error(source) or not static_rules.defines_class(source, _CLASS) or static_rules.scan(source)
    )


def _is_as_strict(there: tuple[int, int]) -> bool:
    """Whether what the compiler here refuses, that one does too: within a major version later ones only add."""
    here = _pair(nvrtc_version())
    return here is not None and here[0] == there[0] and here >= there


def _verdict(job: Job, targets: Sequence[CompilerTarget], sentence: str, seconds: float) -> Verdict:
    here, target = nvrtc_version(), targets[0]
    theirs = ", ".join(sorted({f"{major}.{minor}" for major, minor in (each.nvrtc for each in targets)}))
    level = levels.choose("auto")
    versions = machine.versions({"nvrtc": here, "cuda-core": _version("cuda-core")})
    how = f"compiled on the controller, by NVRTC {here} for {target.architecture}"
    evidence = Evidence(
        problem=job.problem,
        candidate=job.candidate,
        settings=job.settings,
        # No name of a device among them: none had a part in it.
        device={
            "compiler": f"NVRTC {here} on the controller, {machine_platform.system()} {machine_platform.machine()}",
            "compiled_for": f"{target.architecture}, {target.name or 'a GPU'}, whose NVRTC is {theirs}",
            "used": "no device",
        },
        # What is compared with verdicts that a device has part in is left out.
        versions={name: versions[name] for name in ("kforge", "python", "kernel", "nvrtc", "cuda-core")},
        distributions=(),
        parameters=(),
        operators=(),
        native=(),
        unchecked=(f"everything but the compiler's word: {how}, and no device was used", *levels.shortcomings(level)),
        seconds={"compile": round(seconds, 4)},
    )
    return Verdict(
        Outcome.COMPILATION_FAILURE, sentence, sandbox=level, notes=(f"{how}; no device was used",), evidence=evidence
    )


def _pair(version: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})", version)
    return (int(match[1]), int(match[2])) if match else None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
