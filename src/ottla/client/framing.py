"""The sizes in front of answers: what they are, and when what comes is no answer."""

import struct
from typing import Final

from ottla.protocol.wire.errors import ProtocolError

LENGTH: Final = struct.Struct(">i")
_TLS_ALERT: Final = b"\x15\x03"


def answer_size(head: bytes | memoryview) -> int:
    """The bytes of the answer behind these four; raises ProtocolError where none can follow."""
    size: int = LENGTH.unpack(head)[0]
    if bytes(head[:2]) == _TLS_ALERT:
        raise ProtocolError("the node answers in TLS; is security.protocol right?")
    if size < LENGTH.size:
        raise ProtocolError(f"an answer of {size} bytes")
    return size
