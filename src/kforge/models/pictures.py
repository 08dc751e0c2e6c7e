"""A prompt's images as files, for models that read paths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kforge.types import Prompt


def write_pictures(prompt: Prompt, folder: Path, stem: str) -> list[Path]:
    """Write every image of the prompt into a folder, in order; the files' paths."""
    images = [image for message in prompt.messages for image in message.images]
    paths = []
    for number, image in enumerate(images, start=1):
        path = folder / f"{stem}.{number}.{image.media_type.partition('/')[2]}"
        path.write_bytes(image.data)
        paths.append(path)
    return paths


def image_list(paths: Sequence[Path | str]) -> str:
    """How the end of a prompt names its images; nothing where there are none."""
    if not paths:
        return ""
    return "\n\nImages, in order:\n" + "".join(f"- {path}\n" for path in paths)
