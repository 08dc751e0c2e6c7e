"""A live nn.Module as a problem: the module and its example inputs, kept in a file the judge can load.

Classes that live in a script or a notebook are pickled by value, so that the judge's other processes can
load them without importing the user's code.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from kforge.errors import ProblemError
from kforge.whole_file import write_whole


def capture(module: Any, arguments: list[list[Any]], calls: str) -> tuple[str, str, str]:
    """(source text for people and prompts, path of the pickled module with its example inputs, its hash).

    `arguments` are those of a call, a list for each workload; `calls` are the lines that say so.
    """
    import cloudpickle

    first, *further = arguments
    home = sys.modules.get(type(module).__module__)
    by_value = home is not None and home.__name__ != "__main__" and not _is_installed(home)
    if by_value:
        cloudpickle.register_pickle_by_value(home)
    try:
        data = cloudpickle.dumps((module, first, further) if further else (module, first))
    except Exception as error:
        raise ProblemError(f"the module {type(module).__name__} cannot be pickled: {error}") from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(home)
    digest = hashlib.sha256(data).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"kforge-live-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / file_name(digest)
    if not path.exists():
        write_whole(path, data)
    return f"{_source_of(module).rstrip()}\n\n{_description(module, calls)}", str(path), digest


def restore(path: str, digest: str, number: int = 0) -> tuple[Any, list[Any]]:
    """(module, the example inputs of one workload) as they were captured.

    ProblemError if the file is gone, is not what was written, or has no such workload.
    """
    import cloudpickle

    data = read(path, digest)
    try:
        # Of one workload there is no third part.
        module, first, *rest = cloudpickle.loads(data)
        arguments = [first, *(rest[0] if rest else [])]
    except Exception as error:
        reason = f"the live module cannot be loaded by this Python and its packages: {type(error).__name__}: {error}"
        raise ProblemError(reason, path=path) from error
    if not 0 <= number < len(arguments):
        raise ProblemError(f"the live module has {len(arguments)} example inputs, and no number {number}", path=path)
    return module, arguments[number]


def read(path: str, digest: str) -> bytes:
    """What a live module's file holds; ProblemError if it is gone or is not what was written."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ProblemError(f"the live module's file is gone: {error.strerror}", path=path) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise ProblemError("the live module's file has changed since it was captured", path=path)
    return data


def file_name(digest: str) -> str:
    """What the file is called where it travels with others; its hash tells it from them."""
    return f"{digest[:32]}.pkl"


def check(module: Any, example_inputs: Any) -> None:
    """ProblemError for what is no module, and where there is nothing to call it with."""
    import torch

    if isinstance(module, type) and issubclass(module, torch.nn.Module):
        raise ProblemError(f"{module.__name__} is a class: give a module of it, {module.__name__}(...)")
    if not isinstance(module, torch.nn.Module):
        raise ProblemError(
            f"a {type(module).__name__} is no torch.nn.Module: put what it does into the forward of one, and give that"
        )
    if example_inputs is None:
        name = type(module).__name__
        raise ProblemError(f"{name} comes without example inputs: give the arguments of a call of it, in a list")


def _description(module: Any, calls: str) -> str:
    """What the class's text does not show: the arguments of a call, and what the module holds."""
    lines = ["# Captured from a live module.", calls]
    state = module.state_dict()
    transient = [(name, value) for name, value in module.named_buffers() if name not in state]
    if state or transient:
        lines.append("# It holds:")
        lines += [f"#   {name}: {shape_text(value)}" for name, value in state.items()]
        lines += [f"#   {name}: {shape_text(value)}, a buffer that is not persistent" for name, value in transient]
    return "\n".join(lines) + "\n"


def shape_text(value: Any) -> str:
    """An argument or a tensor of a module, for people."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"Tensor {list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {', '.join(map(shape_text, value))}" if value else repr(value)
    if isinstance(value, dict):
        return f"dict of {', '.join(f'{key!r}: {shape_text(item)}' for key, item in value.items())}" if value else "{}"
    return " ".join(repr(value).split())[:80]


def _source_of(module: Any) -> str:
    try:
        return inspect.getsource(type(module))
    except (OSError, TypeError):
        return f"# the source of this module is not available\n# {module!r}\n".replace("\n# \n", "\n")


def _is_installed(home: Any) -> bool:
    path = getattr(home, "__file__", None)
    if not path:
        return True
    roots = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(str(Path(path).resolve()).startswith(str(Path(root).resolve()) + os.sep) for root in roots if root)
