"""What a package's program compiles, carried along: for servers that have no compiler.

The package is used once on this machine, which compiles it; the libraries that it leaves are put into it, with their
hashes, under the processor they are for.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from pathlib import Path

from kforge.errors import UsageError
from kforge.packages.package_files import write_package
from kforge.packages.package_process import run_package
from kforge.packages.runtime.program_file import built_key

_LONGEST = 900.0


def with_built(files: dict[str, bytes], name: str, home: str) -> dict[str, bytes]:
    """A package's files with what its program compiles; `home` is the folder in it that is imported.

    UsageError where nothing was compiled that a file could hold.
    """
    with tempfile.TemporaryDirectory(prefix="kforge-built-") as scratch:
        root, cache = Path(scratch) / "package", Path(scratch) / "cache"
        write_package(
            {f"{name}/{path.removeprefix(home)}": files[path] for path in files if path.startswith(home)}, root
        )
        use = f"import {name} as package; package._package.program.warmup(); assert package.stats()['program']"
        try:
            done = run_package(["-c", use], root, _LONGEST, {"KFORGE_PACKAGE_CACHE": str(cache)})
        except subprocess.TimeoutExpired:
            raise UsageError(f"the program did not compile within {_LONGEST:.0f} s") from None
        if done.returncode:
            last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
            raise UsageError(f"the program cannot be compiled on this machine: {last[:300]}")
        libraries = sorted(cache.rglob("*.so"))
        if not libraries:
            raise UsageError(
                "the program leaves no library that a package could carry: what Triton and NVRTC compile is kept by "
                "them, so leave out --with-built"
            )
        source = files[f"{home}program.py"].decode()
        key = built_key(source)
        verified = json.loads(files[f"{home}verified.json"])
        added, listed = {}, []
        for path in libraries:
            data = path.read_bytes()
            place = f"built/{key}/{path.name}"
            added[f"{home}{place}"] = data
            listed.append({"name": path.name, "path": place, "sha256": hashlib.sha256(data).hexdigest()})
    verified["built"] = {key: listed}
    text = (json.dumps(verified, indent=1, sort_keys=True) + "\n").encode()
    return {**files, **added, f"{home}verified.json": text}
