"""Experiments that have a name: the studies of the paper that the README cites, and what it left open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kforge.types import Configuration


@dataclass(frozen=True)
class Arm:
    """One configuration of a preset."""

    name: str
    fixed: dict[str, Any]
    """What makes it what it is: defaults do not change it."""
    usual: dict[str, Any] = field(default_factory=dict)
    """What it is unless defaults say otherwise."""


@dataclass(frozen=True)
class Preset:
    """Configurations that answer a question."""

    what: str
    """What is compared, in a sentence."""
    answers: str
    """Which study of the paper it repeats, or what it asks that the paper leaves open."""
    arms: tuple[Arm, ...]
    unread: str = ""
    """What the offline agents do not read, where it takes a language model."""

    @property
    def is_ablation(self) -> bool:
        """Whether the preset says nothing unless two of its arms can be had."""
        return len(self.arms) > 1

    def configurations(self, defaults: Mapping[str, Any] = {}) -> tuple[Configuration, ...]:
        """The preset's configurations over those defaults; who writes is for the experiment to say."""
        return tuple(
            Configuration(arm.name, options=override({**arm.usual, **defaults}, arm.fixed)) for arm in self.arms
        )


def override(defaults: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options in place of defaults; what says the same in another way gives way too."""
    same = {"profiling": "profilers", "profilers": "profiling"}
    given_up = {same[name] for name in options if name in same}
    merged = {name: value for name, value in defaults.items() if name not in given_up} | dict(options)
    if not merged.get("reference"):
        merged.pop("reference", None)
    return merged


_ALONE = {"iterations": 1, "profiling": "none"}
_LOOP = {"iterations": 5}
_SINGLE_SHOT = Arm("single-shot", {**_ALONE, "reference": ""})

PRESETS: dict[str, Preset] = {
    "single-shot": Preset(
        "One program for each problem: no repair, no profiling, no reference.",
        "The paper's single-shot runs: what a model knows by itself.",
        (_SINGLE_SHOT,),
    ),
    "iterative": Preset(
        "Five programs for each problem: repaired until correct, then made faster with the platform's own profilers.",
        "The paper's main runs: up to 90 % correct with reasoning models.",
        (Arm("iterative", {"reference": ""}, _LOOP),),
    ),
    "iterative+reference": Preset(
        "The same with a program from elsewhere to learn from: what PyTorch's compiler writes, or what `reference` in "
        "the defaults names.",
        "The paper's runs with a reference implementation, for targets where there is none from CUDA.",
        (Arm("iterative+reference", {}, {**_LOOP, "reference": "inductor"}),),
        unread="reference",
    ),
    "profiling-ablation": Preset(
        "Iterative three times: without profiling, with profiles as text, with profiles as pictures.",
        "Which profiling signals help, which the paper leaves open: gains for one model, losses for others.",
        tuple(Arm(f"profiling {way}", {"profiling": way}, _LOOP) for way in ("none", "text", "image")),
    ),
    "prompt-ablation": Preset(
        "Iterative twice: with structured prompts (task, example, guide, sections), and with a plain zero-shot prompt.",
        "Whether structured templates beat a plain prompt, which the paper did not measure.",
        tuple(Arm(f"prompt {style}", {"style": style}, _LOOP) for style in ("structured", "plain")),
        unread="prompt",
    ),
    "transfer": Preset(
        "Single-shot twice: without a reference, and with the best correct program of another platform in the store "
        "(CUDA's, or what `reference` in the defaults names).",
        "The paper's transfer from CUDA to Metal, +20 to +30 points of correctness, and whether it holds "
        "for other kinds of hardware, which it leaves open.",
        (_SINGLE_SHOT, Arm("single-shot+reference", _ALONE, {"reference": "cuda"})),
        unread="reference",
    ),
}
"""By name."""
