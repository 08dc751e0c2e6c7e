"""How large a picture may be for whom, and pictures brought down to that."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kforge.types import Image


@dataclass(frozen=True)
class PictureLimits:
    """What a provider takes."""

    longest: int = 1568
    """Pixels of the longer side; a provider scales down what is larger, or refuses it."""
    pixels: int = 1_150_000
    refused: int = 8000
    """Pixels of the longer side from which on a picture is refused."""
    each: int = 3_750_000
    """Bytes of a picture: 5 MB in base64."""
    together: int = 14_000_000
    """Bytes of all pictures of a request."""


LIMITS = {
    "anthropic": PictureLimits(together=22_000_000),
    "openai": PictureLimits(longest=2048, pixels=2048 * 768, each=14_000_000),
    "openai-responses": PictureLimits(longest=2048, pixels=2048 * 768, each=14_000_000),
    "google": PictureLimits(longest=3072, pixels=3072 * 3072, each=7_000_000),
}
"""By the word before the colon; anyone else gets the narrowest of them."""


def limits_of(spec: str) -> PictureLimits:
    """The limits for a model's name as the user wrote it."""
    return LIMITS.get(spec.partition(":")[0], PictureLimits())


def fit_pictures(images: Sequence[Image], limits: PictureLimits) -> tuple[tuple[Image, ...], tuple[str, ...]]:
    """The pictures as the provider takes them, in order, and why others were left out.

    One that is small enough stays as it is, byte for byte.
    """
    kept: list[Image] = []
    problems: list[str] = []
    room = limits.together
    for number, image in enumerate(images, start=1):
        made = _fit(image, limits)
        if isinstance(made, str):
            problems.append(f"picture {number}: {made}")
        elif len(made.data) > room:
            problems.append(f"picture {number}: all together they are larger than a request may be")
        else:
            room -= len(made.data)
            kept.append(made)
    return tuple(kept), tuple(problems)


def size_of(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels, from the beginning of a PNG, JPEG, GIF or WebP file; None if it cannot be read."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return struct.unpack(">II", data[16:24])
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return struct.unpack("<HH", data[6:10])
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
        return _jpeg(data) if data.startswith(b"\xff\xd8") else None
    except (struct.error, IndexError):
        return None


def _fit(image: Image, limits: PictureLimits) -> Image | str:
    """The picture as it may be sent, or why it may not."""
    size = size_of(image.data)
    scale = 1.0
    if size is not None and min(size) > 0:
        scale = min(1.0, limits.longest / max(size), (limits.pixels / (size[0] * size[1])) ** 0.5)
    if scale == 1.0 and len(image.data) <= limits.each:
        return image
    smaller = _scale_down(image, scale, limits.each)
    if isinstance(smaller, Image):
        return smaller
    if len(image.data) > limits.each:
        return f"{len(image.data)} bytes are too many, and {smaller}"
    if size is not None and max(size) > limits.refused:
        return f"{size[0]} x {size[1]} pixels are too many, and {smaller}"
    # The provider scales it down itself.
    return image


def _scale_down(image: Image, scale: float, most: int) -> Image | str:
    """The picture scaled down, as PNG, or as JPEG where that is still too large; why not, if it cannot be done."""
    try:
        from PIL import Image as Pictures
    except ImportError:
        return "Pillow is not installed to make it smaller (pip install pillow)"
    try:
        with Pictures.open(io.BytesIO(image.data)) as opened:
            picture = opened.convert("RGB")
            width, height = (max(1, round(side * scale)) for side in picture.size)
            picture = picture.resize((width, height), Pictures.Resampling.LANCZOS)
    except (OSError, ValueError, SyntaxError, Pictures.DecompressionBombError):
        return "it cannot be read"
    for kind, options in (("png", {"optimize": True}), ("jpeg", {"quality": 85}), ("jpeg", {"quality": 60})):
        buffer = io.BytesIO()
        picture.save(buffer, kind, **options)
        if buffer.tell() <= most:
            return Image(f"image/{kind}", buffer.getvalue())
    return "it stays too large as a JPEG file"


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Width and height from the frame header: the markers are walked through."""
    place = 2
    while place + 9 < len(data):
        if data[place] != 0xFF:
            return None
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return width, height
        place += 2 + struct.unpack(">H", data[place + 2 : place + 4])[0]
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None
