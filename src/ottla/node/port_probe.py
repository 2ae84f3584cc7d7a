"""Whether anything listens where a node was: a process that died refuses connections, at once.

A process that is dying closes its sockets one after the other. Whoever knocks because a connection has ended may still
be let in by the socket that the process listened on, and is thrown out when that is closed too: so it counts only if
one may stay for a moment.
"""

from __future__ import annotations

import asyncio
from typing import Final

_TIMEOUT_S: Final = 1.0
_STAY_S: Final = 0.05
_TRIES: Final = 3
"""A node that throws everybody out is there: it may have too many connections."""


async def is_refused(host: str, port: int) -> bool | None:
    """True where connections are refused, False where one is accepted; None where that cannot be told."""
    for _ in range(_TRIES):
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return None
        try:
            if await _may_stay(reader):
                break
        finally:
            writer.close()
    return False


async def _may_stay(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(_STAY_S):
            await reader.read(1)
    except TimeoutError:
        return True
    except ConnectionError:
        pass
    return False
