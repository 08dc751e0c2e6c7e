"""Small Triton functions that lifted kernels call: what Inductor imports from its own runtime, written out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kforge.agents.offline.recipe import Unliftable


@dataclass(frozen=True)
class TritonFunction:
    """A function of ours for one of Inductor's helpers."""

    name: str
    text: str


_ALL = {
    "promote_to_tensor": TritonFunction(
        "as_tensor",
        '''\
def as_tensor(x):
    """A number as a block of one element; a block as it is."""
    return x + tl.zeros((1,), tl.int1)
''',
    ),
    "maximum": TritonFunction(
        "maximum",
        '''\
def maximum(a, b):
    """The larger one; NaN where either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    ),
    "minimum": TritonFunction(
        "minimum",
        '''\
def minimum(a, b):
    """The smaller one; NaN where either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    ),
    "max2": TritonFunction(
        "max_along",
        """\
def max_along(x, axis):
    return tl.reduce(x, axis, maximum)
""",
    ),
    "min2": TritonFunction(
        "min_along",
        """\
def min_along(x, axis):
    return tl.reduce(x, axis, minimum)
""",
    ),
    "_times": TritonFunction(
        "times",
        """\
def times(a, b):
    return a * b
""",
    ),
    "prod": TritonFunction(
        "product_along",
        """\
def product_along(x, axis):
    return tl.reduce(x, axis, times)
""",
    ),
    "_either": TritonFunction(
        "either",
        """\
def either(a, b):
    return a | b
""",
    ),
    "any": TritonFunction(
        "any_along",
        """\
def any_along(x, axis):
    return tl.reduce(x, axis, either)
""",
    ),
    "maximum_with_index": TritonFunction(
        "larger_of",
        '''\
def larger_of(a, a_place, b, b_place):
    """The larger value and its place; NaN counts as largest, the first of equals wins."""
    a_nan, b_nan = a != a, b != b
    level = (a == b) | (a_nan & b_nan)
    first = tl.where(level, a_place < b_place, a_nan | ((a > b) & (b == b)))
    return tl.where(first, a, b), tl.where(first, a_place, b_place)
''',
    ),
    "minimum_with_index": TritonFunction(
        "smaller_of",
        '''\
def smaller_of(a, a_place, b, b_place):
    """The smaller value and its place; NaN counts as smallest, the first of equals wins."""
    a_nan, b_nan = a != a, b != b
    level = (a == b) | (a_nan & b_nan)
    first = tl.where(level, a_place < b_place, a_nan | ((a < b) & (b == b)))
    return tl.where(first, a, b), tl.where(first, a_place, b_place)
''',
    ),
    "max_with_index": TritonFunction(
        "argmax_along",
        """\
def argmax_along(x, place, axis):
    return tl.reduce((x, place), axis, larger_of)
""",
    ),
    "min_with_index": TritonFunction(
        "argmin_along",
        """\
def argmin_along(x, place, axis):
    return tl.reduce((x, place), axis, smaller_of)
""",
    ),
    "exp": TritonFunction(
        "exponential",
        """\
def exponential(x, fast: tl.constexpr):
    return tl.exp(x) if fast else libdevice.exp(x)
""",
    ),
    "online_softmax_combine": TritonFunction(
        "softmax_step",
        '''\
def softmax_step(top, total, x, fast: tl.constexpr):
    """Take x into a running maximum and the running sum of exponentials below it."""
    new_top = maximum(top, x)
    nothing = new_top == float("-inf")
    kept = tl.where(nothing, 1.0, exponential(top - new_top, fast))
    added = tl.where(nothing, 1.0, exponential(x - new_top, fast))
    return new_top, total * kept + added
''',
    ),
    "online_softmax_reduce": TritonFunction(
        "softmax_along",
        '''\
def softmax_along(top, total, axis, fast: tl.constexpr):
    """The maximum of all, and the sum of exponentials below it."""
    highest = max_along(top, axis)
    ceiling = tl.expand_dims(highest, axis)
    below = tl.where(ceiling == float("-inf"), 0.0, top - ceiling)
    return highest, tl.sum(total * exponential(below, fast), axis)
''',
    ),
    "welford_reduce": TritonFunction(
        "welford_step",
        '''\
def welford_step(x, mean, squares, count, first):
    """Take x into a running mean and the sum of squared distances from it."""
    if first:
        new_mean, new_squares, new_count = x, tl.zeros_like(squares), tl.full(count.shape, 1, count.dtype)
    else:
        new_count = count + 1
        distance = x - mean
        new_mean = mean + distance / new_count
        new_squares = squares + distance * (x - new_mean)
    return new_mean, new_squares, new_count
''',
    ),
    "welford_combine": TritonFunction(
        "welford_both",
        '''\
def welford_both(mean, squares, count, other_mean, other_squares, other_count):
    """Mean, sum of squared distances and count of two sets together."""
    both = count + other_count
    share = tl.where(both == 0.0, 0.0, other_count / both)
    apart = other_mean - mean
    return mean + apart * share, squares + other_squares + apart * apart * count * share, both
''',
    ),
    "welford": TritonFunction(
        "welford_along",
        """\
def welford_along(mean, squares, count, axis):
    return tl.reduce((mean, squares, count), axis, welford_both)
""",
    ),
    "select_one": TritonFunction(
        "pick",
        '''\
def pick(x, chosen, dim, keep_dims=False):
    """The one element along an axis where `chosen` is true, bit for bit."""
    bits = tl.core.get_int_dtype(x.dtype.primitive_bitwidth, signed=False)
    found = tl.sum(tl.where(chosen, x.to(bits, bitcast=True), 0), dim, keep_dims=keep_dims)
    return found.to(bits).to(x.dtype, bitcast=True)
''',
    ),
    "div_floor_integer": TritonFunction(
        "floor_divide",
        '''\
def floor_divide(a, b):
    """Whole-number division towards minus infinity."""
    down = ((a % b) != 0) & ((a < 0) != (b < 0))
    return tl.where(down, a // b - 1, a // b)
''',
    ),
    "remainder_integer": TritonFunction(
        "floor_remainder",
        '''\
def floor_remainder(a, b):
    """What floor division leaves: its sign is b's."""
    left = a % b
    return tl.where((left != 0) & ((a < 0) != (b < 0)), left + b, left)
''',
    ),
    "device_assert_then": TritonFunction(
        "checked",
        """\
def checked(condition, message, x):
    tl.device_assert(condition, message)
    return x
""",
    ),
}
NAMES = frozenset(function.name for function in _ALL.values())
_BY_NAME = {function.name: key for key, function in _ALL.items()}
_DESCRIPTION = re.compile(r'"""[^"]*"""')
_CALLED = re.compile(r"\b(" + "|".join(sorted(NAMES, key=len, reverse=True)) + r")\b")


def own_name(helper: str) -> str:
    """What a program calls one of Inductor's helpers; Unliftable where we have none for it."""
    if helper not in _ALL:
        raise Unliftable(f"a kernel calls Inductor's {helper}, and a plain program has nothing like it")
    return _ALL[helper].name


def texts(helpers: set[str]) -> list[str]:
    """The functions for these helpers and what those call, what is called first; Unliftable where we have none."""
    wanted = {_BY_NAME[own_name(helper)] for helper in helpers}
    while True:
        called = {_BY_NAME[name] for key in wanted for name in _CALLED.findall(_DESCRIPTION.sub("", _ALL[key].text))}
        if called <= wanted:
            break
        wanted |= called
    return [f"@triton.jit\n{_ALL[key].text}" for key in _ALL if key in wanted]
