"""Reports to the controller the log directory of each replica, if the metadata is missing or wrong (KIP-858).

Otherwise the controller would elect leaders whose directories have failed. For a broker with one directory it needs no
report. One request reports many replicas; there is one request at a time, and each is retried until it is answered.
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
"""Sends a request to the controller, and later calls one of the two callbacks."""


class DirectoryAssignments:
    """The replicas whose directory must be reported to the controller."""

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
        """Report the directory of a replica if the metadata differs. A move reports its replica itself."""
        if self._directory_to_report(partition) is not None:
            self._waiting[partition.topic_id, partition.index] = partition
            if not self._is_busy:
                self._schedule(0)

    def _directory_to_report(self, partition: Partition) -> bytes | None:
        directory = self._logs.directory_of(partition.topic, partition.index)
        if directory is None or partition.future is not None:
            return None
        directory_id = directory.meta.directory_id
        return None if directory_id == partition.assignment.directory_of(self._broker_id) else directory_id

    def _schedule(self, delay_s: float) -> None:
        self._is_busy = True
        self._call_later(delay_s, self._send_request)

    def _send_request(self) -> None:
        self._is_busy = False
        assignments: dict[tuple[bytes, int], bytes] = {}
        for key, partition in list(self._waiting.items())[:_IN_ONE_REQUEST]:
            directory_id = self._directory_to_report(partition)
            if directory_id is None:
                del self._waiting[key]
            else:
                assignments[key] = directory_id
        if not assignments:
            if self._waiting:
                self._schedule(0)
            return
        if self._broker_epoch() < 0:
            self._schedule(_RETRY_S)
            return
        self._is_busy = True
        self._send(self._request(assignments), self._on_response, self._on_failure)

    def _request(self, assignments: dict[tuple[bytes, int], bytes]) -> AssignReplicasToDirsRequest:
        directories: dict[bytes, dict[bytes, TopicData]] = {}
        for (topic_id, index), directory_id in assignments.items():
            topics = directories.setdefault(directory_id, {})
            topics.setdefault(topic_id, TopicData(topic_id=topic_id)).partitions.append(
                PartitionData(partition_index=index)
            )
        return AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                DirectoryData(id=directory_id, topics=list(topics.values()))
                for directory_id, topics in directories.items()
            ],
        )

    def _on_response(self, response: AssignReplicasToDirsResponse) -> None:
        if response.error_code != NONE:
            self._on_failure(by_code(response.error_code)("the controller rejected the log directories of replicas"))
            return
        for directory in response.directories:
            for topic in directory.topics:
                for result in topic.partitions:
                    partition = self._waiting.pop((topic.topic_id, result.partition_index), None)
                    if result.error_code != NONE:
                        # It is being deleted or reassigned; the metadata will follow.
                        error = name_of(result.error_code)
                        logger.info("%s: the controller rejected its log directory: %s", partition, error)
        self._schedule(0)

    def _on_failure(self, error: ApiError) -> None:
        if isinstance(error, UnsupportedVersion):
            self._waiting.clear()  # an older metadata version does not track directories
            self._is_busy = False
            return
        logger.info("Could not report the log directories of %d replicas, retrying: %s", len(self._waiting), error)
        self._schedule(_RETRY_S)
