"""Kernels of our own for library calls, so that a module that is nothing but library calls can still be lifted.

Each is one specialised C function over a template in `own/`; `own_function` says how to call it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kforge.agents.offline.interface import DenseLayout, row_major

_FOLDER = Path(__file__).parent / "own"
_C_TYPES = {"float32": "float", "float64": "double", "bfloat16": "c10::BFloat16", "float16": "c10::Half"}
_COMPUTED = {"float64": "double"}
"""The C type that is computed with, where that is not float."""


@dataclass(frozen=True)
class LibraryCall:
    """A library call as the generated code makes it."""

    operator: str
    """mm, addmm, bmm, baddbmm, cumsum, cumprod, convolution."""
    tensors: tuple[DenseLayout | None, ...]
    """Its tensors in the operator's order, None for one that is absent."""
    result: DenseLayout
    options: dict[str, Any]


@dataclass(frozen=True)
class OwnFunction:
    """A function of our own that does what a library call does."""

    family: str
    parameters: str
    """The C parameters: tensors in the call's order without the absent ones, then the result."""
    body: str


def header(families: set[str]) -> str:
    """The templates that the functions of these families need."""
    files = {"gemm": ("gemm",), "scan": ("scan",), "convolution": ("gemm", "convolution")}
    wanted = dict.fromkeys(name for family in sorted(families) for name in files[family])
    return "\n".join((_FOLDER / f"{name}.h").read_text(encoding="utf-8") for name in wanted)


def own_function(call: LibraryCall) -> OwnFunction | None:
    """Our own function for a call; None where we have none for it."""
    if call.result.dtype not in _C_TYPES:
        return None
    if any(tensor is not None and tensor.dtype != call.result.dtype for tensor in call.tensors):
        return None
    maker = {
        "mm": _matrix_product,
        "addmm": _matrix_product,
        "bmm": _matrix_product,
        "baddbmm": _matrix_product,
        "cumsum": _scan,
        "cumprod": _scan,
        "convolution": _convolution,
    }.get(call.operator)
    return maker(call) if maker else None


def family_of(operator: str) -> str:
    """The family an operator belongs to; empty if none."""
    if operator in ("mm", "addmm", "bmm", "baddbmm"):
        return "gemm"
    if operator in ("cumsum", "cumprod"):
        return "scan"
    return "convolution" if operator == "convolution" else ""


def _matrix_product(call: LibraryCall) -> OwnFunction | None:
    if call.options.get("alpha", 1) != 1 or call.options.get("beta", 1) != 1:
        return None
    kind = _C_TYPES[call.result.dtype]
    computed = _COMPUTED.get(call.result.dtype, "float")
    biased = call.operator in ("addmm", "baddbmm")
    bias = call.tensors[0] if biased else None
    left, right = call.tensors[1:3] if biased else call.tensors[:2]
    if left is None or right is None:
        return None
    rows, columns = call.result.shape[-2:]
    depth = left.shape[-1]
    offsets = ["", "", "", ""]
    parts = [
        _batch_strides(left),
        _batch_strides(right),
        _batch_strides(_expand(bias, call.result)) if bias else (0, 0, 0),
    ]
    parts.append(_batch_strides(call.result))
    loop, indent = "", ""
    if len(call.result.shape) == 3:
        loop, indent = f"    for (int64_t i = 0; i < {call.result.shape[0]}; ++i) {{\n", "    "
        offsets = [f" + i * {batch}" if batch else "" for batch, _, _ in parts]
    strides = [f"{{{row}, {column}}}" for _, row, column in parts]
    shift = f"bias{offsets[2]}" if bias else f"static_cast<const {kind}*>(nullptr)"
    operands = f"a{offsets[0]}, {strides[0]}, b{offsets[1]}, {strides[1]}, {shift}, {strides[2]}"
    product = f"gemm<{computed}, {kind}>({operands}, c{offsets[3]}, {strides[3]}, {rows}, {columns}, {depth});"
    body = f"{loop}{indent}    {product}\n" + ("    }\n" if loop else "")
    first = f"const {kind}* bias, " if bias else ""
    return OwnFunction("gemm", f"{first}const {kind}* a, const {kind}* b, {kind}* c", body)


