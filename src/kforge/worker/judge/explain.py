"""Sentences a person or a model can act on: the first compiler error, the line that raised, what a signal means."""

from __future__ import annotations

import re
import signal

from kforge.types import Outcome
from kforge.worker.judge.runner_handle import RunnerLost
from kforge.worker.protocol.base import RaisedError
from kforge.worker.protocol.keeper import Ending
from kforge.worker.wire import CHANNEL_LOST

_COMPILER = re.compile(r"^(?P<where>[^\s:][^:\n]*:\d+(?::\d+)?): (?:fatal )?error: (?P<what>.*)$", re.MULTILINE)
_NVRTC = re.compile(r"^(?P<where>[^\s(][^(\n]*\(\d+\)): (?:catastrophic |fatal )?error: (?P<what>.*)$", re.MULTILINE)
_OPENCL = re.compile(r"^(?:fatal )?error: (?P<where>[^\s:][^:\n]*:\d+(?::\d+)?): (?P<what>.*)$", re.MULTILINE)
_LINKER = re.compile(
    r"^.*(?:Cannot find symbol|undefined reference to|undefined symbol|cannot find -l|ld returned|ld: error).*$",
    re.MULTILINE,
)
_BUILD = re.compile(
    r"compilation failed|Error building extension|returned non-zero exit status|ninja: build stopped"
    r"|NVRTC_ERROR_COMPILATION|cl(?:Build|Compile|Link)Program failed"
)
_COMPILER_ERRORS = ("CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError")
"""What Triton raises where a kernel cannot be compiled."""
LEFT_TOO_LITTLE = "left too little for others"
_MORE_MEMORY = "it asked for more device memory than is free beside the reference's inputs and outputs"
_DEVICE_FAULTS = (
    (
        "illegal memory access",
        "a kernel touched memory it must not: past the end of a tensor, or an input, which is mapped read-only",
    ),
    ("misaligned address", "a kernel read or wrote a vector at an address that is no multiple of its size"),
    ("illegal instruction", "a kernel ran an instruction this device does not have: wrong arch?"),
    ("device-side assert", "an assertion in a kernel failed, or it trapped"),
    ("unspecified launch failure", "a kernel trapped or touched memory it must not"),
    ("too many resources requested", "a block asks for more registers or threads than the device has"),
    ("no kernel image", "it was compiled for another architecture than this device's"),
    ("out of resource", "a block asks for more shared memory or registers than the device has"),
    ("INVALID_WORK_GROUP_SIZE", "a work-group is larger than the device allows, or does not divide the global size"),
    ("invalid configuration argument", "the grid or block has a size the device does not allow"),
)
_ADVICE = re.compile(
    r"^(?:Search for `cuda|CUDA kernel errors might |For debugging consider passing CUDA|Compile with `TORCH_).*\n?",
    re.MULTILINE,
)
"""What torch adds to every error of the device, for people at a terminal."""
_CONTEXT_LINES = 8
_MORE_ERRORS = 5
_LONGEST = 4000

RULES = {
    "no_custom_kernel": "write the computation in a kernel of your own, compiled at run time and called from forward, "
    "or evaluate with --policy any",
    "decorative_kernel": "let the custom kernel do work that torch then no longer does",
    "library_compute": "do the work in the kernel; policy strict allows no torch operator that computes, policy hybrid "
    "no library that computes past torch's operators",
    "out_of_bounds": "stay within the tensors: mind sizes that are no multiple of a vector's",
    "foreign_code": "on an emulated platform compute in kernels alone (torch.mps.compile_shader, cuda.core); "
    "programs that build or load other native code can be judged where the hardware is",
    "patched_torch": "leave torch, time and builtins as they are",
    "embedded_binary": "put source code in the file and compile it at run time; binaries are not accepted",
    "network": "a kernel needs no network",
    "foreign_files": "use only the temporary folder (tempfile) and your own source",
    "introspection": "a kernel needs no access to frames or to the interpreter's objects",
    "left_processes": "wait for every process you start",
    "output_type": "return plain torch.Tensor objects that hold the result when forward returns",
    "unsettled_output": "finish all work, in every thread, before forward returns",
    "input_modified": "leave the inputs as they are; write to memory of your own",
    "not_idle": "leave nothing running when forward has returned, and do not have yourself continued while you are "
    "stopped: it takes time from the baseline",
    "two_clocks": "finish all work inside forward; the time claimed must be the time it takes",
    "sanitizer": "keep every access inside its tensor, write before reading, synchronise threads that share memory",
    "protocol": "do not touch file descriptors you did not open",
}
"""Rule -> how to comply."""


def how_to_comply(rule: str) -> str:
    return RULES.get(rule, "")


def strip_advice(message: str) -> str:
    """An error of torch's without the lines that are the same for each."""
    return _ADVICE.sub("", message).strip()


def is_short_of_memory(text: str) -> bool:
    """Whether a verdict or an error says that the device's memory did not suffice."""
    return any(words in text for words in (_MORE_MEMORY, LEFT_TOO_LITTLE, "out of memory", "out of device memory"))


