"""What the same thing is called on different platforms: for a reader who has a program for one and writes another.

A row is one concept, a column one platform's `terms`. A platform that has no word for a concept is left out of its row;
platforms without terms, or that are not installed, are mapped to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kforge import registry
from kforge.errors import KForgeError

CONCEPTS = (
    *("kernel", "grid", "block", "thread", "global index", "warp", "warp exchange", "shared memory", "barrier"),
    *("warp barrier", "global memory", "constant", "wide access", "atomic", "matrix unit", "functions", "double"),
)
"""The usual rows, in their order; what else two platforms both name follows."""


class ConceptPair(NamedTuple):
    """One concept on two platforms."""

    there: str
    here: str


def concept_pairs(there: str, here: str) -> tuple[ConceptPair, ...]:
    """What is called otherwise on platform `here` than on platform `there`; empty where one has no terms."""
    theirs, ours = terms_of(there), terms_of(here)
    rows = [name for name in dict.fromkeys((*CONCEPTS, *theirs)) if name in theirs and name in ours]
    return tuple(ConceptPair(theirs[name], ours[name]) for name in rows if theirs[name] != ours[name])


def terms_of(platform: str) -> Mapping[str, str]:
    """What a platform calls things, wherever its programs are verified; empty for one that is unknown here."""
    if platform not in registry.names("platforms"):
        return {}
    try:
        return registry.load("platforms", platform).hardware().terms
    except KForgeError:
        return {}
