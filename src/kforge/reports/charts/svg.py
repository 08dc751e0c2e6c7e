"""A small picture in SVG. Every text in it is escaped; colours and strokes come from classes."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup


class Drawing:
    """Shapes in the order they are drawn."""

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width, self.height = width, height
        self._parts = [
            Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(number(width), number(height), label)
        ]

    def line(self, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
        x1, y1, x2, y2 = (number(value) for value in (*start, *end))
        self._parts.append(Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(x1, y1, x2, y2, kind))

    def path(self, points: Sequence[tuple[float, float]], kind: str, closed: bool = False) -> None:
        """Straight lines through the points."""
        if points:
            way = "M" + "L".join(f"{number(x)},{number(y)}" for x, y in points) + ("Z" if closed else "")
            self._parts.append(Markup('<path d="{}" class="{}"/>').format(way, kind))

    def box(self, corner: tuple[float, float], size: tuple[float, float], kind: str, hint: str = "") -> None:
        """A rectangle; `hint` is shown to who points at it."""
        x, y, width, height = (number(value) for value in (*corner, *size))
        self._parts.append(
            Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}">{}</rect>').format(
                x, y, width, height, kind, _hint(hint)
            )
        )

    def dot(self, place: tuple[float, float], radius: float, kind: str, hint: str = "", problem: str = "") -> None:
        """A circle; with a problem, a click opens the problem."""
        link = Markup(' data-open="{}"').format(problem) if problem else ""
        self._parts.append(
            Markup('<circle cx="{}" cy="{}" r="{}" class="{}"{}>{}</circle>').format(
                number(place[0]), number(place[1]), number(radius), kind, link, _hint(hint)
            )
        )

    def text(self, place: tuple[float, float], content: str, kind: str = "", anchor: str = "start") -> None:
        self._parts.append(
            Markup('<text x="{}" y="{}" text-anchor="{}" class="{}">{}</text>').format(
                number(place[0]), number(place[1]), anchor, kind, content
            )
        )

    def label(self, place: tuple[float, float], content: str, kind: str, room: int, anchor: str = "start") -> None:
        """A text of at most `room` characters; who points at it sees all of it."""
        shown = content if len(content) <= room else content[: room - 1] + "…"
        self._parts.append(
            Markup('<text x="{}" y="{}" text-anchor="{}" class="{}">{}{}</text>').format(
                number(place[0]), number(place[1]), anchor, kind, shown, _hint(content if shown != content else "")
            )
        )

    def finish(self) -> Markup:
        return Markup("").join([*self._parts, Markup("</svg>")])


def number(value: float) -> str:
    """A number with at most one digit after the point: finer than anyone sees."""
    return f"{value:.1f}".removesuffix(".0")


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near to the wanted ones as they can be with a gap between any two, in the same order."""
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    placed = list(wanted)
    floor = low
    for index in order:
        placed[index] = max(wanted[index], floor)
        floor = placed[index] + gap
    ceiling = high
    for index in reversed(order):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed


def _hint(text: str) -> Markup:
    return Markup("<title>{}</title>").format(text) if text else Markup("")
