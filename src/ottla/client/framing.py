"""Reads the size of a response, and recognizes bytes that are not a response."""

import struct
from typing import Final

from ottla.protocol.wire.errors import ProtocolError

LENGTH: Final = struct.Struct(">i")
_TLS_ALERT: Final = b"\x15\x03"


def answer_size(head: bytes | memoryview) -> int:
    """Return the size of the response after these four bytes. Raise ProtocolError if they are not a size."""
    size: int = LENGTH.unpack(head)[0]
    if bytes(head[:2]) == _TLS_ALERT:
        raise ProtocolError("the node answered in TLS: check security.protocol")
    if size < LENGTH.size:
        raise ProtocolError(f"a response of {size} bytes is too short")
    return size
