"""Decodes values in Protocol Buffers: protobuf's compiled parser reads messages, which become columns field by field.

A schema is a set of file descriptors (`protoc --include_imports --descriptor_set_out`), or comes from a registry.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from ottla.spark.connector.option_values import OptionError
from ottla.spark.connector.registry import BadFrame, Registry, unframe

_KINDS: Final[Mapping[int, pa.DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    # Spark has no unsigned integers, and the largest uint64 has 20 digits.
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"
Errors = dict[int, str]


class ProtobufDecoder:
    """Decodes messages of one type, with or without a registry's frame."""

    def __init__(self, files: bytes, message: str | None, registry: Registry | None) -> None:
        pool, names = _pool(files)
        self._registry = registry
        self._message = _find_message(pool, names, message)
        self._class = message_factory.GetMessageClass(self._message)
        self._indexes = _message_indexes(self._message)
        self.type = arrow_type(self._message, "value", ())

    def decode(self, values: pa.Array) -> tuple[pa.Array, Errors]:
        """Return the decoded values, with null for bad ones, and the errors by row."""
        messages: list[Any] = []
        errors: Errors = {}
        for row, value in enumerate(values.to_pylist()):
            message = None
            if value is not None:
                try:
                    message = self._class.FromString(value if self._registry is None else self._unframe(value))
                except (DecodeError, BadFrame) as error:
                    errors[row] = str(error) or f"not a message {self._message.full_name}"
            messages.append(message)
        return _struct(messages, self._message, self.type), errors

    def _unframe(self, value: bytes) -> bytes:
        """Return the message without the schema id and the message indexes in front of it."""
        _, content = unframe(value)
        count, position = _read_varint(content, 0)
        indexes = []
        for _ in range(count):
            index, position = _read_varint(content, position)
            indexes.append(index)
        indexes = indexes or [0]
        if indexes != self._indexes:
            raise BadFrame(
                f"it is message {indexes} of its schema, and {self._message.full_name} is message {self._indexes}"
            )
        return content[position:]


def _message_indexes(message: Descriptor) -> list[int]:
    """Return the index of a message in its file, after the indexes of the messages that contain it."""
    container = message.containing_type
    if container is not None:
        return [*_message_indexes(container), [nested.name for nested in container.nested_types].index(message.name)]
    file = descriptor_pb2.FileDescriptorProto()
    message.file.CopyToProto(file)
    return [[top_level.name for top_level in file.message_type].index(message.name)]


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag-encoded number and the position after it."""
    result = shift = 0
    while True:
        if position >= len(content) or shift > 28:
            raise BadFrame("the message indexes in front of the value are malformed")
        byte = content[position]
        position += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position


def read_descriptors(text: str) -> bytes:
    """Return a set of file descriptors from base64 or from the file at a path; raise OptionError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    try:
        return Path(text).read_bytes()
    except (OSError, ValueError) as error:
        raise OptionError(
            "value.schema",
            "is neither the path of a descriptor set nor one in base64; write one with "
            "protoc --include_imports --descriptor_set_out",
        ) from error


def _pool(files: bytes) -> tuple[descriptor_pool.DescriptorPool, list[str]]:
    """Return the types of a descriptor set, or of a single file descriptor, and the message names of the last file."""
    pool = descriptor_pool.DescriptorPool()
    for module in _well_known():
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    parsed = descriptor_pb2.FileDescriptorSet()
    try:
        parsed.ParseFromString(files)
        if not all(file.name for file in parsed.file) or not parsed.file:
            raise DecodeError("not a set")
        files_in_set = list(parsed.file)
    except DecodeError:
        single = descriptor_pb2.FileDescriptorProto()
        try:
            single.ParseFromString(files)
        except DecodeError as error:
            raise OptionError("value.schema", f"is not a set of file descriptors: {error}") from error
        files_in_set = [single]
    try:
        for file in files_in_set:
            if not file.name.startswith("google/protobuf/"):
                pool.Add(file)
    except TypeError as error:
        raise OptionError("value.schema", f"has files that do not fit together: {error}") from error
    last = files_in_set[-1]
    return pool, [f"{last.package}.{message.name}" if last.package else message.name for message in last.message_type]


