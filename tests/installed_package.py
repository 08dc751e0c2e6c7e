"""A third party's package, installed for a test: a folder with code and a dist-info, as pip leaves them."""

from __future__ import annotations

from pathlib import Path


def install(site: Path, code: str, entry_points: dict[str, str], module: str = "their_plugins") -> Path:
    """Put the module and its entry points (group -> line) into a folder that the caller puts on the path."""
    site.mkdir(parents=True, exist_ok=True)
    (site / f"{module}.py").write_text(code, encoding="utf-8")
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0\n")
    lines = [f"[kforge.{group}]\n{line}\n" for group, line in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return site
