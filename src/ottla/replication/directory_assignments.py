"""Tells the controller in which directory each replica is, where it does not know or is mistaken (KIP-858).

Without that it would go on electing leaders whose directories have failed. Of a broker with one directory it knows by
itself. Many replicas go in one request, one request at a time, and each until it is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ottla.protocol.errors import NONE, ApiError, UnsupportedVersion, by_code, name_of
from ottla.protocol.messages.rpc.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ottla.replication.partition import Partition
from ottla.replication.purgatory import CallLater
from ottla.storage.directories.logs import Logs

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.5
_IN_ONE_REQUEST: Final = 2000

Send = Callable[
    [AssignReplicasToDirsRequest, Callable[[AssignReplicasToDirsResponse], None], Callable[[ApiError], None]],
    None,
]
"""Takes a request to the controller; calls one of the two, later."""


class DirectoryAssignments:
    """What the controller has to be told."""

    def __init__(
        self,
        broker_id: int,
        logs: Logs,
        send: Send,
        *,
        broker_epoch: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._send = send
        self._broker_epoch = broker_epoch
        self._call_later = call_later
        self._waiting: dict[tuple[bytes, int], Partition] = {}
        self._is_busy = False

    def __len__(self) -> int:
        return len(self._waiting)

    def check(self, partition: Partition) -> None:
        """Tell where a replica is, if the metadata say otherwise; one that is on the move tells so itself."""
        if self._directory_to_tell(partition) is not None:
            self._waiting[partition.topic_id, partition.index] = partition
            if not self._is_busy:
                self._again(0)

    def _directory_to_tell(self, partition: Partition) -> bytes | None:
        directory = self._logs.directory_of(partition.topic, partition.index)
        if directory is None or partition.future is not None:
            return None
        found = directory.meta.directory_id
        return None if found == partition.assignment.directory_of(self._broker_id) else found

    def _again(self, delay_s: float) -> None:
        self._is_busy = True
        self._call_later(delay_s, self._ask)

    def _ask(self) -> None:
        self._is_busy = False
        told: dict[tuple[bytes, int], bytes] = {}
        for key, partition in list(self._waiting.items())[:_IN_ONE_REQUEST]:
            directory_id = self._directory_to_tell(partition)
            if directory_id is None:
                del self._waiting[key]
            else:
                told[key] = directory_id
        if not told:
            if self._waiting:
                self._again(0)
            return
        if self._broker_epoch() < 0:
            self._again(_RETRY_S)
            return
        self._is_busy = True
        self._send(self._request(told), self._answered, self._failed)

    def _request(self, told: dict[tuple[bytes, int], bytes]) -> AssignReplicasToDirsRequest:
        directories: dict[bytes, dict[bytes, TopicData]] = {}
        for (topic_id, index), directory_id in told.items():
            topics = directories.setdefault(directory_id, {})
            topics.setdefault(topic_id, TopicData(topic_id=topic_id)).partitions.append(
                PartitionData(partition_index=index)
            )
        return AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[DirectoryData(id=each, topics=list(topics.values())) for each, topics in directories.items()],
        )

    def _answered(self, answer: AssignReplicasToDirsResponse) -> None:
        if answer.error_code != NONE:
            self._failed(by_code(answer.error_code)("the controller refused to hear where replicas are"))
            return
        for directory in answer.directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    partition = self._waiting.pop((topic.topic_id, each.partition_index), None)
                    if each.error_code != NONE:
                        # It is being deleted or reassigned, of which the metadata will tell.
                        logger.info(
                            "%s: the controller did not note its directory: %s", partition, name_of(each.error_code)
                        )
        self._again(0)

    def _failed(self, error: ApiError) -> None:
        if isinstance(error, UnsupportedVersion):
            self._waiting.clear()  # a cluster of an older level does not keep track of directories
            self._is_busy = False
            return
        logger.info("the controller does not know yet where %d replicas are: %s", len(self._waiting), error)
        self._again(_RETRY_S)
