"""Is an output right? Measured against float64, judged on a norm and on the worst element.

A candidate may be a small factor worse than the same module run eagerly in its own precision, or within a floor that
the dtype sets; nothing absolute, so near-zero outputs are held to their own scale.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kforge.worker.arena import dtype_name
from kforge.worker.trees import Tree

_norm = torch.linalg.vector_norm
_FLOORS = {"float64": 1e-9, "float32": 1e-4, "float16": 1.25e-3, "bfloat16": 5e-3}
"""Of the two short types, two and a half times what rounding the result costs at most: eager's own error is about half
of that cost, eight-bit integers make six times eager's.
"""
_PRECISIONS = {"": 0.0, "float32": 1e-4, "tf32": 2e-3, "float16": 5e-3, "bfloat16": 2e-2}
_FACTOR = 4.0
_ELEMENT_FACTOR = 5.0
_CHUNK, _DEVICE_CHUNK = 1 << 17, 1 << 25
_SHORT_ROW = 16
_TYPICAL_SAMPLES = 1 << 13
_NEGLIGIBLE = {torch.float64: 1e-290, torch.float32: 1e-31, torch.bfloat16: 1e-31, torch.float16: 1.2e-7}
"""Where the steps between a dtype's smallest numbers begin to matter."""
_FLAGS_AT_ONCE, _MOST_PLACES = 1 << 25, 1 << 25
_SHOWN = 5
_SMALL_ERROR = 1e-2
_SMALLEST = 1e-300
_SURELY_SUMMED = (1e-12, 1e18)
"""A norm that squares summed in float32 give well: none of those that matter was too small or too large."""
_dice = random.SystemRandom()


@dataclass(frozen=True)
class Tolerance:
    """Relative floors per dtype, and the precision the user allowed."""

    declared: dict[str, float]
    precision: str = ""

    def floor(self, dtype: str) -> float:
        return max(self.declared.get(dtype, _FLOORS.get(dtype, 5e-2)), _PRECISIONS[self.precision])


@dataclass(frozen=True)
class ExpectedLeaf:
    """One tensor of an expected output."""

    eager: torch.Tensor
    """In the problem's own precision: fixes dtype, shape, and where NaN and infinity belong."""
    exact: torch.Tensor
    """In float64 where that could be computed, else the eager one."""
    eager_norm: float
    """Eager's own relative error norm."""
    eager_worst: float
    """Eager's largest absolute error."""
    finite: bool
    """Whether eager and float64 are finite everywhere, as they usually are."""
    rms: float
    """Root mean square of the finite values."""
    typical: float = 0.0
    """The median of eager's relative errors."""
    negligible: float = 0.0
    """What is as good as zero: where inputs are extreme, and exp saturates a little earlier or later."""
    granted: torch.Tensor | None = None
    """What each element may be off by beside: where rounding decides (`rounding_grants.py`)."""
    others: tuple[torch.Tensor, ...] = ()
    """What other ways to compute it gave that have NaN or infinity elsewhere: right as well, where they do."""
    spread: torch.Tensor | None = None
    """Where NaN is right as well: where an honest algorithm may carry one to."""


@dataclass(frozen=True)
class Expected:
    """An expected output: its structure and its tensors."""

    tree: Tree
    outputs: tuple[torch.Tensor, ...]
    """As eager gave them: these fix dtype, shape and layout."""
    leaves: tuple[ExpectedLeaf, ...]


@dataclass(frozen=True)
class OutputDifference:
    """How far one output is off. `message` is empty if it passes."""

    norm: float
    norm_limit: float
    worst: float
    message: str = ""


def make_leaf(eager: torch.Tensor, exact: torch.Tensor | None, extreme: bool = False) -> ExpectedLeaf:
    """A leaf with eager's own errors measured. Of `extreme` inputs, results next to nothing are as good as zero."""
    same = exact is None or exact is eager or exact.shape != eager.shape
    eager = as_real(eager.detach())
    exact = eager if same or exact is None else as_real(exact.detach())
    if not eager.is_floating_point():
        return ExpectedLeaf(eager, exact, 0.0, 0.0, True, 0.0)
    if same:
        error_square, worst = 0.0, 0.0
        reference_square, finite = _measure_size(eager)
    else:
        error_square, worst, reference_square, finite = _measure_errors(eager, exact)
    rms = float((reference_square / max(1, eager.numel())) ** 0.5)
    negligible = _NEGLIGIBLE.get(eager.dtype, 0.0) if extreme else 0.0
    norm = _relative_norm(error_square, reference_square)
    return ExpectedLeaf(eager, exact, norm, worst, finite, rms, _typical_error(eager, exact), negligible)


