"""Responses of the controller's APIs to requests that fail as a whole: the error for each item of the request.

Only APIs whose response has no error code at its top, or an error for each item besides, need a function here.
"""

from ottla.protocol.errors import ApiError, InvalidRequest, TopicDeletionDisabled
from ottla.protocol.messages.rpc import alter_client_quotas as quotas
from ottla.protocol.messages.rpc import alter_partition_reassignments as reassign
from ottla.protocol.messages.rpc import list_partition_reassignments as listed
from ottla.protocol.messages.rpc.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.protocol.messages.rpc.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.rpc.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.rpc.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.rpc.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.protocol.wire.types import ZERO_UUID


def create_topics_failed(request: CreateTopicsRequest, version: int, error: ApiError) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )


def delete_topics_failed(request: DeleteTopicsRequest, version: int, error: ApiError) -> DeleteTopicsResponse:
    if isinstance(error, TopicDeletionDisabled) and version < 3:
        error = InvalidRequest("Topic deletion is disabled.")  # older clients do not know the other error
    topics = [(topic.name, topic.topic_id) for topic in request.topics]
    topics += [(name, ZERO_UUID) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
            for name, topic_id in topics
        ]
    )


def create_partitions_failed(
    request: CreatePartitionsRequest, version: int, error: ApiError
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )


def elect_leaders_failed(request: ElectLeadersRequest, version: int, error: ApiError) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=number, error_code=error.code, error_message=error.message)
                    for number in topic.partitions
                ],
            )
            for topic in request.topic_partitions or []
        ],
    )


def alter_reassignments_failed(
    request: reassign.AlterPartitionReassignmentsRequest, version: int, error: ApiError
) -> reassign.AlterPartitionReassignmentsResponse:
    return reassign.AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message,
        responses=[
            reassign.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    reassign.ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=error.code, error_message=error.message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def list_reassignments_failed(
    request: listed.ListPartitionReassignmentsRequest, version: int, error: ApiError
) -> listed.ListPartitionReassignmentsResponse:
    return listed.ListPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message,
        topics=[
            listed.OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    listed.OngoingPartitionReassignment(partition_index=number) for number in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ],
    )


def alter_client_quotas_failed(
    request: quotas.AlterClientQuotasRequest, version: int, error: ApiError
) -> quotas.AlterClientQuotasResponse:
    return quotas.AlterClientQuotasResponse(
        entries=[
            quotas.ResponseEntryData(entity=entry.entity, error_code=error.code, error_message=error.message)
            for entry in request.entries
        ]
    )


def alter_scram_failed(
    request: AlterUserScramCredentialsRequest, version: int, error: ApiError
) -> AlterUserScramCredentialsResponse:
    users = {deletion.name for deletion in request.deletions} | {change.name for change in request.upsertions}
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
            for user in sorted(users)
        ]
    )
