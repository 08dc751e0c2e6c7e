"""The device code itself: registers, spills, tensor-core instructions, width of loads, by NVIDIA's disassembler."""

from __future__ import annotations

import shlex

from kforge.profilers import _cuda_tools as tools
from kforge.profilers import _sass_text
from kforge.profilers._format import size
from kforge.profilers._sass_text import SassFunction
from kforge.profilers.base import NothingSeen, Profiler, ProfilingContext
from kforge.types import Artefact, Profile

_RESOURCES, _CODE = "resources.txt", "code.sass"
_SECONDS = 120.0
_MOST_CODE = 8 << 20
_MOST_RAW = 1 << 20
_SHOWN = 12

_SCRIPT = """"$@"; status=$?
cd {{home}}/cubins 2> /dev/null || exit $status
for file in *.cubin *.so; do
  [ -f "$file" ] || continue
  {tool} --dump-resource-usage "$file" >> ../{resources} 2>> ../trouble.txt
  {tool} -sass "$file" >> ../all.sass 2>> ../trouble.txt
done
[ -f ../all.sass ] && head -c {most} ../all.sass > ../{code}
exit $status"""
"""The disassembler runs in the sandbox, after the program: what it reads is the program's."""


class Sass(Profiler):
    name = "sass"
    what = "registers, spills, tensor-core instructions and load widths in the device code"
    alone = True

    def unavailable_reason(self) -> str:
        if not tools.find("cuobjdump"):
            return "cuobjdump is not installed (part of NVIDIA's CUDA toolkit)"
        return tools.no_gpu_because()

    def collect(self, context: ProfilingContext) -> Profile:
        tools.require_cuda(self.name, context)
        seen = context.standalone(self.command(), files=(_RESOURCES, _CODE, "trouble.txt"), seconds=_SECONDS)
        resources, code = (seen.files.get(name, b"").decode(errors="replace") for name in (_RESOURCES, _CODE))
        if not resources and not code:
            trouble = seen.files.get("trouble.txt", b"").decode(errors="replace")
            why = tools.last_line(trouble) if trouble.strip() else "the program left none that could be seen"
            raise NothingSeen(f"no device code: {why}" if seen.status == 0 else _failure_text(seen.status, seen.errors))
        return profile_of(resources, code)

    def command(self) -> tuple[str, ...]:
        tool = shlex.quote(tools.find("cuobjdump") or "cuobjdump")
        script = _SCRIPT.format(tool=tool, resources=_RESOURCES, code=_CODE, most=_MOST_CODE)
        return ("sh", "-c", script, "sass")


def _failure_text(status: int, errors: str) -> str:
    return f"the program did not run alone (status {status}): {tools.last_line(errors)}"


def profile_of(resources: str, code: str) -> Profile:
    """The profile of what the disassembler said; NothingSeen if that is nothing."""
    kernels = [function for function in _sass_text.functions(resources, code) if function.instructions]
    if not kernels:
        raise NothingSeen("the device code holds no kernel")
    raw = [
        Artefact(name, "text/plain", text.encode()[:_MOST_RAW])
        for name, text in ((_RESOURCES, resources), (_CODE, code))
        if text
    ]
    return Profile("sass", metrics(kernels), text_of(kernels), raw=tuple(raw))


def metrics(kernels: list[SassFunction]) -> dict[str, float]:
    """Numbers of all kernels together: the most registers, the widest load, instructions of each kind."""
    loads = {bits for function in kernels for bits in function.loads}
    made = {
        "functions": len(kernels),
        "registers": max(function.registers for function in kernels),
        "stack_bytes": max(function.stack_bytes for function in kernels),
        "shared_bytes": max(function.shared_bytes for function in kernels),
        "spill_instructions": sum(function.count("spill") for function in kernels),
        "tensor_instructions": sum(function.count("tensor") for function in kernels),
        "atomic_instructions": sum(function.count("atomic") for function in kernels),
        "special_instructions": sum(function.count("special") for function in kernels),
        "fp64_instructions": sum(function.count("fp64") for function in kernels),
        "asynchronous_copies": sum(function.count("asynchronous") for function in kernels),
    }
    if loads:
        made["load_bits"] = max(loads)
    return {name: float(value) for name, value in made.items()}


def text_of(kernels: list[SassFunction]) -> str:
    """A line or two for each kernel, the longest first."""
    lines = []
    for function in sorted(kernels, key=lambda item: (-item.instructions, item.name))[:_SHOWN]:
        lines.append(
            f"{function.name}: {function.registers} registers, {size(function.shared_bytes)} static shared memory, "
            f"{size(function.stack_bytes)} of stack, {function.instructions} instructions"
        )
        lines.append(f"  {'; '.join(_function_notes(function))}")
    if len(kernels) > _SHOWN:
        lines.append(f"and {len(kernels) - _SHOWN} kernels more")
    return "\n".join(lines)


def _function_notes(function: SassFunction) -> list[str]:
    notes = [
        f"global {what}: {', '.join(f'{times} of {bits} bits' for bits, times in sorted(widths.items()))}"
        for what, widths in (("loads", function.loads), ("stores", function.stores))
        if widths
    ]
    tensor = function.count("tensor")
    notes.append(f"{tensor} tensor-core instructions" if tensor else "no tensor-core instruction")
    kinds = (
        ("spill", "loads and stores of spilled registers or local arrays"),
        ("atomic", "atomics"),
        ("special", "special functions (MUFU)"),
        ("fp64", "double-precision instructions"),
        ("asynchronous", "asynchronous copies to shared memory"),
    )
    return [*notes, *(f"{function.count(kind)} {what}" for kind, what in kinds if function.count(kind))]


PLUGIN = Sass()
