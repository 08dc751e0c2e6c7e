"""Translated source: its text, and the functions by which its kernels are called from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def entry_of(number: int) -> str:
    """What a library calls its kernel of that number."""
    return f"kforge_kernel_{number}"


@dataclass(frozen=True)
class KernelEntry:
    """How a kernel is called: its function, where its parameters come from, and its shared variables."""

    function: str
    sources: Sequence[int]
    shared: Sequence[tuple[int, int]] = ()
    """(number, line) of each shared variable in its body."""


def excess_of(entry: str) -> str:
    """What a library calls the function that says whether a kernel's shared variables are too large."""
    return f"{entry}_excess"


def with_entries(text: str, kernels: Sequence[KernelEntry]) -> str:
    """C++ with what is called from outside for each kernel."""
    return f'{text}\n#line 1 "entries"{"".join(map(_entry, range(len(kernels)), kernels))}\n'


def _entry(number: int, kernel: KernelEntry) -> str:
    name, function, sources = entry_of(number), kernel.function, ", ".join(map(str, kernel.sources))
    call = (
        f'\nextern "C" void {name}(const kforge::Call* call, const kforge::Where* where) {{ '
        f"kforge::Invoke<decltype(&{function}), &{function}>::run<{sources}>(call, where); }}"
    )
    if not kernel.shared:
        return call
    variables = ", ".join(f"{{{variable}, {line}}}" for variable, line in kernel.shared)
    return (
        f'{call}\nextern "C" unsigned {excess_of(name)}(unsigned long long limit, unsigned long long* bytes) {{ '
        f"static const kforge::Declared all[] = {{{variables}}}; "
        f"return kforge::excess(all, {len(kernel.shared)}, limit, bytes); }}"
    )
