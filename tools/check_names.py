"""One word for one thing, as far as a program can tell: no module is a gerund, no public class name is used twice.

python tools/check_names.py     prints what breaks the rule; exit status 1 if anything does
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "kforge"
EXCEPTIONS = {"testing"}
"""Words in -ing that the field uses as nouns: numpy.testing, torch.testing."""
FOREIGN = ("bundled", "training", "example")
"""Folders of problems and programs: their classes are called what the formats want."""


def gerunds(modules: list[Path]) -> list[str]:
    """Modules and packages whose last word ends in -ing."""
    names = {path.parent if path.stem == "__init__" else path.with_suffix("") for path in modules}
    return [
        f"{name.relative_to(SOURCE.parent)}: a gerund; name what is in it" for name in sorted(names) if _is_gerund(name)
    ]


def _is_gerund(module: Path) -> bool:
    word = module.name.rpartition("_")[2]
    return len(word) > 4 and word.endswith("ing") and word not in EXCEPTIONS


def repeated_classes(modules: list[Path]) -> list[str]:
    """Public classes that two modules define."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in modules:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(SOURCE.parent)))
    return [f"{name}: a class of {' and of '.join(paths)}" for name, paths in sorted(homes.items()) if len(paths) > 1]


def main() -> int:
    modules = [path for path in sorted(SOURCE.rglob("*.py")) if not set(FOREIGN) & set(path.parts)]
    faults = [*gerunds(modules), *repeated_classes(modules)]
    print("\n".join(faults) or f"{len(modules)} modules: no gerund, no public class name used twice")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
