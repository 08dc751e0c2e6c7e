"""A package in the layout of Hugging Face's kernels: the source, and the built variant beside it.

A program in Python that compiles when it is called (Triton, NVRTC, ctypes) needs no builder: its variant is called
`torch-cpu`, `torch-cuda` or `torch-metal`, and holds what the source holds and its metadata.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from kforge.errors import UsageError
from kforge.packages.description import Description, Winner, describe
from kforge.packages.package_files import LICENSE, fill, module_files, words_of

_BACKENDS = {"cpu": "cpu", "cuda": "cuda", "mps": "metal"}
"""torch's device -> what kernels calls it."""
_VERSION = 1


def kernel_files(
    winner: Winner, name: str, op: str = "", gradients: str = "reference", licence: str = LICENSE
) -> dict[str, bytes]:
    """A kernel repository's files by their paths; UsageError says why a program can be none."""
    kernel = name.strip().lower().replace("_", "-")
    made = describe(winner, name, op, gradients)
    backend = _BACKENDS.get(made.verified["device"])
    if backend is None:
        raise UsageError(f"kernels have no backend for a device called {made.verified['device']}")
    source = module_files(winner, made)
    digest = hashlib.sha256(b"".join(source[path] for path in sorted(source))).hexdigest()[:8]
    words = {**words_of(winner, made, licence), **_words(made, kernel, backend, licence)}
    # Versions of one kernel can be loaded side by side, and so each has a namespace of its own.
    words["namespace"] = f"_{made.name}_{digest}"
    source["__init__.py"] = _with_layers(fill("init", words))
    source["layers.py"] = fill("layers", words)
    metadata = _metadata(source, f"_{made.name}_{backend}_{digest}", kernel, backend, licence)
    variant = {**source, "metadata.json": metadata}
    return {
        "build.toml": fill("build", words),
        "CARD.md": fill("card", words),
        **{f"torch-ext/{made.name}/{path}": data for path, data in source.items()},
        **{f"build/torch-{backend}/{path}": data for path, data in variant.items()},
        f"tests/test_{made.name}.py": fill("hf_test", words),
        "benchmarks/benchmark.py": fill("hf_benchmark", words),
    }


def _metadata(source: dict[str, bytes], identity: str, kernel: str, backend: str, licence: str) -> bytes:
    hashes = {path: base64.b64encode(hashlib.sha256(data).digest()).decode() for path, data in sorted(source.items())}
    data = {
        "id": identity,
        "name": kernel,
        "version": _VERSION,
        "license": licence,
        "python-depends": [],
        "backend": {"type": backend},
        "digest": {"algorithm": "sha256", "files": hashes},
    }
    return (json.dumps(data, indent=2) + "\n").encode()


def _words(made: Description, kernel: str, backend: str, licence: str) -> dict[str, Any]:
    state = [item["name"] for item in made.verified["state"]]
    parameters = made.verified["parameters"]
    holders = dict.fromkeys(name.split(".")[0] for name in state)
    kinds = {name.split(".")[0]: "torch.nn.Module" if "." in name else "torch.Tensor" for name in state}
    annotations = "".join(f"    {name}: {kinds[name]}\n" for name in holders if name.isidentifier())
    tensors = "".join(f"{_reach(name)}, " for name in state)
    return {
        "kernel": kernel,
        "backend": backend,
        "layer": "".join(word.capitalize() for word in made.op.split("_")),
        "license_lower": licence.lower(),
        "has_backward": repr(made.verified["backward"] or made.verified["gradients"] == "reference"),
        "annotations": annotations,
        "parameters": "".join(f", {name}" for name in parameters),
        "tensors": f"({tensors})",
        "state_list": ", ".join(f"`{name}`" for name in state) or "no tensors",
    }


def _reach(name: str) -> str:
    """An expression for a tensor of the module that the layer stands for."""
    text = "self"
    for step in name.split("."):
        text = f"{text}.{step}" if step.isidentifier() else f"getattr({text}, {step!r})"
    return text


def _with_layers(text: bytes) -> bytes:
    """The package's `__init__` with its layers as a part of it."""
    listed = text.decode().replace('    "about",\n', '    "about",\n    "layers",\n')
    return f"{listed}\n\nfrom . import layers  # noqa: E402\n".encode()
