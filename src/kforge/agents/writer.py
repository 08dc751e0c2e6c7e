"""The generation agent: a model asked for a program."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.agents.base import Draft, Situation
from kforge.agents.prompt_maker import PromptMaker
from kforge.agents.reply import NEVER_CLOSED, ReplyProgram, find_program
from kforge.models.base import Model
from kforge.types import Completion, Finish

_ENDINGS = {
    Finish.LENGTH: "the reply was cut off at the token limit (--max-output-tokens)",
    Finish.FILTERED: "the provider's content filter took the reply",
    Finish.REFUSED: "the model declined to answer",
}


@dataclass(frozen=True)
class ModelWriter:
    """Asks a model, and finds the program in its reply."""

    model: Model
    prompts: PromptMaker

    async def write(self, situation: Situation) -> Draft:
        written = self.prompts.generate(situation)
        completion = await self.model.complete(written.prompt)
        program = read_reply(completion, situation)
        left_out = tuple(f"left out of the prompt, for its length: {name}" for name in written.omitted)
        notes = (*left_out, *program.notes)
        return Draft(program.source, program.reason, completion.usage, notes, seconds=completion.seconds)


def _program_in(text: str, situation: Situation) -> ReplyProgram:
    """The program in a reply; a diff that does not fit the program that was shown may fit another of the chain.

    Which one is shown depends on measured times, and the replies of a recording were written for other measurements.
    """
    shown = situation.shown_attempt
    program = find_program(text, shown.candidate.source if shown and shown.candidate else None)
    if not program.misfit:
        return program
    for attempt in reversed(situation.past):
        if attempt.candidate is not None:
            other = find_program(text, attempt.candidate.source)
            if other.source is not None:
                note = f"the reply was a diff against the program of step {attempt.move.step}, which was not shown"
                return ReplyProgram(other.source, notes=(note,))
    return program


def read_reply(completion: Completion, situation: Situation) -> ReplyProgram:
    """The program in a completion, or the reason there is none."""
    program = _program_in(completion.text, situation)
    if completion.finish is Finish.STOP:
        return program
    ending = _ENDINGS[completion.finish]
    if program.source is not None and completion.finish is Finish.LENGTH and NEVER_CLOSED not in program.notes:
        return ReplyProgram(program.source, notes=(*program.notes, f"{ending}, after a whole program"))
    excerpt = " ".join(completion.text.split())[:200]
    return ReplyProgram(None, f"{ending}: {excerpt!r}" if excerpt and completion.finish is Finish.REFUSED else ending)
