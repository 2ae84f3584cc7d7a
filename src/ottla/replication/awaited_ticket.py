"""A ticket for a coroutine that waits for the answer."""

import asyncio
from typing import Any

from ottla.protocol.errors import ApiError


class AwaitedTicket:
    """Passes the first answer or failure to a future, and ignores any later one."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future

    def answer(self, response: Any, /) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def fail(self, error: ApiError, /) -> None:
        if not self.future.done():
            self.future.set_exception(error)
