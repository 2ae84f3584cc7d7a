"""Producer ids from blocks that the controller allocates, so that they are unique in the cluster.

The broker requests the next block before the current one is used up, so that producers do not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ottla.protocol.errors import ApiError, CoordinatorLoading, by_code
from ottla.protocol.messages.rpc.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

logger = logging.getLogger(__name__)

_WAIT_S: Final = 1.0
_RETRY_S: Final = 0.05
_LAST: Final = (1 << 63) - 1


class ProducerIds:
    """The producer ids that this broker may assign."""

    def __init__(
        self, broker_id: int, broker_epoch: Callable[[], int], ask_controller: Callable[[Any], Awaitable[Any]]
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._ask = ask_controller
        self._blocks: deque[range] = deque()
        self._prefetch_at = -1
        self._fetching: asyncio.Task[None] | None = None

    @property
    def has_any(self) -> bool:
        """Whether an id is available at once."""
        return bool(self._blocks)

    async def refill(self) -> None:
        """Request the next block, and wait for it up to a second."""
        await asyncio.wait([self._fetch()], timeout=_WAIT_S)

    def take(self) -> int | None:
        """Return the next id; None if none is available."""
        if not self._blocks:
            return None
        block = self._blocks[0]
        if len(block) > 1:
            self._blocks[0] = block[1:]
        else:
            self._blocks.popleft()
        if block[0] == self._prefetch_at:
            self._fetch()
        return block[0]

    async def wait(self) -> int:
        """Return the next id, and wait for a new block if necessary; raise CoordinatorLoading after a second."""
        # Other waiting producers may use up the block first.
        while (taken := self.take()) is None:
            fetching = self._fetch()
            done, _ = await asyncio.wait([fetching], timeout=_WAIT_S)
            if not done or not self._blocks:
                raise CoordinatorLoading("no producer id is available; the controller has been asked for a new block")
        return taken

    def _fetch(self) -> asyncio.Task[None]:
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.ensure_future(self._fetch_block())
        return self._fetching

    async def _fetch_block(self) -> None:
        try:
            answer: AllocateProducerIdsResponse = await self._ask(
                AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
            )
            if answer.error_code:
                raise by_code(answer.error_code)("AllocateProducerIds failed")
        except ApiError as error:
            logger.warning("cannot allocate producer ids from the controller: %s; retrying on demand", error)
            await asyncio.sleep(_RETRY_S)  # the next producer asks again, but not all at once
            return
        first, count = answer.producer_id_start, answer.producer_id_len
        if first < 0 or count < 1 or first > _LAST - count:
            logger.error("the controller allocated an invalid block of %d producer ids from %d", count, first)
            return
        self._blocks.append(range(first, first + count))
        self._prefetch_at = first + count * 9 // 10
