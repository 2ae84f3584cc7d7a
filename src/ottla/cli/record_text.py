"""Converts records to and from lines of text and lines of JSON.

In JSON, UTF-8 bytes are a string, other bytes `{"base64": "..."}`. `ottla produce --format json` reads what
`ottla consume --format json` prints.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.cli.output import show_time
from ottla.protocol.wire.records import Record


class MalformedLine(ValueError):
    """A line is not a record; the message says why."""


class Line(NamedTuple):
    """A record to produce."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


def to_json(content: bytes | None) -> Any:
    """Return bytes as a JSON value."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def from_json(value: Any) -> bytes | None:
    """Return the bytes of a JSON value: a string, base64 or null; any other value stays JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise MalformedLine(f"not base64: {error}") from None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def header_name(name: str) -> str:
    """Return a header's name without lone surrogates, which stand for bytes that are not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def record_json(record: Record, **around: object) -> str:
    """Return a record as one line of JSON."""
    return json.dumps(
        {
            **around,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": to_json(record.key),
            "value": to_json(record.value),
            "headers": [{"name": header_name(name), "value": to_json(value)} for name, value in record.headers],
        },
        ensure_ascii=False,
    )


def readable(content: bytes | None) -> str:
    """Return bytes on one line; unprintable characters are escaped."""
    if content is None:
        return "null"
    text = content.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def record_text(record: Record) -> str:
    """Return a record on one line: time, key, value, headers."""
    line = f"{show_time(record.timestamp)}  {readable(record.key)}  {readable(record.value)}"
    if record.headers:
        line += "  " + " ".join(f"{header_name(name)}={readable(value)}" for name, value in record.headers)
    return line


def parse_json(line: bytes) -> Line:
    """Parse a JSON object with key, value, headers and timestamp, each of which is optional."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise MalformedLine(f"invalid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise MalformedLine("expected a JSON object with a key and a value")
    timestamp = fields.get("timestamp")
    if timestamp is not None and (not isinstance(timestamp, int) or timestamp < 0):
        raise MalformedLine(f"timestamp {timestamp!r} must be a number of milliseconds")
    return Line(
        from_json(fields.get("key")), from_json(fields.get("value")), _json_headers(fields.get("headers")), timestamp
    )


def _json_headers(headers: Any) -> list[tuple[str, bytes | None]]:
    if isinstance(headers, dict):
        return [(name, from_json(value)) for name, value in headers.items()]
    try:
        return [(str(header["name"]), from_json(header.get("value"))) for header in headers or ()]
    except (TypeError, KeyError, AttributeError):
        raise MalformedLine("headers must be a list of objects with a name and a value") from None


def parse_text(
    line: bytes,
    *,
    key: bytes | None,
    key_separator: bytes | None,
    headers: bool,
    null: bytes | None,
    more_headers: Iterable[tuple[str, bytes | None]] = (),
) -> Line:
    """Parse a line of text: headers `a=1,b=2` and a tab if `headers`, the key and its separator, the value."""
    all_headers = list(more_headers)
    if headers:
        listed, tab, line = line.partition(b"\t")
        if not tab:
            raise MalformedLine("no tab after the headers")
        for header in filter(None, listed.split(b",")):
            name, equals, content = header.partition(b"=")
            all_headers.append((name.decode("utf-8", "surrogateescape"), content if equals else None))
    value: bytes | None = line
    if key_separator is not None:
        key, separator, value = line.partition(key_separator)
        if not separator:
            raise MalformedLine(f"no {readable(key_separator)!r} after the key")
    if null is not None:
        key = None if key == null else key
        value = None if value == null else value
    return Line(key, value, all_headers)
