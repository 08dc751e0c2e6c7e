"""What `xctrace export` writes: tables in XML, each value written out once and referred to afterwards.

    <trace-query-result><node xpath="..."><schema name="..."><col><mnemonic>start</mnemonic>...</col>...</schema>
    <row><start-time id="1" fmt="00:00.001">1000</start-time><duration ref="7"/><sentinel/>...</row>...

A row holds one element for each column, in the schema's order: the value, a `ref` to the `id` of an equal one before it
(which may lie inside another value), or a sentinel for none.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

_MOST_BYTES = 256 << 20
_MOST_ROWS = 200_000


@dataclass(frozen=True)
class TableValue:
    """One value of a row."""

    raw: str
    """The value as the tool counts: nanoseconds, bytes."""
    shown: str
    """The value as the tool would show it."""
    parts: tuple[tuple[str, str], ...] = ()
    """Values inside it, by the name of their element: a process holds its pid."""

    @property
    def text(self) -> str:
        return self.shown or self.raw

    @property
    def number(self) -> float | None:
        """The value as a number that makes sense; None if it is none."""
        try:
            value = float(self.raw)
        except ValueError:
            return None
        return value if math.isfinite(value) else None

    def part(self, name: str) -> str:
        return next((value for key, value in self.parts if key == name), "")


Row = dict[str, TableValue]
"""Column's mnemonic -> value; columns without one are left out."""


def schemas(contents: str) -> tuple[str, ...]:
    """The names of the tables that a table of contents (`--toc`) lists, each once."""
    names = [table.get("schema", "") for table in _parse(contents).iter("table")]
    return tuple(dict.fromkeys(name for name in names if name))


def rows(export: str) -> list[Row]:
    """The rows of an exported table, of all its nodes; ValueError if the text is no export."""
    table: list[Row] = []
    for node in _parse(export).iter("node"):
        schema = node.find("schema")
        columns = [column.findtext("mnemonic", "") for column in schema.findall("col")] if schema is not None else []
        # The numbers begin anew in each node.
        known: dict[str, ElementTree.Element] = {}
        for row in node.findall("row"):
            for element in row.iter():
                if "id" in element.attrib:
                    known[element.attrib["id"]] = element
            cells = zip(columns, row, strict=False)
            table.append({name: _cell(element, known) for name, element in cells if element.tag != "sentinel"})
            if len(table) >= _MOST_ROWS:
                return table
    return table


def _cell(element: ElementTree.Element, known: dict[str, ElementTree.Element]) -> TableValue:
    element = _resolve(element, known)
    parts = tuple(
        (inner.tag, _resolve(inner, known).get("fmt") or (_resolve(inner, known).text or "").strip())
        for inner in element.iter()
        if inner is not element
    )
    return TableValue((element.text or "").strip(), element.get("fmt", "").strip(), parts)


def _resolve(element: ElementTree.Element, known: dict[str, ElementTree.Element]) -> ElementTree.Element:
    if "ref" not in element.attrib:
        return element
    if element.attrib["ref"] not in known:
        raise ValueError(f"the export refers to a value that it does not hold ({element.attrib['ref'][:20]})")
    return known[element.attrib["ref"]]


def _parse(text: str) -> ElementTree.Element:
    if len(text) > _MOST_BYTES:
        raise ValueError("the export is too large")
    if "<!DOCTYPE" in text[:2000] or "<!ENTITY" in text:
        raise ValueError("an export defines no entities")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        whole = _parse_cut_short(text)
        if whole is None:
            raise ValueError(f"the export is not whole XML: {error}") from None
        return whole


def _parse_cut_short(text: str) -> ElementTree.Element | None:
    """An export that broke off, up to its last whole row; None if it has none."""
    end = text.rfind("</row>")
    if end < 0:
        return None
    try:
        return ElementTree.fromstring(text[: end + len("</row>")] + "</node></trace-query-result>")
    except ElementTree.ParseError:
        return None
