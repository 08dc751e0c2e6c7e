"""In what precision torch multiplies matrices of float32 on a device that has more than one."""

from __future__ import annotations

import torch

_ORDER = ("", "float32", "tf32", "float16", "bfloat16")
"""Precisions that a user can allow, the highest first; nothing is the problem's own."""


def allow_tf32(allowed: bool) -> None:
    """Allow TF32 or not: torch's default is yes in convolutions and no in products; here it is the same for both."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def allows(allowed: str, used: str) -> bool:
    """Whether arithmetic in a precision is good enough where another one is allowed."""
    return _ORDER.index(used) <= _ORDER.index(allowed)
