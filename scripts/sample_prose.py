"""Print random sentences and names of the source tree for a reviewer to read aloud.

The default seed is the current commit, so that each revision shows other samples and anyone can print them again.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import subprocess
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COUNT = 30
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
HELP = {"help", "description", "epilog"}
UNREMARKABLE = {"self", "cls", "_", "__init__", "__slots__"}


class Sample(NamedTuple):
    """A sentence or a name, and where it is."""

    place: str
    kind: str
    text: str


def literal(node: ast.expr) -> str | None:
    """Return the text of a string literal; the values of an f-string are shown as `{…}`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{…}" for part in node.values)
    return None


def messages(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield the log lines, error messages and help texts of a module: line, kind, text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            yield node.lineno, "error", literal(node.exc.args[0]) or ""
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS and node.args:
                yield node.lineno, "log", literal(node.args[0]) or ""
            for keyword in node.keywords:
                if keyword.arg in HELP:
                    yield node.lineno, "help", literal(keyword.value) or ""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield the docstrings of a module, of its classes, functions and constants."""
    for node in ast.walk(tree):
        for child in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if isinstance(child, ast.Expr) and (text := literal(child.value)):
                yield child.lineno, "docstring", text


def comments(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield the comments of a module; neighbouring lines are one comment."""
    start, lines, last = 0, [], -2
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or re.match(r"#\s*(type:|noqa|!)", token.string):
            continue
        if token.start[0] != last + 1 and lines:
            yield start, "comment", " ".join(lines)
            lines = []
        if not lines:
            start = token.start[0]
        lines.append(re.sub(r"\s*#\s*(type:|noqa).*", "", token.string.lstrip("# ")))
        last = token.start[0]
    if lines:
        yield start, "comment", " ".join(lines)


def names(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield the names that a module defines: classes, functions, parameters and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.lineno, "class", node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, "function", node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, "parameter", node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, "variable", node.id


def sentences(text: str) -> list[str]:
    """Split a text into sentences."""
    flat = " ".join(text.split())
    return [part for part in re.split(r"(?<=[.:;!?])\s+(?=[A-Z`{])", flat) if len(part.split()) >= 3]


def current_commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", help="default: the current commit")
    parser.add_argument("--count", type=int, default=COUNT, help=f"number of sentences and of names (default: {COUNT})")
    options = parser.parse_args()
    seed = options.seed or current_commit()
    prose: dict[str, list[Sample]] = {}
    identifiers: list[Sample] = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text()
        tree = ast.parse(source)
        module = str(path.relative_to(ROOT / "src"))
        for line, kind, text in [*messages(tree), *docstrings(tree), *comments(source)]:
            prose.setdefault(kind, []).extend(Sample(f"{module}:{line}", kind, part) for part in sentences(text))
        identifiers += [
            Sample(f"{module}:{line}", kind, name) for line, kind, name in names(tree) if name not in UNREMARKABLE
        ]
    chooser = random.Random(seed)  # noqa: S311 (a choice that anyone can repeat)
    kinds = sorted(prose)
    shares = [options.count // len(kinds) + (index < options.count % len(kinds)) for index in range(len(kinds))]
    chosen = [
        sample for kind, share in zip(kinds, shares, strict=True) for sample in chooser.sample(prose[kind], share)
    ]
    print(f"{options.count} sentences and {options.count} names (scripts/sample_prose.py --seed {seed}):\n")
    for sample in sorted(chosen, key=lambda sample: (sample.kind, sample.place)):
        print(textwrap.fill(f"{sample.kind:9} {sample.text}  ({sample.place})", 140, subsequent_indent=" " * 10))
    print()
    for sample in sorted(chooser.sample(identifiers, options.count)):
        print(f"{sample.kind:9} {sample.text}  ({sample.place})")


if __name__ == "__main__":
    main()
