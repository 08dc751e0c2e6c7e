"""What a package carries compiled: held against its hashes, and put where the program looks for it."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

import torch

from . import triton_kernels

LIBRARY, NVRTC, TRITON = "library", "nvrtc", "triton"
"""Kinds of what is carried."""


def bring_files(built: list[dict[str, Any]], home: Path, folder: Path, source: str, name: str) -> None:
    """Put what was compiled for such a machine into a program's folder, and into Triton's cache.

    `built` lists a package's files, with their hashes and what they are for; RuntimeError for one that is damaged.
    """
    keys = {LIBRARY: library_key(source), NVRTC: ""}
    if any(item["kind"] == TRITON for item in built):
        keys[TRITON] = triton_kernels.triton_key()
    mine = [item for item in built if keys.get(item["kind"]) == item["for"] and _has_libc(item)]
    contents = {item["path"]: _read(home / item["path"], item) for item in mine}
    for item in mine:
        if item["kind"] != TRITON:
            _put(folder / ("nvrtc" if item["kind"] == NVRTC else "") / item["name"], contents[item["path"]])
    kernels = {item["name"]: contents[item["path"]] for item in mine if item["kind"] == TRITON}
    try:
        triton_kernels.add_kernels(kernels, triton_kernels.cache_folder())
    except OSError as error:
        logging.getLogger(name).warning(
            "what Triton compiled for this package cannot be put into %s (%s): Triton compiles anew",
            triton_kernels.cache_folder(),
            error.strerror or error,
        )


def library_key(source: str) -> str:
    """Which machines a compiled library is for: the processor, and torch where the library is linked with it."""
    if "torch/extension.h" not in source and "cpp_extension" not in source:
        return processor_key()
    python = ".".join(platform.python_version_tuple()[:2])
    return f"{processor_key()}-torch{torch.__version__}-python{python}"


def libc_version() -> str:
    """The C library that what is compiled here is linked with; empty where it has no version that could be told."""
    name, version = platform.libc_ver()
    return version if name == "glibc" else ""


def _has_libc(item: dict[str, Any]) -> bool:
    """Whether the C library here is as new as the one that a library was linked with."""
    wanted, here = item.get("libc", ""), libc_version()
    return not wanted or (bool(here) and _numbers(here) >= _numbers(wanted))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def processor_key() -> str:
    """The processor, as far as compiled code depends on it: its architecture and the instructions it has."""
    instructions = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.split(":")[0].strip() in ("flags", "Features"):
                instructions = " ".join(sorted(line.split(":", 1)[1].split()))
                break
    if platform.system() == "Darwin":
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            named = subprocess.run(
                ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, timeout=5
            )
            instructions = named.stdout.strip()
    digest = hashlib.sha256((platform.system() + instructions).encode()).hexdigest()[:12]
    return f"{platform.machine()}-{digest}"


def _read(file: Path, item: dict[str, Any]) -> bytes:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise RuntimeError(
            f"{item['path']} cannot be read ({error.strerror}), and it is what was built: install the package again"
        ) from None
    if hashlib.sha256(data).hexdigest() != item["sha256"]:
        raise RuntimeError(f"{item['path']} is damaged: it is not what was built; install the package again")
    return data


def _put(target: Path, data: bytes) -> None:
    own = not hasattr(os, "getuid") or (target.exists() and target.lstat().st_uid == os.getuid())
    if own and not target.is_symlink() and target.is_file() and target.read_bytes() == data:
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_name(f".{uuid.uuid4().hex}")
    partial.write_bytes(data)
    os.replace(partial, target)