def _measure_errors(eager: torch.Tensor, exact: torch.Tensor) -> tuple[float, float, float, bool]:
    """Errors squared, the largest one, exact values squared, as far as both are finite; whether they are everywhere."""
    error_square = reference_square = worst = 0.0
    finite = True
    pairs = list(zip(_rows(eager), _rows(exact), strict=True))
    measured = _read_together(_measure_rows(got, want.double()) for got, want in pairs)
    for (got, want), (largest, distance, length) in zip(pairs, measured, strict=True):
        if not math.isfinite(largest + length):
            finite = False
            fine = torch.isfinite(got) & torch.isfinite(want)
            cleaned = torch.where(fine, got, 0.0), torch.where(fine, want.double(), 0.0)
            largest, distance, length = _measure_rows(*cleaned).tolist()
        error_square += distance**2
        reference_square += length**2
        worst = max(worst, largest)
    return error_square, worst, reference_square, finite


def _measure_rows(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Of some rows: the largest error, the errors' norm, the exact values' norm."""
    error = _difference(got, want)
    distance = _norm(error)
    return torch.stack((_largest_magnitude(error), distance, _norm(want)))


def _measure_size(tensor: torch.Tensor) -> tuple[float, bool]:
    """The finite values squared and summed; whether all are finite."""
    square, finite = 0.0, True
    parts = list(_rows(tensor))
    own = tensor.dtype == torch.float32
    lengths = _read_together(_norm(rows if own else rows.double()) for rows in parts)
    for rows, length in zip(parts, lengths, strict=True):
        if not math.isnan(length) and not _SURELY_SUMMED[0] < length < _SURELY_SUMMED[1]:
            length = float(_norm(rows.double()))
        if not math.isfinite(length):
            finite = False
            length = float(_norm(rows.nan_to_num(0.0, 0.0, 0.0).double()))
        square += length**2
    return square, finite


def _read_together(measured: Iterable[torch.Tensor]) -> list[Any]:
    """Tensors of numbers as those. A device is waited for once, at the end."""
    tensors = list(measured)
    return torch.stack(tensors).tolist() if tensors else []


def compare(leaf: ExpectedLeaf, actual: torch.Tensor, tolerance: Tolerance, name: str) -> OutputDifference:
    """Hold one output tensor against its leaf."""
    actual = as_real(actual.to(leaf.eager.device))
    if not leaf.eager.is_floating_point():
        return _compare_exactly(leaf, actual, name)
    if leaf.granted is not None:
        actual = _less_granted(actual, leaf.exact, leaf.granted)
    floor = tolerance.floor(dtype_name(leaf.eager.dtype))
    norm_limit = max(_FACTOR * leaf.eager_norm, floor)
    if leaf.eager_worst == 0.0 and _are_equal(leaf.eager, actual, leaf.finite):
        # Eager is exact, and so is this: all that is measured below is zero.
        return OutputDifference(0.0, norm_limit, 0.0)
    typical, typical_limit = _typical_error(actual, leaf.exact), max(_FACTOR * leaf.typical, _ELEMENT_FACTOR * floor)
    quick = _compare_finite(leaf, actual, floor) if leaf.finite else None
    if quick is not None and quick[0] <= norm_limit and typical <= typical_limit:
        return OutputDifference(quick[0], norm_limit, quick[1])
    flags: list[torch.Tensor] = []
    error_square = reference_square = worst = 0.0
    expected = zip(_chunks(actual), _chunks(leaf.eager), _chunks(leaf.exact), strict=True)
    spread = itertools.repeat(None) if leaf.spread is None else _rows(leaf.spread)
    for (got, eager, want), may_be_nan, *others in zip(expected, spread, *map(_chunks, leaf.others), strict=False):
        # Not finite: one of them is, or becomes NaN against another.
        usual = None if leaf.finite else _are_finite(eager - want, *others)
        # Where one of them is not, the others still say how large things are.
        known = want if usual is None else _first_finite(leaf.eager.dtype, want, eager, *others)
        row = known.square().mean(dim=-1, keepdim=True).sqrt() if want.shape[-1] >= _SHORT_ROW else leaf.rms
        own = (eager - want).abs_() if usual is None else torch.where(usual, (eager - want).abs(), 0.0)
        bound = known.abs().mul_(_ELEMENT_FACTOR * floor).add_(_granted_error(leaf, own, row, floor))
        error = (got - want).abs_() if usual is None else torch.where(usual, (got - want).abs(), 0.0)
        wrong = ~(error <= bound)
        if usual is not None:
            special = ~usual
            wrong &= usual
            seen = [one[special] for one in (eager, want, *others)]
            wrong[special] = ~_same_special(got[special], bound[special], seen)
            known = torch.where(usual, known, 0.0)
        if may_be_nan is not None:
            excused = may_be_nan & torch.isnan(got)
            wrong &= ~excused
            error.masked_fill_(excused, 0.0)
        flags.append(wrong.reshape(-1))
        share = error.div_(bound)
        worst = max(worst, float(share.nan_to_num_(nan=torch.inf).max()))
        error = share.mul_(bound)
        error_square += float(error.square().sum())
        reference_square += float(known.square().sum())
    bad = torch.cat(flags) if flags else torch.zeros(0, dtype=torch.bool)
    norm = _relative_norm(error_square, reference_square)
    if bool(bad.any()):
        message = _describe(leaf, actual, bad, name)
        if norm < _SMALL_ERROR and bool(torch.isfinite(leaf.exact.reshape(-1)[bad]).any()):
            message += f"\n  the error norm is only {norm:.1e}, {norm_limit:.0e} is allowed: lower precision somewhere?"
        return OutputDifference(norm, norm_limit, worst, message)
    if norm > norm_limit:
        message = (
            f"{name}: every element is close, but the error norm is {norm:.2e} where {norm_limit:.1e} is allowed "
            f"(eager's own is {leaf.eager_norm:.1e}): "
            f"arithmetic in a lower precision than {dtype_name(leaf.eager.dtype)}?"
        )
        return OutputDifference(norm, norm_limit, worst, message)
    if typical > typical_limit:
        message = (
            f"{name}: half of the elements are off by more than {typical:.1e} of their own size where "
            f"{typical_limit:.1e} is allowed (eager: {leaf.typical:.1e}); larger elements hide it in the norm"
        )
        return OutputDifference(norm, norm_limit, worst, message)
    return OutputDifference(norm, norm_limit, worst)


def _less_granted(actual: torch.Tensor, exact: torch.Tensor, granted: torch.Tensor) -> torch.Tensor:
    """The tensor moved towards its exact values, by as much as is granted."""
    error = actual.double() - exact
    return torch.where(error.abs() <= granted, exact.double(), actual.double() - error.sign() * granted)


def _typical_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """The median relative error over elements from everywhere; those that are zero or not finite are left out."""
    # Odd, so that it is not always the same column; begun anywhere, so that nobody knows which ones count.
    step = exact.numel() // _TYPICAL_SAMPLES | 1
    first = _dice.randrange(step)
    got, want = actual.reshape(-1)[first::step].double(), exact.reshape(-1)[first::step].double()
    usual = torch.isfinite(got) & torch.isfinite(want) & (want != 0)
    errors = (got - want).abs()[usual] / want.abs()[usual]
    return float(errors.median()) if errors.numel() >= _SHORT_ROW else 0.0


def _compare_finite(leaf: ExpectedLeaf, actual: torch.Tensor, floor: float) -> tuple[float, float] | None:
    """(norm, worst share of a bound) where every element passes; None where one does not. Few passes over memory."""
    pieces = zip(_rows(actual), _rows(leaf.eager), _chunks(leaf.exact), strict=True)
    error_square = reference_square = worst = 0.0
    for distance, length, share in _read_together(_measure_shares(leaf, *piece, floor) for piece in pieces):
        # Not a number: something is, and is looked at more closely.
        if not share <= 1.0:
            return None
        error_square += distance**2
        reference_square += length**2
        worst = max(worst, share)
    return _relative_norm(error_square, reference_square), worst


def _measure_shares(
    leaf: ExpectedLeaf, got: torch.Tensor, eager: torch.Tensor, want: torch.Tensor, floor: float
) -> torch.Tensor:
    """Of some rows: the errors' norm, the exact values' norm, and the largest share that an error has of its bound."""
    rows = _norm(want, dim=-1, keepdim=True)
    row = rows / want.shape[-1] ** 0.5 if want.shape[-1] >= _SHORT_ROW else leaf.rms
    own = want if leaf.exact is leaf.eager else _difference(eager, want)
    granted = _granted_error(leaf, own, row, floor)
    bound = want.abs()
    torch.add(granted, bound, alpha=_ELEMENT_FACTOR * floor, out=bound)
    error = _difference(got, want)
    distance = _norm(error)
    return torch.stack((distance, _norm(rows), _largest_magnitude(error.div_(bound))))


def _difference(one: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """A tensor less its exact values, in float64, without a copy in it where the device takes two dtypes as fast."""
    if one.device.type != "cpu" or one.dtype == torch.float64:
        return one - exact
    return one.double().sub_(exact)


def _largest_magnitude(tensor: torch.Tensor, **along: Any) -> torch.Tensor:
    """The largest magnitude, NaN where there is one; the tensor's signs may be lost."""
    # On the processor that norm is four times as slow as two passes, on a device as fast as one.
    return tensor.abs_().amax(**along) if tensor.device.type == "cpu" else _norm(tensor, ord=math.inf, **along)


def _granted_error(leaf: ExpectedLeaf, own: torch.Tensor, row: Any, floor: float) -> torch.Tensor:
    """What every element of a row may be off by, beside a share of its own size; more than nothing.

    Eager's own errors excuse the worst of the same row, so that a large element excuses no row but its own; where eager
    stands in for float64, it is not known of which row they are.
    """
    known = own.shape[-1] >= _SHORT_ROW and leaf.exact is not leaf.eager
    worst = _largest_magnitude(own, dim=-1, keepdim=True) if known else leaf.eager_worst
    share = _ELEMENT_FACTOR * floor + 8 * torch.finfo(leaf.eager.dtype).eps
    granted = _FACTOR * worst + share * row + leaf.negligible
    return torch.as_tensor(granted, dtype=own.dtype, device=own.device).clamp_(min=_SMALLEST)


def _are_equal(one: torch.Tensor, two: torch.Tensor, finite: bool) -> bool:
    """Whether two tensors hold the same values; NaN, where the first is not `finite`, in the same places."""
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if finite:
        return torch.equal(one, two)
    return same_bits(one, two) or all(
        bool(((first == second) | ((first != first) & (second != second))).all())
        for first, second in zip(_rows(one), _rows(two), strict=True)
    )


def _are_finite(*tensors: torch.Tensor) -> torch.Tensor:
    """Where all of these are finite."""
    finite = torch.isfinite(tensors[0])
    for tensor in tensors[1:]:
        finite &= torch.isfinite(tensor)
    return finite


def _first_finite(dtype: torch.dtype, *tensors: torch.Tensor) -> torch.Tensor:
    """The first of these values that is a finite one of a dtype; 0 where there is none."""
    value = torch.zeros_like(tensors[0])
    for tensor in reversed(tensors):
        value = torch.where(tensor.abs() <= torch.finfo(dtype).max, tensor, value)
    return value


def _compare_exactly(leaf: ExpectedLeaf, actual: torch.Tensor, name: str) -> OutputDifference:
    """Integers and booleans: equal to eager's, or to what float64 gives where the two differ."""
    wrong = (actual != leaf.eager) & (actual != leaf.exact.to(leaf.eager.dtype))
    if not bool(wrong.any()):
        return OutputDifference(0.0, 0.0, 0.0)
    share = float(wrong.double().mean())
    return OutputDifference(share, 0.0, float("inf"), _describe(leaf, actual, wrong.reshape(-1), name))


def same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors are equal to the last bit, NaN included."""
    first, second = one.reshape(-1).view(torch.uint8), two.to(one.device).contiguous().reshape(-1).view(torch.uint8)
    if first.numel() % 8 == 0 and first.numel() == second.numel() and first.numel():
        first, second = first.view(torch.int64), second.view(torch.int64)
    return torch.equal(first, second)


def _describe(leaf: ExpectedLeaf, actual: torch.Tensor, bad: torch.Tensor, name: str) -> str:
    """The message on wrong elements: how many, where, expected and got, and what the pattern suggests."""
    places = _flagged_places(bad)
    total, shape, count = bad.numel(), tuple(leaf.eager.shape), int(bad.sum())
    share = 100 * count / total
    lines = [f"{name}: {count} of {total} elements are wrong ({share:.3g} %)"]
    got_flat, want_flat = actual.reshape(-1), leaf.exact.reshape(-1)
    for place in (int(places[number]) for number in spread_indices(len(places), _SHOWN)):
        index = _format_index(place, shape)
        lines.append(
            f"  at {index}: expected {_format_number(want_flat[place])}, got {_format_number(got_flat[place])}"
        )
    if shape and len(places) == count < total:
        spans = []
        for axis, length in enumerate(shape):
            inner = 1
            for later in shape[axis + 1 :]:
                inner *= later
            along = (places // inner) % length
            low, high = int(along.min()), int(along.max())
            if (low, high) != (0, length - 1):
                spans.append(f"axis {axis}: {low}..{high} of 0..{length - 1}")
        if spans:
            lines.append("  all of them within " + "; ".join(spans))
    nans = int(torch.isnan(got_flat).sum()) if actual.is_floating_point() else 0
    expected_nans = int(torch.isnan(leaf.eager).sum()) if leaf.eager.is_floating_point() else 0
    if nans > expected_nans:
        lines.append(
            f"  {nans} elements are NaN where the reference has {expected_nans}: memory never written, or overflow"
        )
    return "\n".join(lines)


def _flagged_places(bad: torch.Tensor) -> torch.Tensor:
    """Where the flags are set: everywhere, or where they are too many, among the first of them."""
    places: list[torch.Tensor] = []
    gathered = 0
    for start in range(0, bad.numel(), _FLAGS_AT_ONCE):
        here = bad[start : start + _FLAGS_AT_ONCE].nonzero().reshape(-1) + start
        places.append(here)
        gathered += len(here)
        if gathered > _MOST_PLACES:
            break
    return torch.cat(places) if places else bad.nonzero().reshape(-1)


def spread_indices(count: int, wanted: int) -> list[int]:
    """At most so many of the numbers below a count, the first and the last among them, evenly apart.

    In whole numbers: float32 rounds large counts up, and a place behind the end is an assertion on a GPU that ends
    the judge's own context.
    """
    wanted = min(count, wanted)
    return [0] if wanted == 1 else [number * (count - 1) // (wanted - 1) for number in range(wanted)]


def _same_special(got: torch.Tensor, bound: torch.Tensor, seen: list[torch.Tensor]) -> torch.Tensor:
    """Which not finite elements are right: one that was seen, be it NaN, the same infinity, or a number close by."""
    right = torch.zeros_like(got, dtype=torch.bool)
    for one in seen:
        right |= (torch.isnan(got) & torch.isnan(one)) | (got == one)
        right |= torch.isfinite(one) & torch.isfinite(got) & ((got - one).abs() <= bound)
    return right


def _chunks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Rows of the tensor in float64, a bounded number at a time."""
    return (rows.double() for rows in _rows(tensor))


def _rows(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Rows of the tensor, a bounded number at a time."""
    if tensor.numel() == 0:
        return
    width = tensor.shape[-1] if tensor.dim() else 1
    rows = tensor.detach().reshape(-1, width)
    step = max(1, (_CHUNK if tensor.device.type == "cpu" else _DEVICE_CHUNK) // width)
    for start in range(0, rows.shape[0], step):
        yield rows[start : start + step]


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The norm of the difference of two tensors where they are finite; infinite where they are so in other places."""
    if one.shape != other.shape or not torch.equal(torch.isfinite(one), torch.isfinite(other)):
        return math.inf
    return math.sqrt(_measure_errors(as_real(one), as_real(other))[0])


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as rows of real numbers, two for each; others as they are."""
    if not tensor.is_complex():
        return tensor
    pairs = torch.view_as_real(tensor.resolve_conj())
    return pairs.flatten(-2) if tensor.dim() else pairs


def _relative_norm(error_square: float, reference_square: float) -> float:
    if reference_square > 0:
        return float((error_square / reference_square) ** 0.5)
    return 0.0 if error_square == 0 else float("inf")


def _format_index(place: int, shape: tuple[int, ...]) -> str:
    if not shape:
        return "()"
    index = []
    for length in reversed(shape):
        index.append(place % length)
        place //= length
    return "[" + ", ".join(str(item) for item in reversed(index)) + "]"


def _format_number(value: torch.Tensor) -> str:
    item = value.item()
    return f"{item:.7g}" if isinstance(item, float) else str(item)
