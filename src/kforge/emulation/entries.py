"""Translated source: its text, and the functions by which its kernels are called from outside."""

from __future__ import annotations

from collections.abc import Sequence


def entry_of(number: int) -> str:
    """What a library calls its kernel of that number."""
    return f"kforge_kernel_{number}"


def with_entries(text: str, kernels: Sequence[tuple[str, Sequence[int]]]) -> str:
    """C++ with an entry for each kernel: a function, and where its parameters come from."""
    entries = "".join(
        f'\nextern "C" void {entry_of(number)}(const kforge::Call* call, const kforge::Where* where) {{ '
        f"kforge::Invoke<decltype(&{function}), &{function}>::run<{', '.join(map(str, sources))}>(call, where); }}"
        for number, (function, sources) in enumerate(kernels)
    )
    return f'{text}\n#line 1 "entries"{entries}\n'
