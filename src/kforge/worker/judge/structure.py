"""Whether an output has the expected structure: the same containers, keys and numbers around its tensors."""

from __future__ import annotations

from typing import Any

from kforge.worker import trees

_TAG_NAMES = {
    "n": "None",
    "b": "a bool",
    "i": "an int",
    "f": "a float",
    "c": "a complex number",
    "s": "a string",
    "D": "a dtype",
    "l": "a list",
    "u": "a tuple",
    "d": "a dict",
    "T": "a tensor",
}


def structure_difference(expected: Any, got: Any, where: str = "the output") -> str:
    """What is different about the structure; empty if it is the same. Numbers are compared as numbers."""
    if expected[0] != got[0]:
        word = got[1] if got[0] == "?" else _TAG_NAMES.get(got[0], "something else")
        return f"{where} is {'a ' if got[0] == '?' else ''}{word}, expected {_TAG_NAMES[expected[0]]}"
    if expected[0] in "lu":
        if len(expected[1]) != len(got[1]):
            return f"{where} has {len(got[1])} items, expected {len(expected[1])}"
        parts = (
            structure_difference(a, b, f"{where}[{i}]")
            for i, (a, b) in enumerate(zip(expected[1], got[1], strict=True))
        )
        return next((part for part in parts if part), "")
    if expected[0] == "d":
        wanted = {str(trees.unpack(key, [])): value for key, value in expected[1]}
        given = {str(trees.unpack(key, [])): value for key, value in got[1]}
        if list(wanted) != list(given):
            return f"{where} has keys {sorted(given)}, expected {sorted(wanted)}"
        parts = (structure_difference(wanted[key], given[key], f"{where}[{key!r}]") for key in wanted)
        return next((part for part in parts if part), "")
    if expected[0] == "f":
        want, have = float(expected[1]), float(got[1])
        if not (want == have or abs(want - have) <= 1e-4 * abs(want) or (want != want and have != have)):
            return f"{where} is {have:.7g}, expected {want:.7g}"
    elif expected[0] in "bisDc" and expected[1] != got[1]:
        return f"{where} is {got[1]!r:.80}, expected {expected[1]!r}"
    return ""
