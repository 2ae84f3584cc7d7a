from collections.abc import Callable
from typing import Any

from ottla.protocol.wire.declare import Reader, Writer
from ottla.protocol.wire.types import Chunk

class Plan:
    def __new__(
        cls,
        of: type,
        is_flexible: bool,
        plain: tuple[tuple[Any, ...], ...],
        tagged: tuple[tuple[Any, ...], ...],
        absent: tuple[tuple[Any, ...], ...],
        slow_read: Reader,
        slow_write: Writer,
        /,
    ) -> Plan: ...
    def read(self, view: memoryview, position: int, /) -> tuple[Any, int]: ...
    def write(self, message: Any, add: Callable[[Chunk], None], /) -> None: ...
