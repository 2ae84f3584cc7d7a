r"""Java's properties files: `server.properties`, `meta.properties`.

Comments start with `#` or `!`; a key ends at the first `=`, `:` or blank that is not escaped; a backslash at the end
of a line continues it; `\t \n \r \f \uXXXX` are escapes, and a backslash before any other character means that
character. The last value of a repeated key counts. As in Kafka, bytes beyond ASCII are ISO 8859-1, not UTF-8.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_BLANKS = " \t\f"
_line_end = re.compile(r"\r\n|\n|\r")
_trailing_backslashes = re.compile(r"\\*\Z")
# The key, up to an unescaped separator: at most one `=` or `:`, with optional blanks around it.
_entry = re.compile(r"((?:[^\\=: \t\f]|\\.)*+)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_escape = re.compile(r"\\(u.{0,4}|.|\Z)", re.DOTALL)
_hexadecimal = re.compile(r"u[0-9a-fA-F]{4}").fullmatch
_surrogate_pair = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SHOWN = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"} | {sign: "\\" + sign for sign in "\\=:#!"}


class InvalidProperties(Exception):
    """A properties file that Java cannot read either. The message names the line."""


@dataclass(frozen=True, slots=True)
class Property:
    """A value and the line number of its key, from 1."""

    value: str
    line: int


def parse_properties(text: str | bytes) -> dict[str, Property]:
    """Parse a file into values and lines by key, in the file's order. Raise InvalidProperties."""
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
    """Return the text of a file, in ASCII, that Java reads as these values."""
    lines = [f"#{line}" for line in comment.splitlines()]
    lines += [f"{_show(key, is_key=True)}={_show(value, is_key=False)}" for key, value in values.items()]
    return "".join(line + "\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield numbered logical lines: continuations joined, without comments, blank lines and leading blanks."""
    start, joined, continues = 0, "", False
    lines = _line_end.split(text)
    if not lines[-1]:  # after the last line end
        lines.pop()
    for number, natural in enumerate(lines, 1):
        line = natural.lstrip(_BLANKS)
        if not joined:
            start, continues = number, False
            if not line or line[0] in "#!":
                continue
        backslashes = _trailing_backslashes.search(line)
        assert backslashes is not None
        continues = len(backslashes[0]) % 2 == 1
        if continues:
            joined += line[:-1]
        else:
            yield start, joined + line
            joined = ""
    if continues:  # the file ends in a backslash
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

    # Beyond the first 65,536 characters, Java writes two escapes for one character.
    return _surrogate_pair.sub(_joined, _escape.sub(character, text))


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def _show(text: str, *, is_key: bool) -> str:
    shown = "".join(_SHOWN.get(sign) or (sign if " " <= sign <= "~" else _show_beyond_ascii(sign)) for sign in text)
    if is_key:
        return shown.replace(" ", "\\ ")
    # A leading blank would be read as part of the separator.
    return "\\" + shown if shown.startswith(" ") else shown


def _show_beyond_ascii(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))
