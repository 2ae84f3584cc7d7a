"""A Java process that answers with Kafka's own classes: messages, record batches, compression.

`JavaPeer` starts it, asks it and ends it; the fixture `java_peer` of this folder shares one among all tests of a
process. What Java throws comes back as `JavaError`, or as the `error` of one round trip; `PeerDiedError` means that the
process itself failed.

A message's JSON follows Kafka's converters: camelCase names, only the fields of the version, tagged fields only when
not at their default, bytes as base64, UUIDs in Kafka's 22 letters, "NaN" and "Infinity" as strings. Record batches are
shown by their size only (`recordsSizeInBytes` for a field `records`); the bytes written again tell the rest. Unknown
tagged fields are kept in the bytes, not in the JSON.
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
# One question holds at most this much, so that the small heap suffices.
QUESTION_ITEMS = 1000
QUESTION_BYTES = 4 << 20
ANSWER_TIMEOUT_S = 60
INT32 = struct.Struct(">i")


class JavaError(Exception):
    """What Java threw: its class and message in the first line, then where."""


class PeerDiedError(Exception):
    """The Java process ended or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Roundtripped:
    """One message as Java wrote it again, with its JSON; or the error that Java threw, with neither."""

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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process: it leaves by itself when its input ends, and is killed if it does not."""
        try:
            self._process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._errors.close()

    def messages(self) -> dict[str, MessageClass]:
        """Every message class of Kafka by its simple name."""
        texts = [text.decode() for text in self._ask("MESSAGES")]
        rows = zip(texts[::4], texts[1::4], texts[2::4], texts[3::4], strict=True)
        return {name: MessageClass(full, int(lowest), int(highest)) for name, full, lowest, highest in rows}

    def defaults(self, items: Sequence[tuple[str, int]]) -> list[Roundtripped]:
        """Messages with nothing set, of the given names and versions."""
        return self._messages("DEFAULT", [(name, version, b"") for name, version in items])

    def roundtrip(self, items: Sequence[tuple[str, int, bytes]]) -> list[Roundtripped]:
        """Read messages (simple class name, version, bytes) and write them again, each on its own."""
        return self._messages("ROUNDTRIP", items)

    def read_batches(self, data: bytes) -> list[PeerBatch]:
        """All complete record batches; sum `size_bytes` to see whether something was left."""
        return [parse_batch(json.loads(line)) for line in self._ask("BATCH_READ", data)]

    def write_batch(self, records: Sequence[PeerRecord], **options: Unpack[BatchOptions]) -> bytes:
        """One record batch; without records its bare header, as compaction leaves it."""
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
        """The control batch that ends a transaction."""
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
        """The bytes as a record batch of that codec (none, gzip, snappy, lz4, zstd) holds them."""
        shown = "" if level is None else str(level)
        return self._ask("COMPRESS", codec.encode(), shown.encode(), str(magic).encode(), data)[0]

    def decompress(self, codec: str, data: bytes, *, magic: int = 2) -> bytes:
        return self._ask("DECOMPRESS", codec.encode(), str(magic).encode(), data)[0]

    def _messages(self, command: str, items: Sequence[tuple[str, int, bytes]]) -> list[Roundtripped]:
        done: list[Roundtripped] = []
        for part in parts(items):
            asked = [[name.encode(), str(version).encode(), body] for name, version, body in part]
            for (name, version, _), result in zip(part, self._exchange(command, asked), strict=True):
                if isinstance(result, JavaError):
                    done.append(Roundtripped(name, version, error=str(result)))
                else:
                    done.append(Roundtripped(name, version, result[0], result[1].decode()))
        return done

    def _ask(self, command: str, *fields: bytes) -> list[bytes]:
        result = self._exchange(command, [fields])[0]
        if isinstance(result, JavaError):
            raise result
        return result

    def _exchange(self, command: str, items: Sequence[Sequence[bytes]]) -> list[list[bytes] | JavaError]:
        """Send one question and take its answer: the fields, or the error, of each item."""
        question = bytearray(sized(command.encode()) + INT32.pack(len(items)))
        for item in items:
            question += INT32.pack(len(item))
            for part in item:
                question += sized(part)
        assert self._process.stdin is not None
        watchdog = threading.Timer(ANSWER_TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(INT32.pack(len(question)) + question)
            self._process.stdin.flush()
            return parse_answer(self._receive(INT32.unpack(self._receive(4))[0]))
        except (OSError, EOFError) as error:
            raise PeerDiedError(self._last_words()) from error
        finally:
            watchdog.cancel()

    def _receive(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def _last_words(self) -> str:
        self._process.kill()
        code = self._process.wait()
        self._errors.seek(0)
        return (
            f"the Java peer ended with {code}; its last words:\n{self._errors.read()[-4000:].decode(errors='replace')}"
        )


def sized(data: bytes) -> bytes:
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


def parts(items: Sequence[tuple[str, int, bytes]]) -> Iterator[list[tuple[str, int, bytes]]]:
    """The items in pieces small enough for one question."""
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
