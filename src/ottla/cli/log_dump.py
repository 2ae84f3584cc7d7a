"""`ottla log dump`: print and verify the batches and records in segment files, without a broker.

It verifies the header and CRC of each batch, that offsets increase from the file's base offset, and that the records
match their batch. A damaged file is printed up to the damage; the other files follow, and the exit code is 1.
"""

import argparse
import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.cli.command import CommandFailed
from ottla.cli.output import counted, show_time

if TYPE_CHECKING:
    from ottla.protocol.wire.batch import BatchHeader
    from ottla.protocol.wire.records import Record

EXAMPLES = """examples:
  ottla log dump /var/lib/ottla/orders-0
  ottla log dump orders-0/00000000000000000000.log --records
  ottla log dump __cluster_metadata-0 --records --json"""

_SEGMENT = re.compile(r"(\d{20})(\.log|(?:-\d{10})?\.checkpoint)$")
_METADATA = "__cluster_metadata-0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="a segment's .log file, or a directory with segments")
    parser.add_argument("-r", "--records", action="store_true", help="show the records in each batch")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each batch")


def run(arguments: argparse.Namespace) -> None:
    from ottla.protocol.wire.errors import ProtocolError
    from ottla.storage.log.scan import CorruptLog

    files = [file for path in arguments.paths for file in _files(path)]
    damaged = 0
    for file in files:
        try:
            _dump(file, arguments)
        except (CorruptLog, ProtocolError, OSError) as error:
            damaged += 1
            message = str(error) if file in str(error) else f"{file}: {error}"
            print(json.dumps({"file": file, "error": message}) if arguments.json else f"  DAMAGED: {message}")
    if damaged:
        raise CommandFailed(f"{damaged} of {counted(len(files), 'file')} damaged")


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):  # noqa: PTH112 (paths are text in the log)
        if not os.path.exists(path):  # noqa: PTH110
            raise CommandFailed(f"{path} does not exist")
        return [path]
    files = sorted(
        os.path.join(folder, name)  # noqa: PTH118
        for folder, _, names in os.walk(path)
        for name in names
        if _SEGMENT.fullmatch(name)
    )
    if not files:
        raise CommandFailed(f"{path} contains no segment files (00000000000000000000.log)")
    return files


def _dump(path: str, arguments: argparse.Namespace) -> None:
    if not arguments.json:
        print(path)
    is_metadata = _METADATA in os.path.abspath(path)  # noqa: PTH100
    batches, records = 0, 0
    for position, header, contents in _batches(path):
        batches, records = batches + 1, records + len(contents)
        shown = [_record(header, record, metadata=is_metadata) for record in contents] if arguments.records else []
        if arguments.json:
            print(json.dumps(_batch_json(path, position, header) | ({"records": shown} if shown else {})))
            continue
        print(f"  {_batch_text(position, header)}")
        for record in shown:
            print("    " + _record_text(record))
    if not arguments.json:
        print(f"  {counted(batches, 'batch').replace('batchs', 'batches')}, {counted(records, 'record')}, no damage")


def _batches(path: str) -> "Iterator[tuple[int, BatchHeader, list[Record]]]":
    """Yield each verified batch with its position and its records."""
    from ottla.protocol.wire.records import read_records
    from ottla.storage.disk import SystemDisk
    from ottla.storage.log.scan import CorruptLog, scan_batches

    file = os.open(path, os.O_RDONLY)
    try:
        named = _SEGMENT.search(path)
        expected = int(named[1]) if named and named[2] == ".log" else 0
        for position, header, block, start in scan_batches(SystemDisk(), file, path, 0, os.fstat(file).st_size):
            if header.base_offset < expected:
                raise CorruptLog(path, position, f"offset {header.base_offset} is below the expected {expected}")
            expected = header.next_offset
            yield position, header, list(read_records(block, start, header))
    finally:
        os.close(file)


def _batch_text(position: int, header: "BatchHeader") -> str:
    parts = [
        f"{header.base_offset}-{header.last_offset}",
        counted(header.record_count, "record"),
        f"{header.size_bytes:,} bytes at {position}",
        header.compression.name.lower() if header.compression else "uncompressed",
        f"{show_time(header.max_timestamp)} ({header.timestamp_type.name.lower().replace('_', ' ')} time)",
        f"epoch {header.leader_epoch}",
    ]
    if header.has_producer_id:
        parts.append(f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}")
    parts += [
        word for word, holds in (("transactional", header.is_transactional), ("control", header.is_control)) if holds
    ]
    return ", ".join(parts)


def _batch_json(path: str, position: int, header: "BatchHeader") -> dict[str, Any]:
    return {
        "file": path,
        "position": position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "compression": header.compression.name.lower(),
        "timestamp_type": header.timestamp_type.name.lower(),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon": header.delete_horizon,
        "crc": header.crc,
    }


def _record(header: "BatchHeader", record: "Record", *, metadata: bool) -> dict[str, Any]:
    from ottla.cli.record_text import record_json
    from ottla.protocol.wire.control import control_type

    shown: dict[str, Any] = json.loads(record_json(record))
    if header.is_control:
        return {"offset": record.offset, "timestamp": record.timestamp, "control": control_type(record).name.lower()}
    if metadata and record.value is not None:
        from ottla.metadata.image.encoding import decode_record

        message, version = decode_record(record.value)
        return {"offset": record.offset, "timestamp": record.timestamp, "message": repr(message), "version": version}
    return shown


def _record_text(shown: dict[str, Any]) -> str:
    start = f"{shown['offset']}  {show_time(shown['timestamp'])}"
    if "control" in shown:
        return f"{start}  {shown['control']} marker"
    if "message" in shown:
        return f"{start}  {shown['message']}"
    headers = "".join(f"  {header['name']}={_one_line(header['value'])}" for header in shown["headers"])
    return f"{start}  {_one_line(shown['key'])}  {_one_line(shown['value'])}{headers}"


def _one_line(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value, ensure_ascii=False)
