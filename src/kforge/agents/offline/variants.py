"""The moves of the offline writer, as data: what each changes, why, and what a program must hold for it to matter.

A program's variant is a set of moves, written `default` or `one_pass+fast_exp`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kforge.agents.offline.recipe import OWN_FAMILIES, Recipe

DEFAULT = "default"
_FLAGS = ("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
_HEADER = re.compile(r"^variant: ([\w+]+)$", re.MULTILINE)

_LOAD_MASK = """
// Flags of a whole vector at once; the library goes from one to the next, with a branch for each.
template <typename U>
inline at::vec::VecMask<float, 1> load_mask(const U* flags, int64_t count) {
    return at::vec::VecMask<float, 1>::from(flags, count);
}

inline at::vec::VecMask<float, 1> load_mask(const bool* flags, int64_t count) {
    using Vec = at::vec::Vectorized<float>;
    alignas(64) int32_t lanes[Vec::size()];
    if (count == Vec::size()) {
        for (int64_t i = 0; i < Vec::size(); ++i) {
            lanes[i] = -static_cast<int32_t>(flags[i]);
        }
    } else {
        for (int64_t i = 0; i < Vec::size(); ++i) {
            lanes[i] = i < count ? -static_cast<int32_t>(flags[i]) : 0;
        }
    }
    return at::vec::VecMask<float, 1>(Vec::loadu(lanes));
}
"""


@dataclass(frozen=True)
class Variant:
    """One move."""

    name: str
    words: str
    """What it changes and why, for a person."""
    recipe: Recipe
    """What it adds to how a program is made."""
    needs: str = ""
    """A pattern that the parent's text must hold; empty: always."""
    helps: str = ""
    """The kind of bound it is for: memory, compute, overhead."""
    excludes: tuple[str, ...] = ()
    """Moves it makes no sense with."""
    repair: bool = False
    """For mending, not for speed."""


_ALL = (
    Variant(
        "fast_masks",
        "Read boolean masks sixteen at a time, without a branch for each element.",
        Recipe(rewrites={"at::vec::VecMask<float,1>::from(in_ptr": "load_mask(in_ptr"}, prelude=_LOAD_MASK),
        needs=r"VecMask<float,1>::from\(in_ptr",
        helps="compute",
        excludes=("scalar",),
    ),
    Variant(
        "row_at_once",
        "Compute a row's mean, its variance and the result in one loop over rows, while the row is in the cache.",
        Recipe(apart=("variance",)),
        needs=r"norm|var",
        helps="memory",
        excludes=("one_pass",),
    ),
    Variant(
        "one_pass",
        "Compute mean and variance in one pass over each row, so that the row is read from memory once.",
        Recipe(options={"cpp.use_two_step_variance_threshold": 0}),
        needs=r"norm|var",
        helps="memory",
    ),
    Variant(
        "fast_exp",
        "Use the exponential that torch rates at 20 units in the last place instead of 1; it takes fewer instructions.",
        Recipe(rewrites={".exp()": ".exp_u20()"}),
        needs=r"\.exp\(\)",
        helps="compute",
        excludes=("scalar",),
    ),
    Variant(
        "half_width",
        "Use vectors of half the width: where a loop waits for its last result, shorter ones are through sooner.",
        Recipe(options={"cpp.simdlen": 256}),
        needs=r"CPU_CAPABILITY_AVX512",
        helps="compute",
        excludes=("scalar",),
    ),
    Variant(
        "unroll",
        "Unroll the loops, so that several iterations are in flight.",
        Recipe(flags=("-funroll-loops",)),
        needs=r"for ?\(",
        helps="compute",
    ),
    Variant(
        "one_thread",
        "Run the kernels on one thread: for little work, waking the others costs more than they bring.",
        Recipe(options={"cpp.threads": 1}),
        needs=r"#pragma omp parallel",
        helps="overhead",
    ),
    Variant(
        "careful",
        "Compile with strict floating point: no contraction, nothing assumed.",
        Recipe(flags=("-ffp-contract=off", "-fmath-errno", "-ftrapping-math")),
        excludes=("fast_exp",),
        repair=True,
    ),
    Variant(
        "scalar",
        "Write plain scalar loops instead of vector instructions.",
        Recipe(options={"cpp.simdlen": 1}),
        excludes=("fast_exp", "fast_masks", "half_width"),
        repair=True,
    ),
    Variant(
        "own_kernels",
        "Do what the library does in kernels of our own.",
        Recipe(own=OWN_FAMILIES),
        repair=True,
    ),
)
VARIANTS = {variant.name: variant for variant in _ALL}


def moves_in(name: str) -> tuple[str, ...]:
    """The moves of a variant's name, in the order of their declaration; unknown words are dropped."""
    words = set(name.split("+"))
    return tuple(variant for variant in VARIANTS if variant in words)


def combined(parent: str, action: str) -> str:
    """The name of a parent's variant with an action's moves added; what those exclude goes."""
    added = moves_in(action)
    kept = [move for move in moves_in(parent) if not any(_clash(move, other) for other in added)]
    words = {*kept, *added}
    return "+".join(move for move in VARIANTS if move in words) or DEFAULT


def recipe(name: str) -> Recipe:
    """How a program of that variant is made."""
    return sum((VARIANTS[move].recipe for move in moves_in(name)), Recipe(flags=_FLAGS))


def variant_of(source: str) -> str | None:
    """The variant a program's header names; None if it is no lifted program."""
    found = _HEADER.search(source)
    return found.group(1) if found else None


def _clash(one: str, other: str) -> bool:
    return other in VARIANTS[one].excludes or one in VARIANTS[other].excludes
