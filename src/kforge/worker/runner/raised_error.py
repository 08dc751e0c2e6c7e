"""What a program raised, described for the judge."""

from __future__ import annotations

import traceback

from kforge.worker.protocol.base import PeerFailure, RaisedError

_MAX_TEXT = 200_000


class ProgramFailed(Exception):
    """The program raised; `failure` says where and what."""

    def __init__(self, phase: str, error: BaseException, filename: str) -> None:
        super().__init__(str(error))
        self.failure = PeerFailure(phase, describe_error(error, filename))


def describe_error(error: BaseException, filename: str = "") -> RaisedError:
    """What was raised, where in the program, and any compiler output that came with it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    where = [f"line {frame.lineno}, in {frame.name}: {frame.line}" for frame in frames[-6:]]
    if isinstance(error, SyntaxError) and error.filename == filename:
        where = [f"line {error.lineno}: {(error.text or '').rstrip()}"]
    texts: list[str] = []
    link: BaseException | None = error
    while link is not None and len(texts) < 20:
        try:
            texts.append(str(link))
        except Exception:
            texts.append(f"(its message cannot be printed: {type(link).__name__})")
        for name in ("stderr", "output"):
            extra = getattr(link, name, None)
            if isinstance(extra, (bytes, str)):
                texts.append(extra.decode(errors="replace") if isinstance(extra, bytes) else extra)
        link = link.__cause__ or link.__context__
    text = "\n".join(dict.fromkeys(texts))[:_MAX_TEXT]
    return RaisedError(type(error).__name__, texts[0][:_MAX_TEXT], tuple(where), text)
