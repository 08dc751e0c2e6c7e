"""Why a loop was not vectorised or a call not inlined, in words; nothing where the compiler's words say nothing."""

from __future__ import annotations

import re

NO_FAULT = "no fault"
"""The loop is around others, or has next to nothing to do."""
DEPENDS = "an element may depend on one computed just before"
NO_GAIN = "the compiler expects no gain from vectors"
CARRIED = (
    "a value carried over: `#pragma omp simd reduction(+|max|min: name)` allows it if it is a sum, maximum or minimum"
)

_CALL = re.compile(r"statement clobbers memory: (?:[^=(]+ = )?(?:__builtin_)?([\w:~]+(?:<[^()]*>)?) \(")
_FORK = ("GOMP_", "omp_")
_LOOPS = (
    ("prefetch", NO_FAULT),
    ("loop nest containing", NO_FAULT),
    ("outer loop", NO_FAULT),
    ("multiple nested loops", NO_FAULT),
    ("iteration count too small", NO_FAULT),
    ("possible dependence", DEPENDS),
    ("bad data dependence", DEPENDS),
    ("latch block not empty", "control flow in the loop: an early exit or a branch"),
    ("control flow in loop", "control flow in the loop: an early exit or a branch"),
    ("number of iterations", "the number of rounds is not known when it starts"),
    ("complicated access pattern", "its memory accesses follow no simple stride"),
    ("data ref analysis failed", "its memory accesses follow no simple stride"),
    ("gather", "it reads elements scattered over memory"),
    ("alias", "the arrays may overlap: `__restrict__` says that they do not"),
    ("unsupported use in stmt", CARRIED),
    ("value used after loop", CARRIED),
    ("not profitable", NO_GAIN),
    ("costings may not be worthwhile", NO_GAIN),
    ("vectorization is not beneficial", NO_GAIN),
    ("volatile", "volatile memory"),
    ("throw an exception", "a statement in it may throw"),
    ("function calls", "calls a function for each element"),
    ("no vectype for stmt", "a type without a vector form"),
    ("unsupported data-type", "a type without a vector form"),
    ("relevant stmt not supported", "an operation without a vector form"),
)
_CALLS = (
    ("large-", "it is too large: `inline __attribute__((always_inline))` forces it"),
    ("max-inline-insns", "it is too large: `inline __attribute__((always_inline))` forces it"),
    ("early-inlining-insns", ""),
    ("overwritten at link time", "it may be replaced at link time: `static` rules that out"),
    ("recursive", "it calls itself"),
    ("target specific option mismatch", "it is built for another processor"),
    ("noinline", "it is marked `noinline`"),
    ("not inline candidate", "it is not marked `inline`"),
)


def of_loop(remark: str) -> str:
    """The reason in GCC's remark on a loop it gave up; NO_FAULT where there is none, empty where it means nothing."""
    call = _CALL.search(remark)
    if call:
        return NO_FAULT if call[1].startswith(_FORK) or "prefetch" in call[1] else f"calls {call[1]} for each element"
    return next((reason for key, reason in _LOOPS if key in remark), "")


def of_clang(remark: str) -> str:
    """The reason in clang's remark, which is in plain words already."""
    plain = remark.partition("loop not vectorized:")[2].split("[-R")[0].strip(" .")
    return next((reason for key, reason in _LOOPS if key in plain and reason != NO_FAULT), plain)


def of_call(remark: str) -> str:
    """Why a call was not inlined; empty where that is nobody's fault or means nothing."""
    return next((reason for key, reason in _CALLS if key in remark), "")