def program_error(phase: str, report: RaisedError, printed: str) -> tuple[Outcome, str]:
    """The outcome and the sentence for an exception the program raised."""
    kind, message = report.kind, strip_advice(report.message)
    lines, text = report.where[:6], report.text
    if phase == "missing":
        return Outcome.GENERATION_FAILURE, f"the program does not define a class `{message}`"
    compiler = compiler_error(text) or (compiler_error(printed) if _BUILD.search(text) else "")
    if not compiler and _BUILD.search(text):
        compiler = cut(text)
    if not compiler and kind in _COMPILER_ERRORS:
        compiler = cut(message)
    if compiler:
        return Outcome.COMPILATION_FAILURE, f"the compiler refused the kernel:\n{compiler}"
    place = {
        "import": "while the file was imported",
        "init": "in __init__",
        "load_state_dict": "when new parameter values were loaded with load_state_dict",
        "forward": "in forward",
    }.get(phase, f"in phase {phase}")
    sentence = f"{kind} {place}: {_indent_lines(cut(message, 1500))}"
    if lines:
        sentence += "\n" + "\n".join(f"  {line}" for line in lines)
    outcome = Outcome.COMPILATION_FAILURE if phase == "import" else Outcome.RUNTIME_ERROR
    fault = next((meaning for key, meaning in _DEVICE_FAULTS if key in message), "")
    if fault:
        outcome = Outcome.RUNTIME_ERROR
        sentence += f"\n  ({fault})"
    if kind == "OutOfMemoryError" or "CUDA out of memory" in message or "CUDA error: out of memory" in message:
        outcome = Outcome.RUNTIME_ERROR
        sentence += f"\n  ({_MORE_MEMORY})"
    if kind in ("MemoryError",) or "allocate memory" in message or "bad_alloc" in message:
        outcome = Outcome.RUNTIME_ERROR
        sentence += "\n  (it asked for more memory than its limit allows)"
    if kind in ("BlockingIOError", "RuntimeError") and "Resource temporarily unavailable" in message:
        outcome = Outcome.RUNTIME_ERROR
        sentence += "\n  (it reached its limit of processes)"
    return outcome, sentence


def _indent_lines(message: str) -> str:
    """A message of several lines, none of which can be taken for a line of the verdict's own."""
    lines = [line.rstrip() for line in message.strip().splitlines() if line.strip()]
    return "\n".join([*lines[:1], *(f"  {line}" for line in lines[1:])])


def compiler_error(text: str) -> str:
    """The first error of a compiler's log with the lines that belong to it, and how many more there are."""
    matches = list(_COMPILER.finditer(text)) or list(_NVRTC.finditer(text)) or list(_OPENCL.finditer(text))
    if not matches:
        linker = _LINKER.findall(text)
        return cut("\n".join(linker[:5])) if linker else ""
    first = matches[0]
    end = matches[1].start() if len(matches) > 1 else len(text)
    lines = text[first.start() : end].splitlines()[:_CONTEXT_LINES]
    # One line for each further error of another kind: a repair that knows only the first often fails on the next.
    # A log may be there twice, in the exception and in what was printed.
    others = [line for line in dict.fromkeys(match[0].strip() for match in matches) if line != first[0].strip()]
    more = [line[:300] for line in others[:_MORE_ERRORS]]
    left = len(others) - len(more)
    tail = [f"({left} more error{'s' if left > 1 else ''})"] if left > 0 else []
    return "\n".join([cut("\n".join(lines)), *more, *tail])


def lost_runner(phase: str, error: RunnerLost, ending: Ending, too_large: str = "") -> tuple[Outcome, str, str]:
    """(outcome, rule, sentence) for a runner that could not go on; `too_large`: what helps where it did too much."""
    doing = {"load": "while the file was imported and the module constructed"}.get(phase, f"during {phase}")
    if error.kind == "timeout":
        return Outcome.RUNTIME_ERROR, "", f"it did not finish {doing}: {error}; it was killed{too_large}"
    if error.kind == "memory":
        return Outcome.RUNTIME_ERROR, "", f"it used too much memory {doing}: {error}; it was killed{too_large}"
    if error.kind == "unstoppable":
        return Outcome.REJECTED, "not_idle", f"{error} ({doing})"
    if error.kind == "protocol":
        return Outcome.REJECTED, "protocol", f"it wrote to the judge's channel {doing}: {error}"
    if ending.status is None:
        return Outcome.RUNTIME_ERROR, "", f"it closed its channel to the judge {doing}, and was killed"
    if ending.status == CHANNEL_LOST:
        return Outcome.RUNTIME_ERROR, "", f"it closed its channel to the judge {doing}"
    if ending.status < 0:
        return Outcome.RUNTIME_ERROR, "", f"it was killed by {_describe_signal(-ending.status)} {doing}"
    return Outcome.RUNTIME_ERROR, "", f"its process ended with exit status {ending.status} {doing}"


def printed_tail(ending: Ending) -> str:
    """What the program printed, for the detail of a failure."""
    text = ending.output.strip()
    if not text:
        return ""
    return "\nIt printed:\n" + "\n".join(f"  {line}" for line in cut(text, 1500).splitlines())


def _describe_signal(number: int) -> str:
    meanings = {
        signal.SIGSEGV: "an invalid memory access",
        signal.SIGABRT: "abort()",
        signal.SIGFPE: "an arithmetic fault",
        signal.SIGILL: "an illegal instruction",
        signal.SIGBUS: "a bus error",
        signal.SIGXFSZ: "a file larger than its limit",
        signal.SIGKILL: "the kernel or itself: most likely out of memory",
    }
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    return f"{name} ({meanings[number]})" if number in meanings else name  # type: ignore[index]


def cut(text: str, longest: int = _LONGEST) -> str:
    """The text, its middle left out where it is long."""
    if len(text) <= longest:
        return text
    head = longest * 3 // 4
    return f"{text[:head]}\n  … {len(text) - longest} characters left out …\n{text[head - longest :]}"
