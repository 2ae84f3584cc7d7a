"""What administrators look up on a broker: resources, quotas, credentials; and what is switched off."""

from collections.abc import Iterator

import pytest

from ottla.protocol.errors import (
    DelegationTokenRequestNotAllowed,
    RequestTimedOut,
    SecurityDisabled,
    TopicDeletionDisabled,
    UnsupportedVersion,
)
from ottla.protocol.messages.records.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    UserScramCredentialRecord,
)
from ottla.protocol.messages.rpc.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.rpc.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.rpc.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.rpc.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.rpc.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.messages.rpc.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.rpc.list_config_resources import ListConfigResourcesRequest
from tests.unit.broker.handlers.admin import Admin


@pytest.fixture
def admin() -> Iterator[Admin]:
    made = Admin()
    yield made
    made.close()


def test_config_resources_are_listed_by_type(admin: Admin) -> None:
    admin.create_topic("t")
    admin.register(2)
    admin.register(3, fenced=True)
    admin.apply(
        ConfigRecord(resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="50000"),
        ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="1000"),
    )

    def listed(*kinds: int, version: int = 1) -> set[tuple[int, str]]:
        answer = admin.ask(ListConfigResourcesRequest(resource_types=list(kinds)), version)
        assert answer.error_code == 0
        return {(each.resource_type, each.resource_name) for each in answer.config_resources}

    brokers = {(4, "1"), (4, "2"), (8, "1"), (8, "2")}
    assert listed() == {(2, "t"), *brokers, (16, "m"), (32, "g")}
    assert listed(4, 8) == brokers
    assert listed(version=0) == {(16, "m")}
    assert admin.ask(ListConfigResourcesRequest(resource_types=[3]), 1).error_code == UnsupportedVersion.code


def quota(admin: Admin, key: str, value: float, **entity: str | None) -> None:
    parts = [EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
    admin.apply(ClientQuotaRecord(entity=parts, key=key, value=value))


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, {"u1", "u1 c1", "default"}),
        ([], True, set()),
        ([("user", 0, "u1")], False, {"u1", "u1 c1"}),
        ([("user", 0, "u1")], True, {"u1"}),
        ([("user", 1, None)], False, {"default"}),
        ([("user", 2, None), ("client-id", 2, None)], True, {"u1 c1"}),
        ([("ip", 2, None)], False, set()),
    ],
)
def test_quotas_are_found_by_their_entities(
    admin: Admin, components: list[tuple[str, int, str | None]], strict: bool, found: set[str]
) -> None:
    quota(admin, "producer_byte_rate", 1.0, user="u1")
    quota(admin, "producer_byte_rate", 2.0, user="u1", client_id="c1")
    quota(admin, "producer_byte_rate", 3.0, user=None)
    asked = [ComponentData(entity_type=kind, match_type=match, match=text) for kind, match, text in components]
    for version in range(2):
        answer = admin.ask(DescribeClientQuotasRequest(components=asked, strict=strict), version)
        names = {" ".join(part.entity_name or "default" for part in reversed(entry.entity)) for entry in answer.entries}
        assert names == found


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 7, None)], 42),
        ([("user", 0, None)], 42),
        ([("user", 1, "x")], 42),
        ([("user", 2, None), ("user", 2, None)], 42),
        ([("ip", 2, None), ("user", 2, None)], 42),
        ([("", 2, None)], 42),
        ([("nope", 2, None)], 35),
    ],
)
def test_contradictory_filters_are_refused(
    admin: Admin, components: list[tuple[str, int, str | None]], code: int
) -> None:
    asked = [ComponentData(entity_type=kind, match_type=match, match=text) for kind, match, text in components]
    answer = admin.ask(DescribeClientQuotasRequest(components=asked), 1)
    assert (answer.error_code, answer.entries) == (code, None)


def test_credentials_are_described_without_secrets(admin: Admin) -> None:
    for user, mechanism, iterations in (("ann", 1, 4096), ("ann", 2, 8192), ("bob", 1, 5000)):
        admin.apply(
            UserScramCredentialRecord(
                name=user, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"k", iterations=iterations
            )
        )

    def described(*users: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
        named = [UserName(name=user) for user in users]
        answer = admin.ask(DescribeUserScramCredentialsRequest(users=named or None), 0)
        return {
            each.user: (each.error_code, [(info.mechanism, info.iterations) for info in each.credential_infos])
            for each in answer.results
        }

    assert described() == {"ann": (0, [(1, 4096), (2, 8192)]), "bob": (0, [(1, 5000)])}
    assert described("bob", "eve", "ann", "ann") == {"bob": (0, [(1, 5000)]), "eve": (91, []), "ann": (92, [])}


def test_without_an_authorizer_there_are_no_acls(admin: Admin) -> None:
    request = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    assert admin.ask(request, 3).error_code == SecurityDisabled.code
    rule = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)
    assert [each.error_code for each in admin.ask(CreateAclsRequest(creations=[rule, rule]), 3).results] == [54, 54]
    rule.operation = 0
    assert admin.send(CreateAclsRequest(creations=[rule]), 3).outcome.startswith("closed")


def test_a_plaintext_listener_issues_no_tokens(admin: Admin) -> None:
    answer = admin.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    assert (answer.error_code, answer.principal_name, answer.max_timestamp_ms) == (
        DelegationTokenRequestNotAllowed.code,
        "ANONYMOUS",
        -1,
    )


def test_a_failure_of_the_whole_request_is_reported_for_each_item(admin: Admin) -> None:
    admin.refusal = RequestTimedOut("no controller")
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in "ab"]
    answer = admin.ask(CreateTopicsRequest(topics=topics), 7)
    assert [(each.name, each.error_code) for each in answer.topics] == [("a", 7), ("b", 7)]
    named = [TopicPartitions(topic="a", partitions=[0, 1])]
    answer = admin.ask(ElectLeadersRequest(topic_partitions=named), 2)
    assert answer.error_code == RequestTimedOut.code
    assert [result.error_code for result in answer.replica_election_results[0].partition_result] == [
        RequestTimedOut.code
    ] * 2
    assert admin.ask(ElectLeadersRequest(topic_partitions=None), 2).replica_election_results == []


def test_old_clients_get_another_error_if_topic_deletion_is_off(admin: Admin) -> None:
    admin.refusal = TopicDeletionDisabled()
    for version, code in ((1, 42), (2, 42), (3, 73), (5, 73)):
        answer = admin.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1), version)
        assert [each.error_code for each in answer.responses] == [code]
    answer = admin.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1), 6)
    assert [(each.name, each.error_code) for each in answer.responses] == [("a", 73)]
