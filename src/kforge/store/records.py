"""Records as documents (JSON text) and back.

An attempt's document leaves out what its run already says (the problem) and what it says twice (the candidate), and
moves long profile texts and pictures to blobs. It comes back equal.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, TypeVar

from kforge import jsonable
from kforge.errors import StoreError, WireError
from kforge.store.blobs import Blobs
from kforge.types import Artefact, Attempt, Candidate, Image, Problem, Profile

LONG_TEXT = 4096
"""Profile texts longer than this are blobs."""

T = TypeVar("T")


def dump(value: Any) -> str:
    """The document of any record; plain ASCII, so that every database takes it."""
    return json.dumps(jsonable.encode(value), separators=(",", ":"))


def load(kind: type[T], document: str) -> T:
    """The record of a document; StoreError if this program cannot read it."""
    return _build(kind, _parse(document))


def pack(attempt: Attempt, problem: Problem, blobs: Blobs) -> str:
    """An attempt's document within a run on `problem`."""
    data = jsonable.encode(dataclasses.replace(attempt, profiles=()))
    evidence = attempt.verdict.evidence
    if evidence is not None:
        stored = data["verdict"]["evidence"]
        if evidence.problem == problem:
            stored["problem"] = None
        if evidence.candidate == attempt.candidate:
            stored["candidate"] = None
    data["profiles"] = [_pack_profile(profile, blobs) for profile in attempt.profiles]
    return json.dumps(data, separators=(",", ":"))


def unpack(document: str, problem: Problem, blobs: Blobs | None) -> Attempt:
    """The attempt that was packed; without blobs, without its profiles."""
    data = _parse(document)
    evidence = data["verdict"]["evidence"]
    if evidence is not None:
        if evidence["problem"] is None:
            evidence["problem"] = jsonable.encode(problem)
        if evidence["candidate"] is None:
            evidence["candidate"] = data["candidate"]
    packed = data.pop("profiles")
    profiles = () if blobs is None else tuple(_unpack_profile(profile, blobs) for profile in packed)
    return dataclasses.replace(_build(Attempt, data), profiles=profiles)


def candidate(document: str) -> Candidate | None:
    """The program in an attempt's document, without anything else of it: no blob is read."""
    data = _parse(document)["candidate"]
    return None if data is None else _build(Candidate, data)


def plain(text: str) -> str:
    """`text` as every database's text column takes it: NUL and lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _parse(document: str) -> Any:
    try:
        return json.loads(document)
    except ValueError:
        raise StoreError("a record in the store is damaged: restore a backup") from None


def _build(kind: type[T], data: Any) -> T:
    try:
        return jsonable.decode(kind, data)
    except WireError as error:
        raise StoreError(f"a record in the store cannot be read by this KForge ({error}): upgrade KForge") from None


def _pack_profile(profile: Profile, blobs: Blobs) -> dict[str, Any]:
    data: dict[str, Any] = jsonable.encode(dataclasses.replace(profile, images=(), raw=()))
    if len(profile.text) > LONG_TEXT:
        data["text"] = {"blob": blobs.put(profile.text.encode("utf-8", "surrogatepass"))}
    data["images"] = [{"media_type": image.media_type, "blob": blobs.put(image.data)} for image in profile.images]
    data["raw"] = [
        {"name": item.name, "media_type": item.media_type, "blob": blobs.put(item.data)} for item in profile.raw
    ]
    return data


def _unpack_profile(data: dict[str, Any], blobs: Blobs) -> Profile:
    if isinstance(data["text"], dict):
        data["text"] = blobs.get(data["text"]["blob"]).decode("utf-8", "surrogatepass")
    images = tuple(Image(image["media_type"], blobs.get(image["blob"])) for image in data.pop("images"))
    raw = tuple(Artefact(item["name"], item["media_type"], blobs.get(item["blob"])) for item in data.pop("raw", ()))
    return dataclasses.replace(_build(Profile, data), images=images, raw=raw)
