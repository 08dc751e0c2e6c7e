"""A package opened: its files read and checked, its operator registered."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import torch

from . import substitution
from .forged_program import ForgedProgram
from .reference_file import open_references
from .torch_operator import register

FORMAT = 1


class DamagedPackage(RuntimeError):
    """A file of the package is missing, or is not what was verified."""


class Package:
    """What a package's `__init__` is made of."""

    def __init__(self, home: Path, namespace: str = "") -> None:
        """Read the package in a folder, and register its operator as `namespace::op`, the package's own name if empty.

        Nothing is compiled and nothing of the program runs before it is first called.
        """
        self.home = home
        self.verified: dict[str, Any] = _read_verified(home)
        for file, wanted in self.verified["files"].items():
            try:
                data = (home / file).read_bytes()
            except OSError as error:
                raise DamagedPackage(
                    f"{home / file} cannot be read ({error.strerror}): install the package again"
                ) from None
            if hashlib.sha256(data).hexdigest() != wanted:
                raise DamagedPackage(
                    f"{home / file} is not the file that was verified: install the package again, or export what you "
                    "changed anew"
                )
        named = sorted({call["reference"] for call in self.verified["calls"]})
        references = {file: (home / file).read_text(encoding="utf-8") for file in named}
        self.program = ForgedProgram(
            self.verified["name"],
            self.verified,
            (home / "program.py").read_text(encoding="utf-8"),
            open_references(self.verified["name"], references, home, self.verified),
            home,
        )
        self.op = register(self.program, namespace or self.verified["name"], self.verified["gradients"])
        self._substitution = substitution.Substitution(self.program)

    def apply(self, model: torch.nn.Module, strict: bool | None = None) -> list[str]:
        """Have every module of a model that computes what was verified call the program; their names.

        The modules stay the objects they are, with their parameters and hooks; `revert` gives them their classes back.
        Calls that were not verified run the module's own forward, or are errors with `strict=True`.
        """
        return self._substitution.apply(model, strict)

    def revert(self, model: torch.nn.Module) -> list[str]:
        """Undo `apply`; the names of the modules that were changed back."""
        return substitution.revert(model, self.program)

    def stats(self) -> dict[str, Any]:
        """How often the program ran, how often the reference ran in its place, and why."""
        return self.program.counts.stats()

    def warmup(self, device: str | torch.device | None = None, model: torch.nn.Module | None = None) -> None:
        """Compile what has to be compiled, now and not in the first call.

        With a model, every module of it that `apply` changed calls the program once, with random numbers and its own
        tensors: a CUDA graph that is captured afterwards holds the program.
        """
        if model is None:
            self.program.warmup(device)
            return
        if device is not None:
            raise ValueError("name a device or a model: a model's modules are on devices already")
        substitution.warmup(model, self.program)

    def about(self) -> str:
        """What was verified, on what machine, and in what this one differs."""
        machine, lines = self.verified["machine"], list(self.verified["summary"])
        here = {"torch": torch.__version__, "system": platform.system(), "processor": platform.machine()}
        if self.verified["device"] == "cuda" and torch.cuda.is_available():
            here["device"] = torch.cuda.get_device_name()
        differences = [
            f"{name} is {value}, and was {machine[name]}"
            for name, value in here.items()
            if machine.get(name) and machine[name] != value
        ]
        if differences:
            lines.append(
                f"This machine is another one: {'; '.join(differences)}. kforge verify judges the package here."
            )
        return "\n".join(lines)


def _read_verified(home: Path) -> dict[str, Any]:
    path = home / "verified.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DamagedPackage(f"{path} cannot be read ({error.strerror}): install the package again") from None
    except ValueError:
        raise DamagedPackage(f"{path} is damaged: install the package again") from None
    version = data.get("kforge_package") if isinstance(data, dict) else None
    if version != FORMAT:
        raise DamagedPackage(f"{path} has format {version}, and this package's code reads format {FORMAT}")
    return dict(data)
