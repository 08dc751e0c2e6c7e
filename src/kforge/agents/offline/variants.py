"""The moves of the offline writer, as data: what each changes, why, and what a program must hold for it to matter.

A program's variant is a set of moves, written `default` or `one_pass+fast_exp`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kforge.agents.offline.recipe import CPP, OWN_FAMILIES, OWN_TEMPLATES, TRITON, Recipe

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
    advice: str
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
    """Whether the move is for mending, not for speed."""
    language: str = CPP
    """What the kernels it is for are written in."""


_CPU = (
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
_LIBRARY = r"torch\.(mm|addmm|bmm|baddbmm|convolution)\("
_GPU = (
    Variant(
        "split_products",
        "Do matrix products on the tensor cores, each as three TF32 products of split operands: float32's accuracy.",
        OWN_TEMPLATES + Recipe(rewrites={"allow_tf32=ALLOW_TF32": 'input_precision="tf32x3"'}),
        needs=_LIBRARY + r"|tl\.dot\(",
        helps="compute",
        language=TRITON,
    ),
    Variant(
        "triton_products",
        "Do matrix products and convolutions in Triton kernels of their own instead of the library's.",
        OWN_TEMPLATES,
        needs=_LIBRARY,
        helps="compute",
        repair=True,
        language=TRITON,
    ),
    Variant(
        "whole_rows",
        "Hold each row in registers from the first read to the last write, so that it is read once.",
        Recipe(row_limit=1 << 15),
        needs=r"in tl\.range\(0, r0_numel",
        helps="memory",
        excludes=("pipelined",),
        language=TRITON,
    ),
    Variant(
        "open_attention",
        "Do attention as two matrix products and a softmax, so that each can be written anew.",
        Recipe(apart=("attention",)),
        needs=r"scaled_dot_product",
        helps="compute",
        language=TRITON,
    ),
    Variant(
        "two_sums",
        "Compute mean and variance as two plain sums instead of updating both with every element.",
        Recipe(apart=("variance",)),
        needs=r"welford",
        helps="compute",
        language=TRITON,
    ),
    Variant(
        "channels_first",
        "Leave images as they lie instead of turning them to channels last for the library.",
        Recipe(options={"layout_optimization": False}),
        needs=r"torch\.convolution\(",
        helps="memory",
        language=TRITON,
    ),
    Variant(
        "more_warps",
        "Use twice the warps for a block, so that each thread has half the work and more loads are waited for at once.",
        Recipe(tuning={"warps": 1}),
        needs=r"num_warps=(1|2|4|8)\b",
        helps="latency",
        excludes=("fewer_warps",),
        language=TRITON,
    ),
    Variant(
        "fewer_warps",
        "Use half the warps for a block, so that each thread reads more at a time and reductions take fewer steps.",
        Recipe(tuning={"warps": -1}),
        needs=r"num_warps=(2|4|8|16)\b",
        helps="memory",
        language=TRITON,
    ),
    Variant(
        "large_blocks",
        "Use blocks twice the size: fewer programs, each with more loads in flight.",
        Recipe(tuning={"block": 1}),
        needs=r"[XYR]0?_?BLOCK=",
        helps="memory",
        excludes=("small_blocks",),
        language=TRITON,
    ),
    Variant(
        "small_blocks",
        "Use blocks half the size: more programs for the multiprocessors, fewer registers for each.",
        Recipe(tuning={"block": -1}),
        needs=r"[XYR]0?_?BLOCK=",
        helps="latency",
        language=TRITON,
    ),
    Variant(
        "pipelined",
        "Load the next parts of a row while the last are worked on.",
        Recipe(rewrites={"tl.range(0, r0_numel, R0_BLOCK)": "tl.range(0, r0_numel, R0_BLOCK, num_stages=3)"}),
        needs=r"tl\.range\(0, r0_numel, R0_BLOCK\)",
        helps="latency",
        language=TRITON,
    ),
    Variant(
        "fast_math",
        "Use the hardware's approximate exponential instead of the library's.",
        Recipe(options={"use_fast_math": True}, rewrites={"libdevice.exp(": "tl.exp("}),
        needs=r"libdevice\.exp\(",
        helps="compute",
        language=TRITON,
    ),
    Variant(
        "narrow_tiles",
        "Use blocks half as wide for matrix products: two of them fit on a multiprocessor, one works while one waits.",
        Recipe(tile=(128, 64, 32, 3, 8)),
        needs=r"BLOCK_M : tl\.constexpr",
        helps="compute",
        excludes=("small_tiles",),
        language=TRITON,
    ),
    Variant(
        "small_tiles",
        "Use smaller blocks for matrix products: less waste at the edges, more programs at a time.",
        Recipe(tile=(64, 64, 32, 3, 4)),
        needs=r"BLOCK_M : tl\.constexpr",
        helps="latency",
        language=TRITON,
    ),
    Variant(
        "plain",
        "Use small blocks and loops everywhere: what asks least of the device.",
        Recipe(options={"triton.persistent_reductions": False}, tuning={"block": -1}, tile=(64, 64, 32, 2, 4)),
        excludes=("whole_rows", "large_blocks", "narrow_tiles", "pipelined"),
        repair=True,
        language=TRITON,
    ),
)
VARIANTS = {variant.name: variant for variant in (*_CPU, *_GPU)}


def for_language(language: str) -> tuple[Variant, ...]:
    """The moves for kernels in a language, in the order in which they are tried where nothing speaks for one."""
    return tuple(variant for variant in VARIANTS.values() if variant.language == language)


def repairs(language: str, own_work: bool) -> tuple[str, ...]:
    """Safer variants for a program that failed, in order; `own_work`: it failed because torch did its work."""
    if language == TRITON:
        names = ("plain", "triton_products", combine("triton_products", "plain"))
        return (*names[1:], "plain") if own_work else names
    first = ("own_kernels",) if own_work else ()
    last = combine("own_kernels", "careful+scalar")
    return (*first, "careful", combine("careful", "scalar"), "own_kernels", last)


def moves_in(name: str) -> tuple[str, ...]:
    """The moves of a variant's name, in the order of their declaration; unknown words are dropped."""
    names = set(name.split("+"))
    return tuple(variant for variant in VARIANTS if variant in names)


def combine(parent: str, action: str) -> str:
    """The name of a parent's variant with an action's moves added; what those exclude goes."""
    added = moves_in(action)
    kept = [move for move in moves_in(parent) if not any(_clash(move, other) for other in added)]
    moves = {*kept, *added}
    return "+".join(move for move in VARIANTS if move in moves) or DEFAULT


def recipe(name: str, language: str = CPP) -> Recipe:
    """How a program of that variant is made."""
    start = Recipe(flags=_FLAGS) if language == CPP else Recipe()
    return sum((VARIANTS[move].recipe for move in moves_in(name)), start)


def variant_of(source: str) -> str | None:
    """The variant a program's header names; None if it is no lifted program."""
    header = _HEADER.search(source)
    return header.group(1) if header else None


def _clash(one: str, other: str) -> bool:
    return other in VARIANTS[one].excludes or one in VARIANTS[other].excludes
