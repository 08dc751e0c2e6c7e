"""Prompts: Jinja2 templates, one file per block, filled from a situation and kept under a ceiling.

Templates of a style live in `prompts/<style>/`. A user's folder comes first, so that one file there replaces one block,
and a folder in it is a style of its own. Everything that candidates or compilers wrote goes through the `fence`
filter: nothing inside can end its block.
"""

from __future__ import annotations

import functools
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2

from kforge import kernelbench
from kforge.agents import concepts, dialects, donor_origin
from kforge.agents.base import Situation, Target
from kforge.agents.text_limits import TOKENS_PER_IMAGE, cut_log, fence, inline, tokens
from kforge.agents.workload_context import without_held_out, workload_context
from kforge.errors import PromptTooLong, UsageError
from kforge.profilers import digest
from kforge.types import Attempt, Donor, Image, Intent, Message, Problem, Prompt, Settings, draw_name

BUILT_IN = Path(__file__).parent / "prompts"

_SHOWN_PAST = 15
"""How many earlier attempts a prompt lists."""
_SHOWN_AGAIN = 4_000
"""How much of an answer that could not be read goes back with the second question."""
_LOG_CHARACTERS = (12_000, 6_000, 2_500, 1_000)
_OPTIONAL = ("profile_text", "past", "reference", "example")
"""What is left out, in this order and with a word about it, when short logs are not enough."""


@dataclass(frozen=True)
class FittedPrompt:
    """A prompt, and what had to be left out of it."""

    prompt: Prompt
    tokens: int
    omitted: tuple[str, ...] = ()


@dataclass(frozen=True)
class PromptMaker:
    """Fills the templates of one style."""

    style: str = "structured"
    folder: str = ""
    """A user's templates; empty for none."""
    ceiling: int = 24_000
    """Tokens a prompt may have."""
    seed: int = 0
    """Tells the draws of two runs apart in a shared cache."""
    settings: Settings = Settings()
    """How programs are judged: a writer must know what is allowed."""

    def generate(self, situation: Situation) -> FittedPrompt:
        """What the writer is asked."""
        return self._fit("generate", situation, ())

    def analyse(self, situation: Situation) -> FittedPrompt:
        """What the analyst is asked about the parent's profile."""
        parent = situation.parent
        images = digest.images(parent.profiles) if parent else ()
        return self._fit("analyse", situation, images)

    def repeat_prompt(self, prompt: Prompt, reply: str, why: str) -> Prompt:
        """The same question once more, after an answer that could not be read."""
        text = self._render("again.j2", {"why": why})
        turns = (Message("assistant", reply[:_SHOWN_AGAIN] or "(empty)"), Message("user", text))
        head = prompt.sample.rpartition(".")[0]
        return replace(prompt, messages=(*prompt.messages, *turns), sample=f"{head}.2")

    def _fit(self, purpose: Any, situation: Situation, images: tuple[Image, ...]) -> FittedPrompt:
        limit = self.ceiling - TOKENS_PER_IMAGE * len(images)
        size = 0
        for logs, omitted in _ways_to_shorten():
            context = {**_context(situation, logs, omitted), **_rules(self.settings)}
            system = self._render(f"{purpose}_system.j2", context)
            user = self._render(f"{purpose}.j2", context)
            size = tokens(system) + tokens(user)
            if size <= limit:
                turns = (Message("system", system), Message("user", user, images))
                prompt = Prompt(turns, purpose, self._sample(situation), situation.problem.name)
                return FittedPrompt(
                    prompt, size + TOKENS_PER_IMAGE * len(images), _omitted_blocks(omitted, purpose, situation)
                )
        raise PromptTooLong(
            f"the prompt for {situation.problem.name} needs about {size} tokens, and the ceiling is {self.ceiling}: "
            "the problem and the program are never cut. Raise it with --prompt-tokens"
        )

    def _sample(self, situation: Situation) -> str:
        return draw_name(self.seed, situation.move.chain, situation.move.step)

    def _render(self, template: str, context: dict[str, Any]) -> str:
        try:
            text = _templates(self.style, self.folder).get_template(template).render(context)
        except jinja2.TemplateNotFound as error:
            raise UsageError(f"the prompt style {self.style!r} has no template {error.name}") from None
        except jinja2.TemplateError as error:
            raise UsageError(f"{_place(error, template)}: {error}") from None
        return _single_blank_lines(text)


