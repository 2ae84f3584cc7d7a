"""AlterConfigs and IncrementalAlterConfigs: what a broker does itself, and how answers are put together."""

import logging
from collections.abc import Iterator

import pytest

from ottla.metadata.image.values import ResourceType
from ottla.protocol.errors import InvalidRequest, NotController, UnknownTopicOrPartition
from ottla.protocol.messages.rpc import alter_configs as legacy
from ottla.protocol.messages.rpc import incremental_alter_configs as incremental
from tests.unit.broker.handlers.admin import Admin

TOPIC, BROKER, LOGGER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.GROUP
SET, DELETE, APPEND = 0, 1, 2
NAME = "tests.api.altered"


@pytest.fixture
def admin() -> Iterator[Admin]:
    made = Admin()
    made.create_topic("t")
    logging.getLogger(NAME).setLevel(logging.NOTSET)
    yield made
    made.close()


def resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> incremental.AlterConfigsResource:
    configs = [
        incremental.AlterableConfig(name=each, config_operation=operation, value=value)
        for each, operation, value in changes
    ]
    return incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def alter(admin: Admin, *resources: incremental.AlterConfigsResource, dry: bool = False) -> list[int]:
    request = incremental.IncrementalAlterConfigsRequest(resources=list(resources), validate_only=dry)
    response = admin.ask(request, 1)
    assert [each.resource_name for each in response.responses] == [each.resource_name for each in resources]
    return [each.error_code for each in response.responses]


def test_the_controller_alters_a_topic(admin: Admin) -> None:
    assert alter(admin, resource(TOPIC, "t", ("retention.ms", SET, "5"))) == [0]
    assert dict(admin.image.topic_config("t")) == {"retention.ms": "5"}
    assert admin.log("t").settings.retention_ms == 5


def test_answers_keep_the_order_of_the_request(admin: Admin) -> None:
    codes = alter(
        admin,
        resource(LOGGER, "2", (NAME, SET, "INFO")),
        resource(TOPIC, "t", ("retention.ms", SET, "5")),
        resource(BROKER, "1", ("num.io.threads", SET, "1000")),
        resource(TOPIC, "missing", ("retention.ms", SET, "5")),
        resource(LOGGER, "1", (NAME, SET, "INFO")),
    )
    assert codes == [InvalidRequest.code, 0, InvalidRequest.code, UnknownTopicOrPartition.code, 0]
    (forwarded,) = admin.controller_requests
    assert [each.resource_name for each in forwarded.resources] == ["t", "missing"]


def test_a_request_without_work_for_the_controller_is_not_forwarded(admin: Admin) -> None:
    assert alter(admin, resource(LOGGER, "1", (NAME, SET, "INFO"))) == [0]
    assert alter(admin) == []
    assert admin.controller_requests == []


def test_log_levels_are_set_and_removed(admin: Admin) -> None:
    logger = logging.getLogger(NAME)
    assert alter(admin, resource(LOGGER, "1", (NAME, SET, "FATAL")), dry=True) == [0]
    assert logger.level == logging.NOTSET
    assert alter(admin, resource(LOGGER, "1", (NAME, SET, "FATAL"))) == [0]
    assert logger.level == logging.CRITICAL
    assert alter(admin, resource(LOGGER, "1", (NAME, DELETE, None))) == [0]
    assert logger.level == logging.NOTSET


def test_an_unknown_logger_changes_no_other_logger(admin: Admin) -> None:
    assert alter(admin, resource(LOGGER, "1", (NAME, SET, "FATAL"), ("no.such.logger", SET, "INFO"))) == [40]
    assert logging.getLogger(NAME).level == logging.NOTSET


def test_a_brokers_settings_are_checked_before_they_are_stored(admin: Admin) -> None:
    assert alter(admin, resource(BROKER, "1", ("num.io.threads", SET, "1000"))) == [42]
    assert admin.controller_requests == []
    assert alter(admin, resource(BROKER, "1", ("num.io.threads", SET, "16"))) == [0]
    assert dict(admin.image.broker_config(1)) == {"num.io.threads": "16"}


def test_appending_to_a_list_of_a_broker(admin: Admin) -> None:
    assert alter(admin, resource(BROKER, "1", ("log.cleanup.policy", APPEND, "compact"))) == [0]
    assert dict(admin.image.broker_config(1)) == {"log.cleanup.policy": "delete,compact"}


def test_a_resource_that_is_named_twice_is_refused(admin: Admin) -> None:
    same = resource(TOPIC, "t", ("retention.ms", SET, "5"))
    assert alter(admin, same, same) == [42, 42]
    assert admin.controller_requests == []


def test_an_unreachable_controller_fails_each_resource(admin: Admin) -> None:
    admin.refusal = NotController("elsewhere")
    assert alter(admin, resource(TOPIC, "t"), resource(GROUP, "g")) == [41, 41]


def test_all_settings_are_replaced(admin: Admin) -> None:
    alter(admin, resource(TOPIC, "t", ("retention.ms", SET, "5"), ("segment.bytes", SET, "2000000")))
    kept = legacy.AlterableConfig(name="retention.ms", value="6")
    request = legacy.AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[kept]),
            legacy.AlterConfigsResource(resource_type=LOGGER, resource_name="1"),
        ]
    )
    for version in range(3):
        assert [each.error_code for each in admin.ask(request, version).responses] == [0, 42]
    assert dict(admin.image.topic_config("t")) == {"retention.ms": "6"}


@pytest.mark.parametrize(
    "changes",
    [
        [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
        [("retention.ms", SET, None)],
    ],
)
def test_malformed_changes_are_not_forwarded(admin: Admin, changes: list[tuple[str, int, str | None]]) -> None:
    assert alter(admin, resource(TOPIC, "t", *changes)) == [42]
    assert admin.controller_requests == []
