"""What a package's program compiles, carried along: for servers that have no compiler.

The package is used once on this machine, which compiles it; what that leaves is put into it, with its hashes and what
each is for: libraries for this processor, NVRTC's kernels for this GPU and others that are named, with PTX for later
ones, and what Triton keeps in its cache.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from kforge.errors import UsageError
from kforge.packages.package_files import write_package
from kforge.packages.package_process import run_package
from kforge.packages.runtime.carried_files import LIBRARY, NVRTC, TRITON, libc_version, library_key
from kforge.packages.runtime.triton_kernels import read_kernels, triton_key

_LONGEST = 900.0


def with_built(
    files: dict[str, bytes], name: str, home: str, architectures: tuple[str, ...] = ()
) -> tuple[dict[str, bytes], list[str]]:
    """(A package's files with what its program compiles, what could not be compiled that nobody asked for).

    `home` is the folder in it that is imported, `architectures` are GPUs to compile for beside the one that is here.
    UsageError where nothing was compiled that a file could hold.
    """
    for architecture in architectures:
        if not re.fullmatch(r"sm_\d+[af]?", architecture):
            raise UsageError(f"no GPU is called {architecture!r}: write for example --arch sm_80,sm_100")
    with tempfile.TemporaryDirectory(prefix="kforge-built-") as scratch:
        root, cache, triton = (Path(scratch) / part for part in ("package", "cache", "triton"))
        _write_module(files, name, home, root)
        places = {"KFORGE_PACKAGE_CACHE": str(cache), "TRITON_CACHE_DIR": str(triton)}
        failed = _use(name, root, places, architectures)
        asked = [reason for target, reason in failed if target == "cubin"]
        if asked:
            raise UsageError(f"the program cannot be compiled for every GPU that was named: {asked[0]}")
        key = library_key(files[f"{home}program.py"].decode())
        nvrtc = sorted(path for path in cache.rglob("nvrtc/*") if not path.name.startswith("."))
        if architectures and not nvrtc:
            raise UsageError("--arch is for programs that NVRTC compiles, and this one has no such kernel")
        found = [
            (LIBRARY, key, path.relative_to(place).as_posix(), path.read_bytes())
            for place in cache.glob("*/*")
            for path in sorted(place.rglob("*.so"))
        ]
        found += [(NVRTC, "", path.name, path.read_bytes()) for path in nvrtc]
        kernels = read_kernels(triton)
        if kernels:
            # Triton names its libraries by what `file` says of the interpreter too, and many a server has no `file`.
            for linkage in ("ELF", ""):
                _use(name, root, places, (), linkage)
            kernels = read_kernels(triton)
        found += [(TRITON, triton_key(), path, data) for path, data in kernels.items()]
    if not found:
        raise UsageError("the program leaves nothing compiled that a package could carry: leave out --with-built")
    added: dict[str, bytes] = {}
    listed: list[dict[str, Any]] = []
    for kind, wanted, path, data in found:
        place = "/".join(part for part in ("built", kind, wanted, path) if part)
        added[f"{home}{place}"] = data
        digest = hashlib.sha256(data).hexdigest()
        item = {"kind": kind, "for": wanted, "name": path, "path": place, "sha256": digest}
        listed.append({**item, "libc": libc_version()} if kind == LIBRARY else item)
    verified = {**json.loads(files[f"{home}verified.json"]), "built": listed}
    text = (json.dumps(verified, indent=1, sort_keys=True) + "\n").encode()
    whole = {**files, **added, f"{home}verified.json": text}
    _check(whole, name, home)
    return whole, [reason for _, reason in failed]


def _write_module(files: dict[str, bytes], name: str, home: str, root: Path) -> None:
    """Write what is imported of a package, so that it can be from this folder."""
    write_package({f"{name}/{path.removeprefix(home)}": files[path] for path in files if path.startswith(home)}, root)


def _check(files: dict[str, bytes], name: str, home: str) -> None:
    """UsageError where the package does not work without a compiler on this very machine."""
    with tempfile.TemporaryDirectory(prefix="kforge-built-") as scratch:
        root, empty = Path(scratch) / "package", Path(scratch) / "bin"
        empty.mkdir()
        _write_module(files, name, home, root)
        places = {
            "KFORGE_PACKAGE_CACHE": str(Path(scratch) / "cache"),
            "TRITON_CACHE_DIR": str(Path(scratch) / "triton"),
        }
        try:
            _use(name, root, {**places, "PATH": str(empty), "CXX": ""}, ())
        except UsageError as error:
            raise UsageError(f"what the program compiles cannot be carried: without a compiler, {error}") from None


def _use(
    name: str, root: Path, places: dict[str, str], architectures: tuple[str, ...], linkage: str | None = None
) -> list[tuple[str, str]]:
    """Have the package compile and run; what NVRTC could not compile for other GPUs: (target, reason).

    With a `linkage`, as on a machine where platform.architecture() tells that one.
    """
    told = (
        "import platform; bits = platform.architecture()[0]; "
        f"platform.architecture = lambda *_, **__: (bits, {linkage!r}); "
    )
    use = (
        f"import json, {name} as package; program = package._package.program; program.warmup(); "
        "assert package.stats()['program'], package.stats(); kernels = program._file.kernels; "
        f"print(); print(json.dumps(kernels.compile_for({list(architectures)!r}) if kernels else []))"
    )
    if linkage is not None:
        use = told + use
    try:
        done = run_package(["-c", use], root, _LONGEST, places)
    except subprocess.TimeoutExpired:
        raise UsageError(f"the program did not compile within {_LONGEST:.0f} s") from None
    if done.returncode:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
        raise UsageError(f"the program cannot be compiled on this machine: {last[:300]}")
    return [(target, reason) for target, reason in json.loads(done.stdout.splitlines()[-1])]
