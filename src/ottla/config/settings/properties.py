r"""Java's properties files: `server.properties`, `meta.properties`.

Comments start with `#` or `!`; a key ends at the first `=`, `:` or blank that is not escaped; a backslash at the end
of a line continues it; `\t \n \r \f \uXXXX` are escapes, and a backslash before anything else means just that. A key
given twice has its last value. As Kafka reads such files, bytes beyond ASCII are ISO 8859-1, not UTF-8.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_BLANKS = " \t\f"
_line_end = re.compile(r"\r\n|\n|\r")
_trailing_backslashes = re.compile(r"\\*\Z")
# The key, up to a separator that is not escaped; then one of `=` and `:` at most, with blanks around.
_entry = re.compile(r"((?:[^\\=: \t\f]|\\.)*+)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_escape = re.compile(r"\\(u.{0,4}|.|\Z)", re.DOTALL)
_hexadecimal = re.compile(r"u[0-9a-fA-F]{4}").fullmatch
_surrogate_pair = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SHOWN = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"} | {sign: "\\" + sign for sign in "\\=:#!"}


class InvalidProperties(Exception):
    """A properties file that Java could not read either; names the line."""


@dataclass(frozen=True, slots=True)
class Property:
    """A value, and the line on which its key stands, counted from 1."""

    value: str
    line: int


def parse_properties(text: str | bytes) -> dict[str, Property]:
    """Key → value and line, in the file's order; raises InvalidProperties."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    properties: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        entry = _entry.match(line)
        assert entry is not None  # an empty key is a key
        key, value = _unescape(entry[1], number), _unescape(line[entry.end() :], number)
        properties.pop(key, None)
        properties[key] = Property(value, number)
    return properties


def show_properties(values: Mapping[str, str], *, comment: str = "") -> str:
    """A file that Java reads as these values, in ASCII whatever they hold."""
    lines = [f"#{line}" for line in comment.splitlines()]
    lines += [f"{_show(key, is_key=True)}={_show(value, is_key=False)}" for key, value in values.items()]
    return "".join(line + "\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their number, continuations joined, without comments, blank lines and blanks in front."""
    start, joined, goes_on = 0, "", False
    lines = _line_end.split(text)
    if not lines[-1]:  # what follows the last line's end
        lines.pop()
    for number, natural in enumerate(lines, 1):
        line = natural.lstrip(_BLANKS)
        if not joined:
            start, goes_on = number, False
            if not line or line[0] in "#!":
                continue
        backslashes = _trailing_backslashes.search(line)
        assert backslashes is not None
        goes_on = len(backslashes[0]) % 2 == 1
        if goes_on:
            joined += line[:-1]
        else:
            yield start, joined + line
            joined = ""
    if goes_on:  # the file ends in a backslash
        yield start, joined


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if not code.startswith("u"):
            return _CONTROLS.get(code, code)
        if not _hexadecimal(code):
            raise InvalidProperties(f"line {line}: \\{code} is not an escape: \\u needs four hexadecimal digits")
        return chr(int(code[1:], 16))

    # Java's characters are half of what lies beyond the first 65,536: two escapes make one.
    return _surrogate_pair.sub(_joined, _escape.sub(character, text))


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def _show(text: str, *, is_key: bool) -> str:
    shown = "".join(_SHOWN.get(sign) or (sign if " " <= sign <= "~" else _show_beyond_ascii(sign)) for sign in text)
    if is_key:
        return shown.replace(" ", "\\ ")
    # Blanks in front of a value would be taken for a part of the separator.
    return "\\" + shown if shown.startswith(" ") else shown


def _show_beyond_ascii(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))
