"""What is asked of the table of model calls."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sqlalchemy import Connection, func, insert, select

from kforge.store.records import dump, load, plain
from kforge.store.schema import calls
from kforge.types import Completion, Usage


@dataclass(frozen=True)
class CallKey:
    """What a completion answered."""

    prompt_id: str
    blob: str | None
    """The prompt's text; None where it was not to be kept."""


def save(connection: Connection, number: int, slot: str, completion: Completion, key: CallKey) -> None:
    """Record a call of run `number`."""
    usage = completion.usage
    connection.execute(
        insert(calls),
        {
            "run": number,
            "slot": plain(slot),
            "model": plain(completion.model),
            "prompt_id": plain(key.prompt_id),
            "prompt": key.blob,
            "requests": usage.requests,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "dollars": usage.dollars,
            "unpriced": usage.unpriced,
            "created": time.time(),
            "document": dump(completion),
        },
    )


def find(connection: Connection, number: int, slot: str) -> Completion | None:
    query = select(calls.c.document).where(calls.c.run == number, calls.c.slot == plain(slot))
    document = connection.execute(query).scalar()
    return None if document is None else load(Completion, document)


def prompt_blob(connection: Connection, number: int, slot: str) -> str | None:
    query = select(calls.c.prompt).where(calls.c.run == number, calls.c.slot == plain(slot))
    return connection.execute(query).scalar()


def spent(connection: Connection, number: int) -> Usage:
    """The sum over a run's calls."""
    names = ("requests", "input_tokens", "output_tokens", "dollars", "unpriced")
    row = connection.execute(select(*(func.sum(calls.c[name]) for name in names)).where(calls.c.run == number)).one()
    requests, input_tokens, output_tokens, dollars, unpriced = (value or 0 for value in row)
    return Usage(int(requests), int(input_tokens), int(output_tokens), float(dollars), int(unpriced))
