"""From what `--reference` names to a donor: a text, a file, a platform's best program in the store, or Inductor's."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kforge import registry
from kforge.agents import dialects
from kforge.agents.base import Target
from kforge.agents.donor_origin import FILE, INDUCTOR, STORE, TEXT, Origin
from kforge.agents.offline.inductor_donor import inductor_program, lifted_class
from kforge.agents.offline.recipe import CPP, language_of
from kforge.errors import UsageError
from kforge.store.place import DEFAULT_FOLDER, find
from kforge.store.store import Proven, Store
from kforge.types import Donor, Problem, RunSpec


async def with_donor(spec: RunSpec, target: Target, store: str | Store) -> RunSpec:
    """The specification with the donor it asks for; UsageError says what there is instead."""
    if spec.donor is not None or not spec.reference:
        return spec
    if spec.reference != INDUCTOR:
        # A program that was handed over as a text is the donor's from now on, and is kept once.
        name = "" if "\n" in spec.reference else spec.reference
        return replace(spec, reference=name, donor=find_donor(spec.reference, spec.problem, store))
    source = await inductor_program(spec.problem, target)
    language = language_of(lifted_class(target))
    return replace(spec, donor=Donor(source, Origin(INDUCTOR, "cpu" if language == CPP else language).record))


def find_donor(reference: str, problem: Problem, store: str | Store) -> Donor:
    """The donor behind a text, a file's path, or a platform's name."""
    if "\n" in reference:
        return Donor(reference, Origin(TEXT, dialects.platform_of(reference)).record)
    if reference in registry.names("platforms"):
        return _donor_from_store(reference, problem, store)
    try:
        text = Path(reference).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        # A platform of somebody else's, who shares the store, need not be installed here.
        if _is_in_store(reference, store):
            return _donor_from_store(reference, problem, store)
        names = ", ".join(registry.names("platforms"))
        raise UsageError(
            f"--reference {reference}: {error}; name a file, {INDUCTOR}, or a platform to take the best correct "
            f"program of from the store: {names}"
        ) from None
    return Donor(text, Origin(FILE, dialects.platform_of(text), Path(reference).name).record)


def _donor_from_store(platform: str, problem: Problem, place: str | Store) -> Donor:
    with _read_store(place) as store:
        if store is None:
            raise UsageError(_no_donor_message(platform, problem, place, [], []))
        programs = store.proven([problem.id])
        for item in programs:
            if item.platform == platform:
                origin = Origin(STORE, platform, run=item.run, step=item.place)
                return Donor(store.program(item).source, origin.record)
        others = [item for item in store.proven_versions(problem) if item.platform == platform]
    raise UsageError(_no_donor_message(platform, problem, place, programs, others))


def _no_donor_message(
    platform: str, problem: Problem, place: str | Store, programs: list[Proven], others: list[Proven]
) -> str:
    """Which platforms have a correct program instead, and how to come by one."""
    option = _store_option(place)
    message = f"--reference {platform}: {_store_text(place)} has no correct {platform} program for {problem.name}"
    if programs:
        have = ", ".join(f"{item.platform} ({_speed_text(item)})" for item in programs)
        message += f". There is one for {have}: --reference {programs[0].platform} takes it"
    else:
        message += ", nor one for any other platform"
    for item in others[:1]:
        export = f"kforge export {item.run} --step {item.place} --to FILE{option}"
        message += (
            f". Another version of {problem.name} has one ({_speed_text(item)}; its text differs from this problem's, "
            f"so look at it first): {export}, then --reference FILE"
        )
    where = shlex.quote(problem.path) if problem.path else "PROBLEM"
    return message + f". To make one: kforge forge {where} --platform {platform} --model NAME{option}"


def _speed_text(item: Proven) -> str:
    return "not timed" if item.speedup is None else f"{item.speedup:.2f}x"


def _is_in_store(platform: str, place: str | Store) -> bool:
    with _read_store(place) as store:
        return store is not None and any(item.platform == platform for item in store.proven())


@contextlib.contextmanager
def _read_store(place: str | Store) -> Iterator[Store | None]:
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


def _store_text(place: str | Store) -> str:
    where = place.place if isinstance(place, Store) else find(place)
    return f"the store at {where.shown}"


def _store_option(place: str | Store) -> str:
    """How a command names the store; a database's URL may hold a password and is not repeated."""
    where = (place.place if isinstance(place, Store) else find(place)).shown
    if where == DEFAULT_FOLDER:
        return ""
    return " --store " + ("URL" if "://" in where else shlex.quote(where))
