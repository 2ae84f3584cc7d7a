"""Whether anything listens where a node was: a process that died refuses connections, at once."""

from __future__ import annotations

import asyncio
from typing import Final

_TIMEOUT_S: Final = 1.0


async def is_refused(host: str, port: int) -> bool | None:
    """True where connections are refused, False where one is accepted; None where that cannot be told."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return None
    writer.close()
    return False
