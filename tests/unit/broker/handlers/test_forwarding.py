"""Requests that a broker forwards to the active controller."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.authorization.standard import StandardAuthorizer
from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.rpc.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.protocol.messages.rpc.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tests.unit.broker.handlers.admin import Admin

TOPIC, LITERAL, READ, ALLOW, ANY = 2, 3, 3, 3, 1
FORWARDED = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)


@pytest.fixture
def admin() -> Iterator[Admin]:
    made = Admin()
    yield made
    made.close()


@pytest.mark.parametrize("key", FORWARDED, ids=lambda key: BY_KEY[key].name)
def test_a_request_is_forwarded_and_the_controllers_answer_returned(admin: Admin, key: ApiKey) -> None:
    api = BY_KEY[key]
    field = "error_code" if key == ApiKey.DESCRIBE_QUORUM else "throttle_time_ms"
    admin.controller = lambda _: api.response(**{field: 41})
    request = api.request()
    for version in range(api.oldest, api.latest_stable + 1):
        assert admin.send(request, version).outcome == "answered"
        assert type(admin.controller_requests[-1]) is api.request
    assert len(admin.controller_requests) == api.latest_stable - api.oldest + 1
    assert getattr(admin.ask(request, api.latest_stable), field) == 41


def test_changes_of_acls_are_forwarded(admin: Admin) -> None:
    admin.node.authorizer = StandardAuthorizer()
    answers: list[Any] = [
        CreateAclsResponse(results=[AclCreationResult()]),
        DeleteAclsResponse(filter_results=[DeleteAclsFilterResult()]),
    ]
    admin.controller = lambda _: answers.pop(0)
    rule = AclCreation(
        resource_type=TOPIC,
        resource_name="t",
        resource_pattern_type=LITERAL,
        principal="User:a",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    wanted = DeleteAclsFilter(resource_type_filter=TOPIC, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)
    assert [each.error_code for each in admin.ask(CreateAclsRequest(creations=[rule]), 3).results] == [0]
    assert [each.error_code for each in admin.ask(DeleteAclsRequest(filters=[wanted]), 3).filter_results] == [0]
    assert [type(each) for each in admin.controller_requests] == [CreateAclsRequest, DeleteAclsRequest]
