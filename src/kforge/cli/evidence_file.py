"""Evidence records as files: written by evaluate, export and the demos, read by `kforge evaluate --replay`."""

from __future__ import annotations

import json
from pathlib import Path

from kforge import jsonable
from kforge.errors import UsageError, WireError
from kforge.types import Evidence, Report
from kforge.whole_file import write_for_user


def save_evidence(path: Path, report: Report) -> None:
    """Whole or not at all; UsageError where it cannot be written."""
    record = {"kforge_evidence": Evidence.version, **jsonable.encode(report)}
    write_for_user(path, json.dumps(record, indent=1))


def load_evidence(path: Path) -> Report:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path}: not JSON") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: not an evidence record")
    version = data.pop("kforge_evidence", Evidence.version)
    if version != Evidence.version:
        raise UsageError(
            f"{path}: an evidence record of version {version}; this KForge reads version {Evidence.version}"
        )
    try:
        return jsonable.decode(Report, data)
    except WireError as error:
        raise UsageError(f"{path}: not an evidence record: {error}") from None