@functools.lru_cache(maxsize=16)
def _templates(style: str, folder: str) -> jinja2.Environment:
    """The templates of a style, compiled once for all prompts of a process."""
    own = [Path(folder)] if folder else []
    if own and not own[0].is_dir():
        raise UsageError(f"{own[0]}: no such folder of prompt templates")
    if style not in styles(folder):
        raise UsageError(f"no prompt style is called {style!r}; there are: {', '.join(styles(folder))}")
    # What a style does not say, the structured one does.
    folders = [*(home / style for home in own), *own, BUILT_IN / style, BUILT_IN, BUILT_IN / "structured"]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([str(place) for place in folders]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["fence"] = fence
    environment.filters["inline"] = inline
    return environment


def styles(folder: str = "") -> tuple[str, ...]:
    """The names of the styles there are."""
    homes = [BUILT_IN, *([Path(folder)] if folder else [])]
    return tuple(sorted({path.parent.name for home in homes for path in home.glob("*/generate.j2")}))


def _place(error: jinja2.TemplateError, template: str) -> str:
    """Where in a template an error lies; one that is found while it is filled in is known by its trace only."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.filename or template}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(".j2")]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else template


def check_style(style: str, folder: str = "") -> None:
    """UsageError if there is no such style or folder."""
    _templates(style, folder)


def _ways_to_shorten() -> list[tuple[int, tuple[str, ...]]]:
    """Shorter logs first, then whole optional blocks."""
    ways: list[tuple[int, tuple[str, ...]]] = [(logs, ()) for logs in _LOG_CHARACTERS]
    return ways + [(_LOG_CHARACTERS[-1], _OPTIONAL[: number + 1]) for number in range(len(_OPTIONAL))]


def _omitted_blocks(omitted: tuple[str, ...], purpose: str, situation: Situation) -> tuple[str, ...]:
    """The blocks that would have been there and were left out."""
    writing, shown = purpose == "generate", situation.shown_attempt
    there = {
        "profile_text": not writing and shown is not None and any(profile.text for profile in shown.profiles),
        "past": len(situation.past) > 1,
        "reference": writing and situation.donor is not None,
        "example": writing,
    }
    return tuple(name for name in omitted if there[name])


def _context(situation: Situation, logs: int, omitted: tuple[str, ...]) -> dict[str, Any]:
    """Everything a template may use."""
    problem, target, move = situation.problem, situation.target, situation.move
    example = target.example
    if problem.form.backward and target.backward_example is not None:
        example = (kernelbench.without_declarations(target.backward_example[0]), target.backward_example[1])
    shown = situation.shown_attempt
    failure = situation.parent if situation.parent and not situation.parent.correct else None
    texts = [profile for profile in shown.profiles if profile.text] if shown and "profile_text" not in omitted else []
    share = logs // max(1, len(texts))
    return {
        "problem": problem,
        "problem_source": _problem_text(problem, target.device_class),
        "verified_sizes": _verified_sizes(problem, target),
        "live": bool(problem.payload),
        "dtype": problem.form.dtype,
        "short": problem.form.is_short,
        "platform": target.name,
        "guide": target.guide,
        "example_reference": example[0],
        "example_candidate": example[1],
        "backward": problem.form.backward,
        "intent": move.intent.value,
        "fresh": move.intent is Intent.FRESH,
        "program": shown.candidate.source if shown and shown.candidate else "",
        "digest": shown.digest.text if shown and shown.digest else "",
        "profile_texts": [(profile.tool, cut_log(profile.text, share)) for profile in texts],
        "images": sum(len(profile.images) for profile in shown.profiles) if shown else 0,
        **_verdict_context(situation, logs),
        **workload_context(problem, situation.parent.verdict if situation.parent else None),
        "no_program": failure is not None and failure.candidate is None,
        "followed": failure.recommendation if failure else None,
        "recommendation": situation.recommendation,
        **_donor_context(situation, "reference" not in omitted),
        "past": [_line(attempt, situation.past) for attempt in situation.past[-_SHOWN_PAST:]],
        "past_left_out": max(0, len(situation.past) - _SHOWN_PAST),
        "omitted": omitted,
    }


def _rules(settings: Settings) -> dict[str, str]:
    """What a template may say of what the judge allows."""
    return {"policy": settings.policy, "precision": settings.precision}


def _verdict_context(situation: Situation, logs: int) -> dict[str, Any]:
    """What a template may say of verdicts."""
    parent, shown = situation.parent, situation.shown_attempt
    judged = parent.verdict if parent else None
    return {
        "outcome": judged.outcome.value if judged else "",
        "verdict": cut_log(without_held_out(judged.detail, judged), logs) if judged else "",
        "verdict_notes": [without_held_out(note, judged) for note in judged.notes] if judged else [],
        "hazards": [without_held_out(hazard, shown.verdict) for hazard in shown.verdict.hazards] if shown else [],
    }


def _donor_context(situation: Situation, shown: bool) -> dict[str, Any]:
    """What a template may say of a donor."""
    donor = situation.donor or Donor("")
    text, origin = donor.source, donor_origin.read(donor.origin)
    platform = origin.platform or dialects.platform_of(text)
    return {
        "has_donor": bool(text),
        "donor": text if shown else "",
        "donor_origin": origin.description,
        "donor_platform": platform,
        "donor_proven": origin.is_proven,
        "donor_language": dialects.language_of(text, origin.name),
        "donor_concepts": concepts.concept_pairs(platform, situation.target.name),
        "donor_tokens": tokens(text),
    }


def _problem_text(problem: Problem, device_class: str) -> str:
    """The problem as a writer sees it: sizes in place, nothing that only the judge reads."""
    if problem.payload:
        return problem.source
    return kernelbench.without_declarations(problem.sized_source(device_class))


def _verified_sizes(problem: Problem, target: Target) -> str:
    """The sizes a program is verified with, in words; empty where they are those it is shown."""
    written, verified = problem.sizes_for(target.device_class), problem.sizes_for(target.verified_as)
    if problem.payload or not target.verified_as or written == verified:
        return ""
    return ", ".join(f"{name} = {value}" for name, value in verified.items())


def _line(attempt: Attempt, past: tuple[Attempt, ...]) -> dict[str, Any]:
    """One attempt for the list of what was tried."""
    verdict = attempt.verdict
    return {
        "unchanged": attempt.unchanged,
        "same_as": _same_as(attempt, past),
        "step": attempt.move.step,
        "intent": attempt.move.intent.value,
        "advice": attempt.recommendation.text if attempt.recommendation else "",
        "outcome": verdict.outcome.value,
        "speedup": verdict.speedup,
        "baseline": verdict.timing.baseline if verdict.timing else "",
        "detail": without_held_out(verdict.headline, verdict),
    }


def _same_as(attempt: Attempt, past: tuple[Attempt, ...]) -> int | None:
    """The step of an earlier attempt with the same program; None if there is none."""
    if attempt.candidate is None:
        return None
    earlier = (other for other in past if other.move.step < attempt.move.step and other.candidate is not None)
    same = (other.move.step for other in earlier if other.candidate and other.candidate.id == attempt.candidate.id)
    return next(same, None)


def _single_blank_lines(text: str) -> str:
    """Blocks one blank line apart; text inside fences is left alone."""
    out: list[str] = []
    marks = ""
    for line in text.strip().split("\n"):
        head = line[: len(line) - len(line.lstrip("`"))]
        if marks:
            marks = "" if line == marks else marks
        elif len(head) >= 3:
            marks = head
        elif not line.strip() and out and not out[-1].strip():
            continue
        out.append(line)
    return "\n".join(out) + "\n"
