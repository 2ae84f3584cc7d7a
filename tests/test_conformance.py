"""Each statement of docs/conformance.md names a place in the code and a test, and all of them exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "docs" / "conformance.md"
DOCUMENTS = ("The controller", "Request processing", "Controller failover with ZooKeeper")
COLUMNS = ["what the document says", "where", "test", "differs"]
ZOOKEEPER_MODE = "(ZooKeeper mode)"
"""Ends the heading of a section whose rows need not be implemented yet."""
NOT_YET = "not there yet"
_place = re.compile(r"`(src/ottla/[\w/]+\.py):([\w.]+)`").fullmatch
_test = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+|Test\w+::test_\w+)`").fullmatch


class Row(NamedTuple):
    """One statement of a document."""

    line: int
    section: str
    statement: str
    where: str
    test: str
    differs: str


def rows_of(text: str) -> Iterator[Row]:
    """The rows of all tables, with the headings of their documents and sections."""
    headings = ["", ""]
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.fullmatch(r"(##|###) (.+)", line):
            level = len(heading[1]) - 2
            headings[level:] = [heading[2], *[""] * (1 - level)]
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells == COLUMNS or all(re.fullmatch(r"-+", cell) for cell in cells):
            continue
        assert len(cells) == len(COLUMNS), f"line {number} has {len(cells)} cells"
        yield Row(number, " / ".join(filter(None, headings)), *cells)


def problems_of(row: Row) -> list[str]:
    """What is wrong with a row."""
    problems = []
    if not row.statement:
        problems.append("there is no statement")
    if NOT_YET in (row.where, row.test):
        if not row.section.endswith(ZOOKEEPER_MODE):
            problems.append(f"only ZooKeeper mode may be {NOT_YET}")
        if row.where != row.test:
            problems.append("the place and the test must both be there, or neither")
        return problems
    for kind, cell, match, exists in (("place", row.where, _place, has_place), ("test", row.test, _test, has_test)):
        for item in cell.split("<br>"):
            found = match(item)
            if found is None:
                problems.append(f"{item!r} is not a {kind}")
            elif not exists(found[1], found[2]):
                problems.append(f"there is no {found[2]} in {found[1]}")
    return problems


def has_place(path: str, name: str) -> bool:
    return name in _definitions(path)


def has_test(path: str, name: str) -> bool:
    return name.replace("::", ".") in _definitions(path)


@cache
def _definitions(path: str) -> frozenset[str]:
    """The functions and classes of a module, those of classes behind the name of the class; none without the module."""
    file = ROOT / path
    return frozenset(_names(ast.parse(file.read_text()).body)) if file.is_file() else frozenset()


def _names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from _names(node.body, f"{prefix}{node.name}.")


ROWS = list(rows_of(TABLES.read_text()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"line {row.line}")
def test_the_place_and_the_test_of_a_statement_exist(row: Row) -> None:
    assert not problems_of(row), f"{row.section}: {row.statement}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_document_has_its_rows(document: str) -> None:
    assert any(row.section.startswith(f"{document} / ") for row in ROWS)


def test_every_row_belongs_to_a_section_of_a_document() -> None:
    sections = [(document, separator) for document, separator, _ in (row.section.partition(" / ") for row in ROWS)]
    assert {document for document, _ in sections} == {*DOCUMENTS}
    assert all(separator for _, separator in sections)


def test_no_section_says_the_same_twice() -> None:
    statements = [(row.section, row.statement) for row in ROWS]
    assert len(set(statements)) == len(statements), {each for each in statements if statements.count(each) > 1}


PLACE = "`src/ottla/broker/requests/dispatch.py:Dispatch.handle`"
TEST = "`tests/test_conformance.py::test_no_section_says_the_same_twice`"


@pytest.mark.parametrize(
    ("statement", "where", "test", "problem"),
    [
        ("a", PLACE, TEST, ""),
        ("a", f"{PLACE}<br>{PLACE}", f"{TEST}<br>{TEST}", ""),
        ("", PLACE, TEST, "there is no statement"),
        ("a", "", TEST, "'' is not a place"),
        ("a", PLACE, "", "'' is not a test"),
        (
            "a",
            "`src/ottla/broker/requests/dispatch.py:Gone`",
            TEST,
            "there is no Gone in src/ottla/broker/requests/dispatch.py",
        ),
        ("a", "`src/ottla/gone.py:f`", TEST, "there is no f in src/ottla/gone.py"),
        ("a", PLACE, "`tests/gone.py::test_f`", "there is no test_f in tests/gone.py"),
        ("a", NOT_YET, NOT_YET, f"only ZooKeeper mode may be {NOT_YET}"),
    ],
)
def test_what_is_wrong_with_a_row_is_found(statement: str, where: str, test: str, problem: str) -> None:
    (row,) = rows_of(f"## The controller\n### A section\n| {statement} | {where} | {test} | |")
    assert problems_of(row) == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("where", "test", "problem"),
    [
        (NOT_YET, NOT_YET, ""),
        (PLACE, NOT_YET, "the place and the test must both be there, or neither"),
        ("", TEST, "'' is not a place"),
    ],
)
def test_a_row_of_zookeeper_mode_may_be_left_open_as_a_whole(where: str, test: str, problem: str) -> None:
    (row,) = rows_of(f"## The controller\n### A section {ZOOKEEPER_MODE}\n| a | {where} | {test} | |")
    assert problems_of(row) == ([problem] if problem else [])
