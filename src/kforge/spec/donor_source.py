"""From what `--reference` says to a program: a text, a file, a platform's best one in the store, or Inductor's."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kforge import registry
from kforge.agents import dialects
from kforge.agents.base import Target
from kforge.agents.donor_origin import FILE, INDUCTOR, STORE, TEXT, Origin
from kforge.agents.offline.inductor_donor import inductor_reference, lifted_class
from kforge.agents.offline.recipe import CPP, language_of
from kforge.errors import UsageError
from kforge.store.place import DEFAULT_FOLDER, find
from kforge.store.store import Proven, Store
from kforge.types import Problem


@dataclass(frozen=True)
class Donor:
    """A reference implementation; empty where there is none."""

    source: str = ""
    origin: str = ""
    """Where it comes from, as `agents.origin` reads it."""


async def find_reference(asked: str, problem: Problem, target: Target, store: str | Store) -> Donor:
    """What was asked for; UsageError says what there is instead."""
    if asked != INDUCTOR:
        return known_reference(asked, problem, store)
    text = await inductor_reference(problem, target)
    language = language_of(lifted_class(target))
    return Donor(text, Origin(INDUCTOR, "cpu" if language == CPP else language).record)


def known_reference(asked: str, problem: Problem, store: str | Store) -> Donor:
    """The same, but for a reference that Inductor has yet to write: an empty one."""
    if asked in ("", INDUCTOR):
        return Donor()
    if "\n" in asked:
        return Donor(asked, Origin(TEXT, dialects.platform_of(asked)).record)
    if asked in registry.names("platforms"):
        return _from_store(asked, problem, store)
    try:
        text = Path(asked).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        # A platform of somebody else's, who shares the store, need not be installed here.
        if _is_in_store(asked, store):
            return _from_store(asked, problem, store)
        names = ", ".join(registry.names("platforms"))
        raise UsageError(
            f"--reference {asked}: {error}; name a file, {INDUCTOR}, or a platform to take the best correct program "
            f"of from the store: {names}"
        ) from None
    return Donor(text, Origin(FILE, dialects.platform_of(text), Path(asked).name).record)


def _from_store(platform: str, problem: Problem, place: str | Store) -> Donor:
    with _reading(place) as store:
        if store is None:
            raise UsageError(_nothing(platform, problem, place, [], []))
        found = store.proven([problem.id])
        for item in found:
            if item.platform == platform:
                origin = Origin(STORE, platform, run=item.run, step=item.place)
                return Donor(store.program(item).source, origin.record)
        others = [item for item in store.proven_versions(problem) if item.platform == platform]
    raise UsageError(_nothing(platform, problem, place, found, others))


def _nothing(platform: str, problem: Problem, place: str | Store, found: list[Proven], others: list[Proven]) -> str:
    """Which platforms have a correct program instead, and how to come by one."""
    option = _option(place)
    said = f"--reference {platform}: {_shown(place)} has no correct {platform} program for {problem.name}"
    if found:
        have = ", ".join(f"{item.platform} ({_speed(item)})" for item in found)
        said += f". There is one for {have}: --reference {found[0].platform} takes it"
    else:
        said += ", nor one for any other platform"
    for item in others[:1]:
        export = f"kforge export {item.run} --step {item.place} --to FILE{option}"
        said += (
            f". Another version of {problem.name} has one ({_speed(item)}; its text differs from this problem's, so "
            f"look at it first): {export}, then --reference FILE"
        )
    where = shlex.quote(problem.path) if problem.path else "PROBLEM"
    return said + f". To make one: kforge forge {where} --platform {platform} --model NAME{option}"


def _speed(item: Proven) -> str:
    return "not timed" if item.speedup is None else f"{item.speedup:.2f}x"


def _is_in_store(platform: str, place: str | Store) -> bool:
    with _reading(place) as store:
        return store is not None and any(item.platform == platform for item in store.proven())


@contextlib.contextmanager
def _reading(place: str | Store) -> Iterator[Store | None]:
    """The store, if there is one; none is made for the sake of looking into it."""
    if isinstance(place, Store):
        yield place
        return
    store = Store.open_if_there(place)
    try:
        yield store
    finally:
        if store is not None:
            store.close()


def _shown(place: str | Store) -> str:
    where = place.place if isinstance(place, Store) else find(place)
    return f"the store at {where.shown}"


def _option(place: str | Store) -> str:
    """How a command names the store; a database's URL may hold a password and is not repeated."""
    where = (place.place if isinstance(place, Store) else find(place)).shown
    if where == DEFAULT_FOLDER:
        return ""
    return " --store " + ("URL" if "://" in where else shlex.quote(where))
