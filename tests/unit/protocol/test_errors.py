"""The error tree equals Kafka's table, and its families have the right members."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

import pytest

from ottla.protocol import errors
from ottla.protocol.errors import ApiError, UnknownServerError, by_code, name_of


class Row(TypedDict):
    code: int
    name: str
    retriable: bool


TABLE: list[Row] = json.loads(
    (Path(__file__).parents[3] / "bench" / "harness" / "kafka-4.3.1-messages.json").read_text()
)["errors"]
FAILURES = [row for row in TABLE if row["code"] != errors.NONE]

# Classes have Kafka's names in CamelCase, except where those are clumsy or redundant.
RENAMED = {
    "COORDINATOR_LOAD_IN_PROGRESS": "CoordinatorLoading",
    "FETCH_SESSION_TOPIC_ID_ERROR": "FetchSessionTopicIdMismatch",
    "INVALID_TOPIC_EXCEPTION": "InvalidTopic",
    "KAFKA_STORAGE_ERROR": "StorageFailed",
    "NETWORK_EXCEPTION": "NetworkFailed",
    "NOT_LEADER_OR_FOLLOWER": "NotLeader",
}


def descendants(error: type[ApiError]) -> set[type[ApiError]]:
    children = error.__subclasses__()
    return set(children).union(*(descendants(child) for child in children))


def is_family(error: type[ApiError]) -> bool:
    return "code" not in vars(error)


def names_with(part: str) -> set[str]:
    return {row["name"] for row in FAILURES if part in row["name"]}


# Read once, before a test defines its own classes.
TREE = sorted(descendants(ApiError), key=lambda error: error.__name__)
FAMILIES = [error for error in TREE if is_family(error)]
MEMBERS = [error for error in TREE if not is_family(error)]


def names_under(family: type[ApiError]) -> set[str]:
    return {error.name for error in MEMBERS if issubclass(error, family)}


@pytest.mark.parametrize("row", FAILURES, ids=lambda row: row["name"])
def test_an_error_has_kafkas_code_name_and_retriable_flag(row: Row) -> None:
    error = by_code(row["code"])
    assert (error.code, error.name, error.retriable) == (row["code"], row["name"], row["retriable"])
    assert error.__name__ == RENAMED.get(row["name"], row["name"].title().replace("_", ""))


def test_every_code_and_name_belongs_to_one_class() -> None:
    assert sorted(error.code for error in MEMBERS) == sorted(row["code"] for row in FAILURES)
    assert sorted(error.name for error in MEMBERS) == sorted(row["name"] for row in FAILURES)


def test_the_package_exports_exactly_the_tree() -> None:
    tree = {error.__name__ for error in TREE} | {"ApiError"}
    assert set(errors.__all__) == tree | {"NONE", "by_code", "name_of"}
    assert all(getattr(errors, error.__name__) is error for error in TREE)


def test_success_has_a_name_but_no_class() -> None:
    assert errors.NONE == 0
    assert name_of(0) == "NONE"
    with pytest.raises(AssertionError, match="success"):
        by_code(0)


@pytest.mark.parametrize("code", [-2, 134, 32767])
def test_an_unknown_code_is_an_unknown_server_error(code: int) -> None:
    assert by_code(code) is UnknownServerError
    assert name_of(code) == "UNKNOWN_SERVER_ERROR"


def test_a_code_is_named_as_kafka_names_it() -> None:
    assert name_of(-1) == "UNKNOWN_SERVER_ERROR"
    assert name_of(6) == "NOT_LEADER_OR_FOLLOWER"
    assert name_of(129) == "REBOOTSTRAP_REQUIRED"


def test_an_error_has_its_own_message_or_its_docstring() -> None:
    plain = errors.NotLeader()
    assert plain.message == "This broker does not lead the partition; the client should refresh its metadata."
    assert str(plain) == plain.message
    explicit = errors.NotLeader("broker 2 leads orders-0")
    assert explicit.message == str(explicit) == "broker 2 leads orders-0"
    assert errors.NotLeader("").message == ""


def test_only_the_first_sentence_of_a_docstring_is_the_message() -> None:
    class Overslept(errors.RequestError):
        """It was late. This sentence is not part of the message."""

    assert Overslept().message == "It was late."


def test_without_docstrings_the_message_is_the_name() -> None:
    class Bare(errors.NotLeader):
        pass

    assert Bare().message == "NOT_LEADER_OR_FOLLOWER"


def test_a_subclass_without_a_code_has_its_parents_code() -> None:
    class LeaderMoved(errors.NotLeader):
        """The leader moved while the request waited."""

    assert (LeaderMoved.code, LeaderMoved.retriable) == (6, True)
    assert by_code(6) is errors.NotLeader


def test_a_second_class_for_a_code_is_rejected() -> None:
    with pytest.raises(AssertionError, match="takes the code of NotLeader"):

        class Impostor(ApiError, code=6, name="IMPOSTOR"):
            """Never created."""

    assert by_code(6) is errors.NotLeader


def test_incomplete_error_declarations_are_rejected() -> None:
    with pytest.raises(AssertionError, match="no name"):
        type("Nameless", (ApiError,), {}, code=999)
    with pytest.raises(AssertionError, match="no code"):
        type("Codeless", (ApiError,), {}, name="CODELESS")
    with pytest.raises(AssertionError, match="no code"):
        type("Flag", (ApiError,), {}, retriable=True)
    with pytest.raises(AssertionError, match="success"):
        type("Success", (ApiError,), {}, code=0, name="NONE")


def test_an_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(errors.OffsetOutOfRange("42 is past the end")))
    assert type(error) is errors.OffsetOutOfRange
    assert error.message == "42 is past the end"


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
def test_a_docstring_is_one_sentence_on_one_line(error: type[ApiError]) -> None:
    doc = error.__doc__
    assert doc is not None
    assert doc.endswith(".")
    assert "\n" not in doc
    assert ". " not in doc


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_a_family_ends_in_error_has_members_and_is_in_the_diagram(family: type[ApiError]) -> None:
    assert family.__name__.endswith("Error")
    assert len(names_under(family)) >= 2
    assert errors.__doc__ is not None
    assert f"── {family.__name__}\n" in errors.__doc__
    assert (family.code, family.retriable) == (UnknownServerError.code, False)


def test_every_error_but_the_unknown_one_has_a_family_and_no_children() -> None:
    for error in MEMBERS:
        assert error is UnknownServerError or all(is_family(base) for base in error.__bases__), error
        assert not any(error in other.__bases__ for other in TREE), error


def test_families_have_the_members_that_their_names_promise() -> None:
    assert names_under(errors.AuthorizationError) == names_with("AUTHORIZATION_FAILED")
    assert names_under(errors.AuthenticationError) == names_with("SASL")
    assert names_under(errors.DelegationTokenError) == names_with("DELEGATION_TOKEN") | {"INVALID_PRINCIPAL_TYPE"}
    assert names_under(errors.FetchSessionError) == names_with("FETCH_SESSION")
    assert names_under(errors.ShareSessionError) == names_with("SHARE_SESSION")
    assert names_under(errors.StreamsError) == names_with("STREAMS")
    assert names_under(errors.ReplicationError) == names_with("NOT_ENOUGH_REPLICAS")
    assert names_under(errors.SequenceError) == names_with("SEQUENCE_NUMBER")
    assert names_under(errors.ReassignmentError) == names_with("REASSIGNMENT")
    assert names_under(errors.EndpointTypeError) == names_with("ENDPOINT_TYPE")
    assert names_under(errors.CoordinatorError) == names_with("COORDINATOR") - {"TRANSACTION_COORDINATOR_FENCED"}
    assert names_with("MEMBER") | names_with("INSTANCE_ID") <= names_under(errors.MemberError)
    assert names_with("VOTER") <= names_under(errors.QuorumError)


def test_stale_metadata_and_a_lost_coordinator_are_retriable() -> None:
    for family in (errors.StaleMetadataError, errors.CoordinatorError, errors.FetchSessionError):
        assert all(error.retriable for error in MEMBERS if issubclass(error, family))


def test_two_errors_belong_to_two_families() -> None:
    assert issubclass(errors.StorageFailed, errors.StorageError)
    assert issubclass(errors.StorageFailed, errors.StaleMetadataError)
    assert issubclass(errors.DelegationTokenAuthorizationFailed, errors.DelegationTokenError)
    assert issubclass(errors.DelegationTokenAuthorizationFailed, errors.AuthorizationError)
    assert [error.__name__ for error in MEMBERS if len(error.__bases__) > 1] == [
        "DelegationTokenAuthorizationFailed",
        "StorageFailed",
    ]


def test_importing_the_errors_imports_nothing_else() -> None:
    # The import takes about 4 ms, mostly to create classes. `typing` or `re` alone would double that.
    code = "import sys; old = set(sys.modules); import ottla.protocol.errors; print(*sorted(set(sys.modules) - old))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    new = {name for name in shown.stdout.split() if not name.startswith("ottla.protocol.errors")}
    assert new <= {"ottla", "ottla.protocol", "__future__"}
