"""Compares the cells that LibreOffice read from our CSV with the JSON of the same lists.

usage: spreadsheet.py DIRECTORY, with NAME.fods (the spreadsheet) and NAME.json for each list
Prints the number of cells compared; stops at the first difference.
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
    """The text of an element, including spaces and tabs, which are elements of their own."""
    if element.tag == TEXT + "tab":
        text = "\t"
    elif element.tag == TEXT + "s":
        text = " " * int(element.get(TEXT + "c", "1"))
    else:
        text = element.text or ""
    return text + "".join(text_of(child) + (child.tail or "") for child in element)


def rows(path):
    """Yields each row as a list of (kind, value) per cell; a formula has its own kind."""
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
    """Checks `columns`, a map from column name to the kind that its cells must have. Returns the number of cells."""
    table = [row for row in rows(directory / f"{name}.fods") if any(kind != "empty" for kind, _ in row)]
    header = [value for _, value in table[0]]
    expected = json.loads((directory / f"{name}.json").read_text())["data"]
    assert len(table) - 1 == len(expected) > 0, f"{name}: {len(table) - 1} rows of {len(expected)}"
    compared = 0
    for row, fields in zip(table[1:], expected):
        assert all(kind != "formula" for kind, _ in row), f"{name}: a formula in {row}"
        for column, kind in columns.items():
            actual_kind, actual = row[header.index(column)]
            expected_value = fields[column]
            if kind == "text":
                # The apostrophe keeps a spreadsheet from running it as a formula.
                expected_value = "'" + expected_value if expected_value[:1] in ("=", "+", "-", "@", "\t") else expected_value
                is_equal = actual == expected_value
            elif kind == "float":
                is_equal = actual_kind == "float" and Decimal(actual) == Decimal(expected_value)
            else:
                is_equal = actual_kind == "date" and actual[:10] == expected_value
            assert is_equal, f"{name} {column}: {actual_kind} {actual!r} is not {expected_value!r}"
            compared += 1
    return compared


directory = Path(sys.argv[1])
cells = check(directory, "fx", {"date": "date", "pair": "text", "buy": "float", "sell": "float"})
cells += check(directory, "ipca", {"date": "date", "value": "float"})
cells += check(directory, "companies", {"name": "text", "trade_name": "text", "city": "text", "auditor": "text"})
print(f"cells: {cells}")
