"""What NVRTC does not know without a header, or at all: names and headers that the host's compiler has.

As NVRTC 13 has it, with the toolkit's folders on its path.
"""

from __future__ import annotations

import re
from dataclasses import replace

from kforge.emulation.tokens import SourceError, Token

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([\w./+-]+)[>\"]", re.MULTILINE)
_OF_THE_HOST = re.compile(
    r"(?:c?assert|c?float|c?limits|c?math|c?stdint|c?stddef|c?stdio|c?stdlib|c?string|algorithm|cuda|limits|numeric|"
    r"type_traits|utility|tuple|array)(?:\.h)?"
)
_WHOLE = tuple(f"{sign}int{bits}_t" for sign in ("", "u") for bits in ("8", "16", "32", "64", "ptr"))
_LIMITS = ("INT_MAX", "INT_MIN", "UINT_MAX", "LONG_MAX", "LLONG_MAX", "LLONG_MIN", "ULLONG_MAX")
_NUMBERS = ("FLT_MAX", "FLT_MIN", "FLT_EPSILON", "DBL_MAX", "DBL_MIN", "DBL_EPSILON", "HUGE_VALF", "HUGE_VAL")
_CONSTANTS = ("M_PI", "M_E", "M_SQRT2", "M_SQRT1_2", "M_LN2", "M_LOG2E", "M_2_SQRTPI", "M_PI_2")
SHORT = ("uint", "ushort", "ulong", "uchar")
CURES = {
    **dict.fromkeys(_WHOLE, "write int, unsigned or long long, or include cuda/std/cstdint"),
    **dict.fromkeys(_LIMITS, "include cuda/std/climits"),
    **dict.fromkeys((*_NUMBERS, *_CONSTANTS), "write the number"),
    **dict.fromkeys(SHORT, "write unsigned"),
    "INFINITY": "write __int_as_float(0x7f800000), or include cuda/std/cmath",
    "NAN": "write __int_as_float(0x7fffffff), or include cuda/std/cmath",
    "CUDART_INF_F": "include math_constants.h",
}
"""What NVRTC knows only with a header, or not at all -> what to write instead."""
_DECLARING = {"typedef", "using", "struct", "class", "enum"}


def refuse_unknown_headers(source: str) -> None:
    """SourceError for a header of the host's compiler, which NVRTC does not find."""
    for match in _INCLUDE.finditer(source):
        if _OF_THE_HOST.fullmatch(match[1]):
            line = source.count("\n", 0, match.start()) + 1
            raise SourceError(
                line,
                f'cannot open source file "{match[1]}": NVRTC has none of the host\'s headers; mathematical functions '
                "need none, and for types and limits there are cuda/std/cstdint and cuda/std/limits",
            )


def with_own_names(tokens: list[Token], source: str) -> list[Token]:
    """The tokens with names that the source defines itself told apart from the host's.

    SourceError for one that it does not define, and that none of its headers bring.
    """
    brought = _names_of_headers([include[1] for include in _INCLUDE.finditer(source)])
    own = _declared_names(tokens)
    made = []
    for token in tokens:
        if token.kind == "name" and token.text in own:
            token = replace(token, text=f"own_{token.text}")
        elif token.kind == "name" and token.text in CURES and token.text not in brought:
            raise SourceError(token.line, f'identifier "{token.text}" is undefined in NVRTC: {CURES[token.text]}')
        made.append(token)
    return made


def _names_of_headers(headers: list[str]) -> set[str]:
    """The names that come with headers."""
    names: set[str] = set()
    for header in headers:
        if header.startswith(("cuda/std/", "cooperative_groups")) and header != "cuda/std/cfloat":
            names.update(_LIMITS, () if header == "cuda/std/climits" else _WHOLE)
        if header == "cuda/std/cmath":
            names.update(("INFINITY", "NAN"))
        if header == "math_constants.h":
            names.add("CUDART_INF_F")
    return names


def _declared_names(tokens: list[Token]) -> set[str]:
    """Names that the source gives a meaning of its own: what a typedef ends with, and what stands before `=`."""
    kept = [token for token in tokens if token.kind not in ("marker", "space")]
    own: set[str] = set()
    for place, token in enumerate(kept[1:-1], 1):
        before, after = kept[place - 1], kept[place + 1]
        if token.text in CURES and (
            (after.text in ("=", ";", "{", "[") and before.kind == "name") or before.text in _DECLARING
        ):
            own.add(token.text)
    return own
