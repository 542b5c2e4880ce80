"""Holds the cells that LibreOffice made of our CSV to the JSON of the same lists.

usage: spreadsheet.py DIRECTORY, with NAME.fods (the spreadsheet) and NAME.json for each list
"""

import json
import sys
import xml.etree.ElementTree as xml
from decimal import Decimal
from pathlib import Path

OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


def text_of(element):
    """With the spaces and tabs that stand in it as elements of their own."""
    if element.tag == TEXT + "tab":
        text = "\t"
    elif element.tag == TEXT + "s":
        text = " " * int(element.get(TEXT + "c", "1"))
    else:
        text = element.text or ""
    return text + "".join(text_of(child) + (child.tail or "") for child in element)


def rows(path):
    """Each row as (kind, value) of its cells; formulas are a kind of their own."""
    for row in xml.parse(path).getroot().iter(TABLE + "table-row"):
        cells = []
        for cell in row.iter(TABLE + "table-cell"):
            kind = cell.get(OFFICE + "value-type", "empty")
            if cell.get(TABLE + "formula"):
                kind = "formula"
            text = "\n".join(text_of(line) for line in cell.iter(TEXT + "p"))
            value = {"float": cell.get(OFFICE + "value"), "date": cell.get(OFFICE + "date-value")}.get(kind, text)
            cells += [(kind, value)] * min(int(cell.get(TABLE + "number-columns-repeated", "1")), 100)
        yield cells


def check(directory, name, columns):
    """`columns`: for each column that is looked at the kind that its cells must have."""
    table = [row for row in rows(directory / f"{name}.fods") if any(kind != "empty" for kind, _ in row)]
    header = [value for _, value in table[0]]
    expected = json.loads((directory / f"{name}.json").read_text())["data"]
    assert len(table) - 1 == len(expected) > 0, f"{name}: {len(table) - 1} rows of {len(expected)}"
    looked_at = 0
    for row, fields in zip(table[1:], expected):
        assert all(kind != "formula" for kind, _ in row), f"{name}: a formula in {row}"
        for column, kind in columns.items():
            seen_kind, seen = row[header.index(column)]
            wanted = fields[column]
            if kind == "text":
                # The apostrophe keeps it from being reckoned.
                wanted = "'" + wanted if wanted[:1] in ("=", "+", "-", "@", "\t") else wanted
                same = seen == wanted
            elif kind == "float":
                same = seen_kind == "float" and Decimal(seen) == Decimal(wanted)
            else:
                same = seen_kind == "date" and seen[:10] == wanted
            assert same, f"{name} {column}: {seen_kind} {seen!r} is not {wanted!r}"
            looked_at += 1
    return looked_at


directory = Path(sys.argv[1])
cells = check(directory, "fx", {"date": "date", "pair": "text", "buy": "float", "sell": "float"})
cells += check(directory, "ipca", {"date": "date", "value": "float"})
cells += check(directory, "companies", {"name": "text", "trade_name": "text", "city": "text", "auditor": "text"})
print(f"cells: {cells}")