def _well_known() -> Sequence[Any]:
    from google.protobuf import any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    return timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2, any_pb2, empty_pb2


def _find_message(pool: descriptor_pool.DescriptorPool, names: Sequence[str], message: str | None) -> Descriptor:
    if message is None and not names:
        raise OptionError("value.schema", "has no message in its last file; name one by value.message")
    try:
        return pool.FindMessageTypeByName(message or names[0])
    except KeyError:
        problem = f"the schema has no message {message!r}; its messages are {', '.join(names)}"
        raise OptionError("value.message", problem) from None


def arrow_type(message: Descriptor, path: str, above: Sequence[str]) -> pa.DataType:
    """Return the column type of a message; raise OptionError for one that contains itself."""
    if message.full_name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if message.full_name in above:
        raise OptionError(
            "value.schema", f"column {path}: {message.full_name} contains itself, so it has no column type"
        )
    inner = (*above, message.full_name)
    return pa.struct([(field.name, _field_type(field, f"{path}.{field.name}", inner)) for field in message.fields])


def _field_type(field: FieldDescriptor, path: str, above: Sequence[str]) -> pa.DataType:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return pa.map_(_single_type(key, path, above), _single_type(value, path, above))
    one = _single_type(field, path, above)
    return pa.list_(one) if field.is_repeated else one


def _single_type(field: FieldDescriptor, path: str, above: Sequence[str]) -> pa.DataType:
    if field.message_type is not None:
        return arrow_type(field.message_type, path, above)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    return _KINDS[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _struct(messages: Sequence[Any], message: Descriptor, wanted: pa.DataType) -> pa.Array:
    """Return messages, with None for null, as a column."""
    if message.full_name == _TIMESTAMP:
        times = [None if m is None else m.seconds * 1_000_000 + m.nanos // 1000 for m in messages]
        return pa.array(times, pa.int64()).cast(wanted)
    absent = pa.array([m is None for m in messages], pa.bool_())
    columns = [_column(messages, field, wanted.field(field.name).type) for field in message.fields]
    if not columns:
        return pa.array([None if m is None else {} for m in messages], wanted)
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=absent)


def _column(messages: Sequence[Any], field: FieldDescriptor, wanted: pa.DataType) -> pa.Array:
    name = field.name
    if _is_map(field):
        entry = field.message_type.fields_by_name["value"]
        pairs = [None if m is None else [(k, _plain(v, entry)) for k, v in getattr(m, name).items()] for m in messages]
        return pa.array(pairs, wanted)
    if field.is_repeated:
        lists = [None if m is None else getattr(m, name) for m in messages]
        if field.message_type is None:
            plain = [None if values is None else [_plain(v, field) for v in values] for values in lists]
            return pa.array(plain, wanted)
        ends: list[int] = [0]
        flat: list[Any] = []
        for values in lists:
            flat += values or []
            ends.append(len(flat))
        items = _struct(flat, field.message_type, wanted.value_type)
        mask = pa.array([values is None for values in lists], pa.bool_())
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type=wanted, mask=mask)
    if field.message_type is not None:
        inner = [None if m is None or not m.HasField(name) else getattr(m, name) for m in messages]
        return _struct(inner, field.message_type, wanted)
    if field.has_presence:
        given = [None if m is None or not m.HasField(name) else getattr(m, name) for m in messages]
    else:
        given = [None if m is None else getattr(m, name) for m in messages]
    if field.enum_type is not None:
        given = [None if value is None else _plain(value, field) for value in given]
    return pa.array(given, wanted)


def _plain(value: Any, field: FieldDescriptor) -> Any:
    """Convert a value for Arrow."""
    if field.enum_type is not None:
        member = field.enum_type.values_by_number.get(value)
        return member.name if member is not None else str(value)
    if field.message_type is not None:
        wanted = arrow_type(field.message_type, field.name, ())
        return _struct([value], field.message_type, wanted)[0].as_py()
    return value
