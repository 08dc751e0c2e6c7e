"""What a runner sees of the file system: the system, Python, torch, the compilers and the staged code. No home."""

from __future__ import annotations

import importlib.util
import os
import site
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys")
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "ssl/openssl.cnf")


@dataclass(frozen=True)
class FileSystemView:
    """Paths to show read-only, links to make, places to cover."""

    shown: tuple[tuple[str, str], ...]
    """(outside, inside), parents before children."""
    links: tuple[tuple[str, str], ...]
    """(target, link)."""
    covered: tuple[str, ...]
    """Folders inside a shown one that must look empty."""
    devices: tuple[str, ...] = ()
    """Device nodes to show, beside the harmless ones every view has."""


def make_view(stage: Path, extra: tuple[str, ...], devices: tuple[str, ...] = ()) -> FileSystemView:
    """The view for a runner whose code is staged in `stage`, with a platform's own folders and device nodes."""
    wanted = [*_SYSTEM, *(f"/etc/{name}" for name in _ETC), *_python_folders(), *extra]
    shown: dict[str, str] = {}
    links: dict[str, str] = {}
    for path in wanted:
        if os.path.islink(path) and path in _SYSTEM:
            links[path] = os.readlink(path)
        elif os.path.exists(path):
            shown[path] = path
            real = os.path.realpath(path)
            if real != path:
                shown.setdefault(real, real)
    kept = {inside: outside for inside, outside in shown.items() if not _is_inside_another(inside, shown)}
    ordered = sorted(kept.items(), key=lambda item: item[0].count("/"))
    return FileSystemView(
        shown=(*((outside, inside) for inside, outside in ordered), (str(stage), str(stage))),
        links=tuple((target, link) for link, target in links.items()),
        covered=tuple(_own_installation(kept)),
        devices=devices,
    )


def _python_folders() -> list[str]:
    """Python itself and everything it imports from; on a system Python, /usr already holds them."""
    folders = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))]
    folders += [path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))]
    folders += site.getsitepackages()
    torch = importlib.util.find_spec("torch")
    if torch and torch.origin:
        folders.append(str(Path(torch.origin).parent.parent))
    return [path for path in dict.fromkeys(map(os.path.abspath, folders)) if path not in ("/", os.path.expanduser("~"))]


def _is_inside_another(path: str, shown: dict[str, str]) -> bool:
    return any(path != other and path.startswith(other.rstrip("/") + "/") for other in shown)


def _own_installation(shown: dict[str, str]) -> list[str]:
    """KForge's own package, where it is installed inside a shown folder: runners get the staged part only."""
    home = str(Path(__file__).resolve().parents[2])
    return [home] if any(home.startswith(folder.rstrip("/") + "/") for folder in shown) else []
