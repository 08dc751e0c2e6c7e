"""Run behind a tool: loads a candidate, warms it up, then makes one call that the tool is told to look at.

python standalone_program.py ROOT FOLDER: ROOT holds the staged package, FOLDER the candidate, its order and its inputs.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.platforms.base import Platform


def main(root: str, folder: str) -> int:
    sys.path.insert(0, root)
    import torch

    from kforge import registry
    from kforge.worker import trees
    from kforge.worker.arena import named_dtype
    from kforge.worker.matrix_precision import allow_tf32
    from kforge.worker.wire import FINISHED

    # As in the runners that judged it.
    allow_tf32(False)
    with open(os.path.join(folder, "order.json"), encoding="utf-8") as file:
        order = json.load(file)
    _keep_cubins(folder)
    with _watch_build(folder) if order["only_load"] else contextlib.nullcontext():
        module = _load(torch, trees, folder, order)
    if not order["only_load"]:
        platform: Platform = registry.load("platforms", order["platform"])
        device = platform.device
        module = module.to(device)
        if order["gradients"] is not None:
            from kforge.worker.training_step import TrainingStep

            module = TrainingStep(module, module, order["gradients"])
        samples = torch.load(os.path.join(folder, "inputs.pt"), weights_only=True)
        tensors = []
        for (dtype, shape, stride), sample in zip(order["tensors"], samples, strict=True):
            values = sample.to(device)
            made = torch.empty_strided(shape, stride, dtype=named_dtype(dtype), device=device)
            if made.numel():
                made.copy_(values[torch.randint(len(values), tuple(shape), device=device)])
            tensors.append(made)
        arguments = trees.unpack(order["inputs"], tensors)
        with torch.no_grad():
            # What is not compiled yet is compiled here, and libraries are loaded.
            module(*arguments)
            platform.synchronize()
            with _turn_at_device(order["turn"]):
                _make_calls(platform, module, arguments)
    _gather(folder)
    with open(os.path.join(folder, FINISHED), "w") as file:
        file.write("every call was made\n")
    return 0


@contextlib.contextmanager
def _watch_build(folder: str) -> Iterator[None]:
    """Write down what a program does while it is built: a library whose bytes it wrote itself was not compiled."""
    from kforge.worker.runner.watch import Watch

    home = os.path.dirname(folder)
    watch = Watch(home)
    watch.install()
    try:
        yield
    finally:
        findings = [*watch.findings, *watch.written_libraries(home)]
        with open(os.path.join(folder, "findings.json"), "w", encoding="utf-8") as file:
            json.dump(findings, file)


def _load(torch: Any, trees: Any, folder: str, order: dict[str, Any]) -> Any:
    path = os.path.join(folder, "candidate.py")
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    candidate = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = candidate
    spec.loader.exec_module(candidate)
    if order["only_load"]:
        return None
    torch.manual_seed(order["seed"])
    module = getattr(candidate, order["class_name"])(*trees.unpack(order["arguments"], []))
    if order["training"] is not None:
        module.train(order["training"])
    if order["dtype"]:
        from kforge.worker.floating_dtype import cast_module

        module = cast_module(module, getattr(torch, order["dtype"]))
    return module


@contextlib.contextmanager
def _turn_at_device(descriptor: int | None) -> Iterator[None]:
    """Wait for the device, and give it back after the block; nothing where whoever asked holds it."""
    if descriptor is None:
        yield
        return
    os.write(descriptor, b"r")
    if not os.read(descriptor, 1):
        sys.exit("nobody gives the device any more")
    try:
        yield
    finally:
        os.write(descriptor, b"d")
        os.close(descriptor)


def _make_calls(platform: Platform, module: Any, arguments: list[Any]) -> None:
    module(*arguments)
    platform.synchronize()
    with platform.profiled_range():
        module(*arguments)
        platform.synchronize()


def _keep_cubins(folder: str) -> None:
    """Write down what NVRTC makes, by way of cuda.core's public class."""
    with contextlib.suppress(Exception):
        import cuda.core as core

        count = 0

        class Recorded(core.Program):  # type: ignore[misc]
            def compile(self, *arguments: Any, **options: Any) -> Any:
                nonlocal count
                made = super().compile(*arguments, **options)
                if isinstance(made.code, bytes) and made.code[:4] == b"\x7fELF":
                    count += 1
                    with open(os.path.join(folder, "cubins", f"nvrtc_{count}.cubin"), "wb") as file:
                        file.write(made.code)
                return made

        core.Program = Recorded


def _gather(folder: str) -> None:
    """Copy what other compilers made."""
    home = os.path.dirname(folder)
    for pattern, ending in (("triton/**/*.cubin", "cubin"), ("torch_extensions/**/*.so", "so")):
        for number, path in enumerate(sorted(glob.glob(os.path.join(home, pattern), recursive=True))):
            name = os.path.splitext(os.path.basename(path))[0]
            shutil.copy(path, os.path.join(folder, "cubins", f"{name}_{number}.{ending}"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
