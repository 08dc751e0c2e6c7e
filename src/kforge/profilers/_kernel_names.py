"""Kernel names as people call them: without return type, parameters and template arguments."""

from __future__ import annotations

import re

LONGEST = 48
_ODD = re.compile(r"[^\w:.~-]+")
_NAMESPACE = ("(anonymous namespace)::", "<unnamed>::")
_LIBRARY = re.compile(
    r"^(?:void )?(?:at::|at_cuda_detail|c10::|cub::|thrust::|cutlass|cublas|cudnn|nvjet|gemv|gemm|sm\d+_|ampere_|volta_"
    r"|turing_|hopper_|xmma|cask|splitKreduce|dot_kernel|reduce_1Block|nchwTo|nhwcTo|implicit_convolve|fft|regular_fft"
    r"|_?pytorch_flash|fmha_|flash_fwd|elementwise_kernel|vectorized_|unrolled_|reduce_kernel|ncclDevKernel)"
)


def short_name(name: str) -> str:
    """`void at::native::reduce_kernel<512, 1>(int)` -> `at::native::reduce_kernel`; `_Z4tinyPKf` -> `tiny`."""
    text = name
    for prefix in _NAMESPACE:
        text = text.replace(prefix, "")
    mangled = re.match(r"_Z(?:N\d+_GLOBAL__N_[^\d]*)?(\d+)", text)
    if mangled:
        start = mangled.end()
        text = text[start : start + int(mangled[1])] or text
    text = _outside_brackets(text).strip()
    text = text.rsplit(" ", 1)[-1] or name
    return _ODD.sub("_", text)[:LONGEST] or "unnamed"


def is_library(name: str) -> bool:
    """Whether a kernel goes by a name that torch or NVIDIA's libraries use."""
    return _LIBRARY.match(name) is not None


def _outside_brackets(text: str) -> str:
    """A name up to its parameters, without what stands between angle brackets."""
    kept, depth = [], 0
    for letter in text:
        if letter == "(" and depth == 0:
            break
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(letter)
    return "".join(kept)
