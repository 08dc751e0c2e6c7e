"""Studies for tests and figures of the report: made up, with programs that are much like real ones."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kforge.types import (
    Attempt,
    BaselineTime,
    Candidate,
    Cell,
    Configuration,
    Digest,
    ErrorNorm,
    Evidence,
    Intent,
    Move,
    Outcome,
    Problem,
    Recommendation,
    Session,
    Settings,
    Signal,
    Study,
    Timing,
    Trial,
    Usage,
    Verdict,
    text_hash,
)

ROOT = Path(__file__).resolve().parents[1]
KERNELS = sorted((ROOT / "examples" / "kernels").rglob("*.py"))
WORDS = (
    "softmax",
    "gelu",
    "layer_norm",
    "matmul",
    "conv2d",
    "scan",
    "pool",
    "attention",
    "embedding",
    "loss",
    "sort_rows",
)
FAILURES = (Outcome.COMPILATION_FAILURE, Outcome.RUNTIME_ERROR, Outcome.MISMATCH, Outcome.REJECTED)
ADVICE = (
    "Fuse the two passes over the row into one: keep the running maximum and the running sum together.",
    "Give each thread rows of its own; now all of them write to one cache line.",
    "Load four floats at a time; the loop is bound by the number of load instructions.",
)
MACHINE = {"processor": "Xeon 8581C", "cores": "2", "memory": "8 GiB"}
VERSIONS = {"kforge": "0.1.0", "python": "3.11.2", "torch": "2.13.0", "g++": "12.2.0"}
UNCHECKED = (
    "memory errors: the sanitizer is not on this machine",
    "races between threads: one run does not show them all",
    "sizes other than the problem's own",
)
EVIDENCE = Evidence(
    Problem("p", "source"), Candidate("x"), Settings(), MACHINE, VERSIONS, (), (), (), (), UNCHECKED, seconds={}
)


@dataclass(frozen=True)
class Shape:
    """What a made-up study is like."""

    problems: int = 12
    configurations: Sequence[str] = ("iterative", "iterative+profiling")
    platforms: Sequence[str] = ("cpu",)
    iterations: int = 5
    timed: bool = True
    emulated: bool = False
    chance: float = 0.45
    """Of a program to be correct."""
    priced: bool = True
    odd: bool = True
    """Whether some problems are degenerate, unfinished or unusable."""
    sessions: int = 1


def study(shape: Shape = Shape(), seed: int = 1) -> Study:
    """A study of that shape; the same one for the same seed."""
    dice = random.Random(seed)
    trials = []
    for number in range(shape.problems):
        level = 1 + min(2, number * 3 // max(shape.problems, 3))
        key = f"level{level}/{number + 1}_{WORDS[number % len(WORDS)]}"
        base, hardness = _base(dice), dice.gauss(0, 0.35)
        source = (
            f"import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    # {key}\n    pass\n" + base[:700]
        )
        for platform in shape.platforms:
            for place, name in enumerate(shape.configurations):
                cell = Cell(key, text_hash(source), platform, name)
                trials.append(_trial(shape, cell, level, source, _Luck(dice, base, hardness + 0.12 * place, number)))
    sessions = tuple(
        Session(
            1.7631e9 + 9000 * place,
            "kforge bench experiment.toml",
            MACHINE,
            VERSIONS,
            "8fa4fd6" if place == 0 else "d90f138+",
        )
        for place in range(shape.sessions)
    )
    return Study(
        "profiling-ablation",
        tuple(trials),
        "bundled",
        "",
        tuple(
            Configuration(name, ("provider:model-x",), {"iterations": shape.iterations, "profiling": "text"})
            if "profiling" in name
            else Configuration(name)
            for name in shape.configurations
        ),
        sessions,
        {"level1/90_max_pool3d": "not on MPS: MaxPool3d"} if shape.odd else {},
    )


@dataclass(frozen=True)
class _Luck:
    """What decides how a trial goes."""

    dice: random.Random
    base: str
    edge: float
    number: int


def _trial(shape: Shape, cell: Cell, level: int, source: str, luck: _Luck) -> Trial:
    dice, odd = luck.dice, shape.odd
    if odd and luck.number % 40 == 9:
        return Trial(cell, level, "failed", "the reference runs out of memory: needs 9.1 GiB of 8 GiB", source=source)
    if odd and luck.number % 40 == 7:
        return Trial(cell, level, "stopped", "interrupted", "20261115-run", source=source)
    flaw = ("the output does not depend on its inputs",) if odd and luck.number % 40 == 5 else ()
    history = _history(shape, cell.platform, luck, flaw)
    usage = sum((attempt.usage for attempt in history), Usage())
    return Trial(
        cell,
        level,
        "finished",
        "",
        f"20261115-{dice.randrange(16**6):06x}",
        history,
        usage,
        session=luck.number % shape.sessions,
        source=source,
    )


def _history(shape: Shape, platform: str, luck: _Luck, flaw: tuple[str, ...]) -> tuple[Attempt, ...]:
    dice, text = luck.dice, luck.base
    history: list[Attempt] = []
    for step in range(1, shape.iterations + 1):
        last = history[-1] if history else None
        intent = Intent.FRESH if last is None else Intent.OPTIMISE if last.correct else Intent.REPAIR
        text = text if last is None else _changed(dice, text)
        good = dice.random() < shape.chance + 0.1 * step * (shape.chance > 0)
        verdict = _correct(shape, luck, step, flaw) if good else _wrong(dice, shape.emulated)
        tokens = dice.randrange(2000, 9000)
        history.append(
            Attempt(
                Move(0, step, intent, None if last is None else step - 1),
                Candidate(text, platform),
                verdict,
                "provider:model-x",
                Recommendation(dice.choice(ADVICE), "memory bound, 41 % of the roofline")
                if intent is Intent.OPTIMISE
                else None,
                digest=Digest((Signal("roofline_share", "it reaches 41 % of the roofline", 0.41),)) if good else None,
                usage=Usage(1, tokens, tokens // 3, tokens * 9e-6 if shape.priced else 0.0),
                seconds={"model": dice.uniform(4, 30), "judge": dice.uniform(2, 6)},
            )
        )
    return tuple(history)


def _correct(shape: Shape, luck: _Luck, step: int, flaw: tuple[str, ...]) -> Verdict:
    errors = tuple(ErrorNorm(name, 3.1e-7, 1e-5, 0.12) for name in ("natural", "scaled", "negated", "shifted"))
    if not shape.timed or shape.emulated:
        return Verdict(Outcome.CORRECT, "every output matches", errors=errors, emulated=shape.emulated, degenerate=flaw)
    speedup = 2.0 ** (luck.edge * 2 + luck.dice.gauss(0.15 * step, 0.2))
    best = speedup / luck.dice.uniform(1.0, 1.6)
    timing = Timing(
        "eager", speedup, (speedup * 0.97, speedup * 1.02), best, (1e6,) * 40, (speedup * 1e6,) * 40, 5, 12,
        (BaselineTime("eager", 1.0), BaselineTime("compile", speedup / best)),
    )  # fmt: skip
    return Verdict(
        Outcome.CORRECT,
        "every output matches, and it was timed",
        errors=errors,
        timing=timing,
        custom_share=luck.dice.uniform(0.6, 1.0),
        degenerate=flaw,
        sandbox="bubblewrap",
        notes=("one shape only: the program checks it",),
        evidence=EVIDENCE,
    )


def _wrong(dice: random.Random, emulated: bool) -> Verdict:
    outcome = dice.choice(FAILURES)
    place = dice.randrange(200)
    detail = {
        Outcome.COMPILATION_FAILURE: f"the extension does not compile:\nmain.cpp:{place}: error: 'simd' is unknown",
        Outcome.RUNTIME_ERROR: f"forward raised RuntimeError: size {place} does not fit",
        Outcome.MISMATCH: f"the output differs at [{place}, 7]: 0.5 instead of 0.25; the norm is 3e-2 of 1e-5 allowed",
        Outcome.REJECTED: "it returns the reference's own result: write the computation yourself",
    }[outcome]
    return Verdict(outcome, detail, rule="reference_reused" if outcome is Outcome.REJECTED else "", emulated=emulated)


def _base(dice: random.Random) -> str:
    """A kernel of ours under other names and sizes."""
    text = dice.choice(KERNELS).read_text(encoding="utf-8")
    names = set(re.findall(r"\b[a-z]+_[a-z_]+\b", text))
    for name in sorted(names):
        if dice.random() < 0.5 and not name.startswith(("torch", "load", "get")):
            text = re.sub(rf"\b{name}\b", f"{name}_{dice.choice(WORDS)}{dice.randrange(90)}", text)
    return re.sub(r"\b\d+\b", lambda found: str(int(found[0]) + dice.randrange(5)), text)


def _changed(dice: random.Random, text: str) -> str:
    """The same with a tenth of its lines changed, some new, some gone."""
    lines = []
    for line in text.split("\n"):
        if dice.random() < 0.03:
            continue
        if dice.random() < 0.1 and line.strip():
            line = re.sub(
                r"\b(\w+)\b",
                lambda found: f"{found[1]}_{dice.choice(WORDS)}" if dice.random() < 0.3 else found[1],
                line,
            )
        lines.append(line)
        if dice.random() < 0.06:
            name = f"{dice.choice(WORDS)}_{dice.randrange(99)}"
            lines.append(f"    const float {name} = {dice.random():.6f}f * x[{dice.randrange(512)}];")
    return "\n".join(lines)
