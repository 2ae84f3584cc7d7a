"""The house is tidy: sizes, leftovers, and what the documents claim about the tree."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "ottla").rglob("*.py"))
NATIVE_SOURCES = sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".c", ".h", ".java"))
EVERY_FILE = sorted(path for folder in ("src", "tests", "bench", "examples") for path in (ROOT / folder).rglob("*.py"))
DOCUMENTS = sorted(
    [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
)
FOLDERS = "tests|bench|src|examples|scripts|requirements"
ROOMS = "|".join(path.parent.name for path in (ROOT / "src" / "ottla").glob("*/__init__.py"))
MAX_FUNCTION_LINES = 60
REFUSED = (
    "told",
    "whoever",
    "anew",
    "what is none",
    "nought",
    "so many",
    "goes on with",
    "way on",
    "ended in order",
    "comes in by",
    "the last life",
)
"""Phrases that read like a translation; CONTRIBUTING.md says what to write instead."""


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_functions_are_short(path: Path) -> None:
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert not long


@pytest.mark.parametrize("path", EVERY_FILE, ids=relative)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert not text or ast.get_docstring(ast.parse(text)), f"{relative(path)} has no docstring"


def refused_phrases(text: str) -> list[str]:
    """Return the phrases of a text that no native engineer would write, each with its line."""
    pattern = re.compile(rf"\b(?:{'|'.join(REFUSED)})\b|\bis none\b", re.IGNORECASE)
    return [
        f"line {number}: {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in pattern.finditer(re.sub(r"`[^`]*`|\bis None\b", "", line))
    ]


def test_nothing_is_left_for_later() -> None:
    leftover = re.compile(r"\b(TODO|FIXME|XXX)\b")
    found = [relative(p) for p in EVERY_FILE if p != Path(__file__) and leftover.search(p.read_text())]
    assert not found


def test_the_room_table_of_the_architecture_is_true() -> None:
    rows = re.findall(r"^\| `(\w+)/` \|", (ROOT / "docs" / "architecture" / "index.md").read_text(), re.MULTILINE)
    folders = sorted(p.parent.name for p in (ROOT / "src" / "ottla").glob("*/__init__.py"))
    assert sorted(rows) == folders


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_files_that_the_documents_name_exist(document: Path) -> None:
    text = document.read_text()
    named = [ROOT / name for name in re.findall(rf"`((?:{FOLDERS})/[\w/.-]+\.\w+)`", text)]
    named += [ROOT / "src" / "ottla" / name for name in re.findall(rf"`((?:{ROOMS})/[\w/]+\.(?:py|c|java))`", text)]
    assert [relative(path) for path in named if not path.exists()] == []


@pytest.mark.parametrize("path", [*SOURCES, *NATIVE_SOURCES, *DOCUMENTS], ids=relative)
def test_prose_is_plain_english(path: Path) -> None:
    assert refused_phrases(path.read_text()) == []


def test_make_targets_that_the_readme_names_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`?make ([\w-]+)", (ROOT / "README.md").read_text()))
    assert named <= targets


def test_benchmarks_do_not_import_tests() -> None:
    importing = re.compile(r"^\s*(?:from|import) tests\b", re.MULTILINE)
    found = [relative(path) for path in (ROOT / "bench").rglob("*.py") if importing.search(path.read_text())]
    assert not found
