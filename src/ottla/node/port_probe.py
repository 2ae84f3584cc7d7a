"""Probes whether a process still listens on a port: the system refuses connections to a process that died.

A dying process closes its sockets one after the other. A probe that starts because a connection closed may still be
accepted by the listening socket and then reset when that socket closes too. So a connection counts only if it stays
open for a moment.
"""

from __future__ import annotations

import asyncio
from typing import Final

_TIMEOUT_S: Final = 1.0
_STABLE_S: Final = 0.05
_TRIES: Final = 3
"""A node that accepts and closes each connection is alive: it may have reached its connection limit."""


async def is_refused(host: str, port: int) -> bool | None:
    """Return True if the port refuses connections, False if it accepts them, None if neither happens."""
    for _ in range(_TRIES):
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return None
        try:
            if await _stays_open(reader):
                break
        finally:
            writer.close()
    return False


async def _stays_open(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(_STABLE_S):
            await reader.read(1)
    except TimeoutError:
        return True
    except ConnectionError:
        pass
    return False
