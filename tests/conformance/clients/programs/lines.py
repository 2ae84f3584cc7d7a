"""The protocol of client programs: one request and one answer per line, both in JSON.

The programs in Go and JavaScript use the same protocol. A request names its action: `write` and `read` records; `join`,
`poll`, `commit` and `leave` as a member of a group; `administer` a topic. Keys and values are in Base64; null is null.
"""

import json
import sys
import traceback
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, NamedTuple

LARGEST_BYTES = 16 << 20
TIMEOUT_S = 60


class Record(NamedTuple):
    """A record to write, or as read."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Request:
    """A request, with the fields of all actions."""

    do: str
    address: str = ""
    topic: str = ""
    codec: str = "none"
    records: tuple[Record, ...] = ()
    transactional_id: str = ""
    abort: bool = False
    offsets_of: str = ""
    """A group for which the transaction commits the number of written records as offset of partition 0."""
    partitions: int = 0
    count: int = 0
    committed: bool = False
    """Whether to read only committed records."""
    group: str = ""
    protocol: str = "classic"
    timeout_ms: int = 0
    trusted: str = ""
    """A file with the certificate of a certificate authority, for TLS."""
    mechanism: str = ""
    """The SASL mechanism, with user and password; the programs in Go and JavaScript support PLAIN and SCRAM."""
    user: str = ""
    password: str = ""


class Answer(NamedTuple):
    """The records read, the assigned partitions of a member, and the values that an admin client saw."""

    records: tuple[Record, ...] = ()
    assigned: tuple[int, ...] = ()
    seen: tuple[str, ...] = ()
    error: str = ""


class Client(ABC):
    """The actions of a client program."""

    @abstractmethod
    def write(self, request: Request) -> None:
        """Write the records, in a transaction if requested, and wait until they are acknowledged."""

    @abstractmethod
    def read(self, request: Request) -> list[Record]:
        """Read `count` records from the beginning of all partitions."""

    @abstractmethod
    def join(self, request: Request) -> None:
        """Become a member of a group that reads the topic from its beginning."""

    @abstractmethod
    def poll(self, request: Request) -> tuple[list[Record], list[int]]:
        """Return the records that were polled, and the assigned partitions."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the offsets of all polled records."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the group."""

    @abstractmethod
    def administer(self, request: Request) -> list[str]:
        """Create, change and delete a topic; return its retention before and after, and its partition count."""


def serve(client: Client) -> None:
    """Answer requests until the end of the input."""
    for line in sys.stdin.buffer:
        try:
            answer = _answer(client, request_of(json.loads(line)))
        except Exception:  # noqa: BLE001 - the test reports it
            answer = Answer(error=traceback.format_exc())
        sys.stdout.write(json.dumps(answer_fields(answer)) + "\n")
        sys.stdout.flush()


def _answer(client: Client, request: Request) -> Answer:
    match request.do:
        case "write":
            client.write(request)
        case "read":
            return Answer(tuple(client.read(request)))
        case "join":
            client.join(request)
        case "poll":
            records, assigned = client.poll(request)
            return Answer(tuple(records), tuple(assigned))
        case "commit":
            client.commit()
        case "leave":
            client.leave()
        case "administer":
            return Answer(seen=tuple(client.administer(request)))
    return Answer()


def request_of(fields: dict[str, Any]) -> Request:
    return Request(**{**fields, "records": tuple(record_of(record) for record in fields.get("records", ()))})


def request_fields(request: Request) -> dict[str, Any]:
    return {**vars(request), "records": [record_fields(record) for record in request.records]}


def answer_of(fields: dict[str, Any]) -> Answer:
    return Answer(
        records=tuple(record_of(record) for record in fields.get("records") or ()),
        assigned=tuple(fields.get("assigned") or ()),
        seen=tuple(fields.get("seen") or ()),
        error=fields.get("error") or "",
    )


def answer_fields(answer: Answer) -> dict[str, Any]:
    return {**answer._asdict(), "records": [record_fields(record) for record in answer.records]}


def record_of(fields: dict[str, Any]) -> Record:
    headers = tuple((header["key"], _bytes(header["value"])) for header in fields.get("headers") or ())
    return Record(fields["partition"], _bytes(fields["key"]), _bytes(fields["value"]), headers)


def record_fields(record: Record) -> dict[str, Any]:
    headers = [{"key": key, "value": _text(value)} for key, value in record.headers]
    return {
        "partition": record.partition,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": headers,
    }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()
