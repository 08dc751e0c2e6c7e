"""What the site has from outside docs/: pages of the repository's root, and links to its other files.

A link such as `../tests/catalogue/README.md` works where the repository itself is read. On the site it becomes an
address in the public repository; one that leads nowhere is a warning, which `mkdocs build --strict` takes for an error.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

LOG = logging.getLogger("mkdocs.plugins.outside_links")
LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)\s#]+)([^)\s]*)(?=\))")
AT_THE_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages that lie beside docs/, by their name on the site."""


def on_files(files: Any, config: Any) -> Any:
    """The root's pages, as if they lay in docs/."""
    root = Path(config.docs_dir).parent
    for name, page in AT_THE_ROOT.items():
        text = LINK.sub(lambda found: _moved(found, root), (root / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """The page with links to files outside docs/ led to the repository."""
    docs = Path(config.docs_dir)
    beside = docs / Path(page.file.src_uri).parent
    return LINK.sub(lambda found: _led_out(found, beside, docs, config.extra["repository"], page), markdown)


def _moved(found: re.Match[str], root: Path) -> str:
    """A link in a page at the root, as it reads from docs/."""
    path, rest = found.groups()
    return AT_THE_ROOT.get(path, os.path.relpath(root / path, root / "docs")) + rest


def _led_out(found: re.Match[str], beside: Path, docs: Path, repository: str, page: Any) -> str:
    path, rest = found.groups()
    target = Path(os.path.normpath(beside / path))
    root = docs.parent
    if target.is_relative_to(docs) or not target.is_relative_to(root):
        return found.group()
    name = target.relative_to(root).as_posix()
    if name in AT_THE_ROOT:
        return os.path.relpath(docs / AT_THE_ROOT[name], beside) + rest
    if not target.exists():
        LOG.warning("%s links to %s, which is not there", page.file.src_uri, name)
    return f"{repository}/{'tree' if target.is_dir() else 'blob'}/main/{name}{rest}"
