"""Messages as JSON for the request log: in Kafka's spelling, short, and without secrets.

Records and other bytes, which may be credentials, appear by their size, ids as Kafka prints them. Values of settings
that are or may be passwords are hidden. Long lists and texts are truncated.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any, Final

from ottla.config.settings.catalogue import broker_settings, group_settings, topic_settings
from ottla.protocol.wire.declare import Schema, schema_of
from ottla.protocol.wire.shape import Array, Blob, Member, Shape, Struct, Text, resolve
from ottla.protocol.wire.types import Fixed

_MAX_ITEMS: Final = 10
_MAX_TEXT: Final = 200
_shapes: dict[tuple[str, int], Struct] = {}
HIDDEN: Final = "(hidden)"
_SECRETS: Final = frozenset({"password", "secret", "hmac", "salt", "salted_password", "auth_bytes"})


def message_to_json(message: Any, version: int) -> Any:
    """Return a message as JSON-compatible values; None for None."""
    if message is None:
        return None
    return _struct(message, _shape_of(schema_of(type(message)), version))


def _shape_of(schema: Schema, version: int) -> Struct:
    """Return the shape of a message, from a cache."""
    shape = _shapes.get((schema.name, version))
    if shape is None:
        shape = _shapes[schema.name, version] = resolve(schema, version)
    return shape


def _struct(value: Any, struct: Struct) -> dict[str, Any]:
    shown = {}
    for member in (*struct.plain, *struct.tagged):
        shown[_camel(member.name)] = _member(value, member)
    return shown


def _member(holder: Any, member: Member) -> Any:
    value = getattr(holder, member.name)
    if value is not None and (member.name in _SECRETS or _is_setting_to_hide(holder, member.name)):
        return HIDDEN
    return _show(value, member.shape)


def _show(value: Any, shape: Shape) -> Any:
    if value is None:
        return None
    if isinstance(shape, Struct):
        return _struct(value, shape)
    if isinstance(shape, Array):
        items = [_show(item, shape.element) for item in value[:_MAX_ITEMS]]
        return items if len(value) <= _MAX_ITEMS else [*items, f"... {len(value) - _MAX_ITEMS} more"]
    if isinstance(shape, Text):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}... {len(value)} characters"
    if isinstance(shape, Blob):
        return {"sizeInBytes": len(value)}
    assert isinstance(shape, Fixed)
    return urlsafe_b64encode(value).rstrip(b"=").decode() if isinstance(value, bytes) else value


def _is_setting_to_hide(holder: Any, field: str) -> bool:
    """Return whether a field is the value of a sensitive or unknown setting."""
    if field != "value" or not {"name", "value"} <= schema_of(type(holder)).fields.keys():
        return False
    for settings in (topic_settings(), broker_settings(), group_settings()):
        if holder.name in settings:
            return settings[holder.name].is_sensitive
    return True


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