def _batch_strides(layout: DenseLayout) -> tuple[int, int, int]:
    batch = layout.stride[0] if len(layout.shape) == 3 and layout.shape[0] > 1 else 0
    return batch, layout.stride[-2], layout.stride[-1]


def _expand(bias: DenseLayout, result: DenseLayout) -> DenseLayout:
    """The bias with the result's shape: a missing or single dimension has stride 0."""
    missing = len(result.shape) - len(bias.shape)
    shape = (1,) * missing + bias.shape
    stride = (0,) * missing + bias.stride
    steps = tuple(0 if own == 1 else step for own, step in zip(shape, stride, strict=True))
    return DenseLayout(result.shape, steps, bias.dtype)


def _scan(call: LibraryCall) -> OwnFunction | None:
    source = call.tensors[0]
    if source is None or not source.contiguous or not call.result.contiguous or not source.shape:
        return None
    if call.options.get("dtype") is not None:
        return None
    dim = call.options["dim"] % len(source.shape)
    kind = _C_TYPES[call.result.dtype]
    product = "true" if call.operator == "cumprod" else "false"
    outer, inner = math.prod(source.shape[:dim]), math.prod(source.shape[dim + 1 :])
    body = f"    scan<{kind}, double, {product}>(x, y, {outer}, {source.shape[dim]}, {inner});\n"
    return OwnFunction("scan", f"const {kind}* x, {kind}* y", body)


def _convolution(call: LibraryCall) -> OwnFunction | None:
    source, weight, bias = (*call.tensors, None)[:3]
    options = call.options
    if source is None or weight is None or options["transposed"] or len(source.shape) != len(weight.shape):
        return None
    if not _spatial_is_flat(call.result):
        return None
    kind = _C_TYPES[call.result.dtype]
    computed = _COMPUTED.get(call.result.dtype, "float")
    space = len(source.shape) - 2
    lift = 3 - space
    if lift < 0:
        return None

    def pad_to_three(values: tuple[int, ...], filler: int) -> str:
        return "{" + ", ".join(map(str, (filler,) * lift + tuple(values))) + "}"

    fields = [
        ("batch", source.shape[0]),
        ("groups", options["groups"]),
        ("in_channels", source.shape[1] // options["groups"]),
        ("out_channels", call.result.shape[1] // options["groups"]),
        ("in_size", pad_to_three(source.shape[2:], 1)),
        ("out_size", pad_to_three(call.result.shape[2:], 1)),
        ("kernel", pad_to_three(weight.shape[2:], 1)),
        ("step", pad_to_three(options["stride"], 1)),
        ("padding", pad_to_three(options["padding"], 0)),
        ("dilation", pad_to_three(options["dilation"], 1)),
        ("in_batch", source.stride[0]),
        ("in_channel", source.stride[1]),
        ("in_space", pad_to_three(source.stride[2:], 0)),
        ("out_batch", call.result.stride[0]),
        ("out_channel", call.result.stride[1]),
        ("out_point", call.result.stride[-1]),
        ("weight_out", weight.stride[0]),
        ("weight_in", weight.stride[1]),
        ("weight_space", pad_to_three(weight.stride[2:], 0)),
    ]
    values = "".join(f"        .{name} = {value},\n" for name, value in fields)
    shift = "bias" if bias else f"static_cast<const {kind}*>(nullptr)"
    body = f"    constexpr Convolution shape = {{\n{values}    }};\n"
    body += f"    convolve<{computed}, {kind}>(x, weight, {shift}, y, shape);\n"
    last = f"const {kind}* bias, " if bias else ""
    return OwnFunction("convolution", f"const {kind}* x, const {kind}* weight, {last}{kind}* y", body)


def _spatial_is_flat(layout: DenseLayout) -> bool:
    """Whether the points of an image are equally spaced, whatever the channels' place."""
    point = layout.stride[-1]
    return layout.stride[2:] == tuple(step * point for step in row_major(layout.shape[2:]))
