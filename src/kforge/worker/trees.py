"""Arguments and results as JSON trees whose leaves may be tensors.

    pack(value)   -> (tree, tensors)      each node is a list: a tag, then its content
    unpack(tree, tensors) -> value

Tags: n None, b bool, i int, f float, c complex, s str, D dtype, l list, u tuple, d dict, T tensor (its index),
? an object no tree can hold (its type's name).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from kforge.worker.arena import dtype_name, named_dtype

Tree = list[Any]
_MAX_DEPTH = 32


def pack(value: Any) -> tuple[Tree, list[torch.Tensor]]:
    """The tree of a value and the tensors at its leaves."""
    tensors: list[torch.Tensor] = []
    return _pack(value, tensors, 0), tensors


def _pack(value: Any, tensors: list[torch.Tensor], depth: int) -> Tree:
    if depth > _MAX_DEPTH:
        return ["?", "a structure nested too deeply"]
    scalar = _pack_scalar(value)
    if scalar is not None:
        return scalar
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return ["T", len(tensors) - 1]
    if isinstance(value, (list, torch.nn.ParameterList)):
        return ["l", [_pack(item, tensors, depth + 1) for item in value]]
    if isinstance(value, tuple):
        return ["u", [_pack(item, tensors, depth + 1) for item in value]]
    if isinstance(value, dict):
        return ["d", [[_pack(key, tensors, depth + 1), _pack(item, tensors, depth + 1)] for key, item in value.items()]]
    return ["?", type(value).__name__]


def _pack_scalar(value: Any) -> Tree | None:
    if value is None:
        return ["n"]
    kind = type(value)
    if kind is bool:
        return ["b", value]
    if kind is int:
        return ["i", value]
    if kind is float:
        return ["f", value if math.isfinite(value) else repr(value)]
    if kind is complex:
        return ["c", repr(value)]
    if kind is str:
        return ["s", value]
    if isinstance(value, torch.dtype):
        return ["D", dtype_name(value)]
    return None


def unpack(tree: Tree, tensors: Sequence[Any]) -> Any:
    """The value a trusted tree stands for."""
    tag = tree[0]
    if tag == "n":
        return None
    if tag == "T":
        return tensors[tree[1]]
    if tag in "lu":
        items = [unpack(item, tensors) for item in tree[1]]
        return items if tag == "l" else tuple(items)
    if tag == "d":
        return {unpack(key, tensors): unpack(item, tensors) for key, item in tree[1]}
    if tag == "f":
        return float(tree[1])
    if tag == "c":
        return complex(tree[1])
    if tag == "D":
        return named_dtype(tree[1])
    if tag in "bis":
        return tree[1]
    raise ValueError(f"{tree[1] if len(tree) > 1 else tag} cannot be sent to a runner")


def foreign_type(tree: Tree) -> str:
    """The name of the first object in the tree that no tree can hold; empty if there is none."""
    tag = tree[0]
    if tag == "?":
        return str(tree[1])
    children = tree[1] if tag in ("l", "u") else [part for pair in tree[1] for part in pair] if tag == "d" else []
    return next((name for name in map(foreign_type, children) if name), "")
