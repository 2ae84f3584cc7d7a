"""A Java process that answers with Kafka's own classes: messages, record batches, compression.

`JavaPeer` starts the process, sends it questions and ends it; all tests of a pytest process share the fixture
`java_peer`. An exception in Java becomes a `JavaError`, or the `error` of a round trip; `PeerDiedError` means that the
Java process itself failed.

A message's JSON follows Kafka's converters: camelCase names, only the fields of the version, tagged fields only if they
differ from their default, bytes as base64, UUIDs in Kafka's 22 letters, "NaN" and "Infinity" as strings. A record batch
appears only as its size (`recordsSizeInBytes` for a field `records`); the rewritten bytes show the rest. Unknown tagged
fields are kept in the bytes, not in the JSON.
"""

import json
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, Unpack

from bench.harness.kafka_jars import class_path, java

from tests.conformance.interop.peer_batches import (
    DEFAULT_OPTIONS,
    BatchOptions,
    PeerBatch,
    PeerRecord,
    parse_batch,
    show_record,
)

JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# Limits of one question, so that a small heap is enough.
QUESTION_ITEMS = 1000
QUESTION_BYTES = 4 << 20
ANSWER_TIMEOUT_S = 60
INT32 = struct.Struct(">i")


class JavaError(Exception):
    """An exception of Java: its class and message in the first line, then its stack trace."""


class PeerDiedError(Exception):
    """The Java process ended or did not answer in time."""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """A message as Java rewrote it, with its JSON; or the error that Java threw, without either."""

    name: str
    version: int
    data: bytes = b""
    json: str = ""
    error: str | None = None

    @property
    def value(self) -> Any:
        """The JSON, parsed."""
        if self.error is not None:
            raise JavaError(f"{self.name} v{self.version}: {self.error}")
        return json.loads(self.json)


@dataclass(frozen=True, slots=True)
class MessageClass:
    class_name: str
    lowest: int
    highest: int


class JavaPeer:
    """The Java process, as a context manager. Not for use by several threads at once."""

    def __init__(self) -> None:
        command = [str(java()), *JVM_OPTIONS, "-cp", class_path(), "Peer"]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process by closing its input, and kill it if it does not exit."""
        try:
            self._process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._errors.close()

    def messages(self) -> dict[str, MessageClass]:
        """Return every message class of Kafka by its simple name."""
        texts = [text.decode() for text in self._ask("MESSAGES")]
        rows = zip(texts[::4], texts[1::4], texts[2::4], texts[3::4], strict=True)
        return {name: MessageClass(full, int(lowest), int(highest)) for name, full, lowest, highest in rows}

    def defaults(self, items: Sequence[tuple[str, int]]) -> list[RoundTrip]:
        """Return messages of the given names and versions with no field set."""
        return self._messages("DEFAULT", [(name, version, b"") for name, version in items])

    def roundtrip(self, items: Sequence[tuple[str, int, bytes]]) -> list[RoundTrip]:
        """Let Java read messages (simple class name, version, bytes) and write them again, each separately."""
        return self._messages("ROUNDTRIP", items)

    def read_batches(self, data: bytes) -> list[PeerBatch]:
        """Return all complete record batches; the sum of `size_bytes` shows whether bytes are left over."""
        return [parse_batch(json.loads(line)) for line in self._ask("BATCH_READ", data)]

    def write_batch(self, records: Sequence[PeerRecord], **options: Unpack[BatchOptions]) -> bytes:
        """Return a record batch; without records, only a header as compaction leaves it."""
        batch = {**DEFAULT_OPTIONS, **options, "records": [show_record(record) for record in records]}
        return self._ask("BATCH_WRITE", json.dumps(batch).encode())[0]

    def write_marker(
        self,
        *,
        commit: bool,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        base_offset: int = 0,
        timestamp: int = 0,
        leader_epoch: int = -1,
    ) -> bytes:
        """Return the control batch that ends a transaction."""
        marker = {
            "commit": commit,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "coordinator_epoch": coordinator_epoch,
            "base_offset": base_offset,
            "timestamp": timestamp,
            "leader_epoch": leader_epoch,
        }
        return self._ask("MARKER_WRITE", json.dumps(marker).encode())[0]

    def compress(self, codec: str, data: bytes, *, level: int | None = None, magic: int = 2) -> bytes:
        """Return the bytes as a record batch of that codec (none, gzip, snappy, lz4, zstd) has them."""
        level_text = "" if level is None else str(level)
        return self._ask("COMPRESS", codec.encode(), level_text.encode(), str(magic).encode(), data)[0]

    def decompress(self, codec: str, data: bytes, *, magic: int = 2) -> bytes:
        return self._ask("DECOMPRESS", codec.encode(), str(magic).encode(), data)[0]

    def _messages(self, command: str, items: Sequence[tuple[str, int, bytes]]) -> list[RoundTrip]:
        results: list[RoundTrip] = []
        for part in split_items(items):
            questions = [[name.encode(), str(version).encode(), body] for name, version, body in part]
            for (name, version, _), result in zip(part, self._exchange(command, questions), strict=True):
                if isinstance(result, JavaError):
                    results.append(RoundTrip(name, version, error=str(result)))
                else:
                    results.append(RoundTrip(name, version, result[0], result[1].decode()))
        return results

    def _ask(self, command: str, *fields: bytes) -> list[bytes]:
        result = self._exchange(command, [fields])[0]
        if isinstance(result, JavaError):
            raise result
        return result

    def _exchange(self, command: str, items: Sequence[Sequence[bytes]]) -> list[list[bytes] | JavaError]:
        """Send one question, and return the fields or the error of each item."""
        question = bytearray(length_prefixed(command.encode()) + INT32.pack(len(items)))
        for item in items:
            question += INT32.pack(len(item))
            for part in item:
                question += length_prefixed(part)
        assert self._process.stdin is not None
        watchdog = threading.Timer(ANSWER_TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(INT32.pack(len(question)) + question)
            self._process.stdin.flush()
            return parse_answer(self._receive(INT32.unpack(self._receive(4))[0]))
        except (OSError, EOFError) as error:
            raise PeerDiedError(self._kill_and_report()) from error
        finally:
            watchdog.cancel()

    def _receive(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def _kill_and_report(self) -> str:
        self._process.kill()
        code = self._process.wait()
        self._errors.seek(0)
        log = self._errors.read()[-4000:].decode(errors="replace")
        return f"the Java peer exited with {code}; the end of its log:\n{log}"


def length_prefixed(data: bytes) -> bytes:
    return INT32.pack(len(data)) + data


def parse_answer(answer: bytes) -> list[list[bytes] | JavaError]:
    position = 4
    results: list[list[bytes] | JavaError] = []
    for _ in range(*INT32.unpack_from(answer)):
        failed, count = struct.unpack_from(">bi", answer, position)
        position += 5
        fields = []
        for _ in range(count):
            end = position + 4 + INT32.unpack_from(answer, position)[0]
            fields.append(answer[position + 4 : end])
            position = end
        results.append(JavaError(fields[0].decode()) if failed else fields)
    return results


def split_items(items: Sequence[tuple[str, int, bytes]]) -> Iterator[list[tuple[str, int, bytes]]]:
    """Split the items into pieces small enough for one question."""
    part: list[tuple[str, int, bytes]] = []
    size = 0
    for item in items:
        if part and (len(part) == QUESTION_ITEMS or size + len(item[2]) > QUESTION_BYTES):
            yield part
            part, size = [], 0
        part.append(item)
        size += len(item[2])
    if part:
        yield part
