"""SASL authentication counts toward no quota, neither the user's nor that of anonymous clients."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.protocol.messages.rpc.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from tests.unit.security.raw_connection import BOB, RawConnection
from tests.unit.security.secured_node import SecuredNode

WINDOW_S = 1.0
USERS = ("bob", "ANONYMOUS")


def set_quotas(node: SecuredNode, *, remove: bool) -> None:
    entries = [
        EntryData(
            entity=[EntityData(entity_type="user", entity_name=name)],
            ops=[OpData(key="request_percentage", value=0.0001, remove=remove)],
        )
        for name in USERS
    ]
    connection = RawConnection(node, "PLAINTEXT")
    answer = connection.send_unfiltered(AlterClientQuotasRequest(entries=entries), 1)
    connection.close()
    assert [entry.error_code for entry in answer.entries] == [0, 0]
    time.sleep(0.5)  # brokers learn of quotas after the controller has answered


@contextmanager
def slow_users(node: SecuredNode) -> Iterator[None]:
    set_quotas(node, remove=False)
    try:
        yield
    finally:
        set_quotas(node, remove=True)


@pytest.mark.parametrize("handshake", [0, 1])
def test_authentication_is_charged_to_no_quota(node: SecuredNode, handshake: int) -> None:
    with slow_users(node):
        connection = RawConnection(node, "SASL_PLAINTEXT")
        before = time.monotonic()
        connection.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
        connection.handshake("PLAIN", handshake)
        if handshake:
            connection.authenticate(BOB)
        else:
            connection.send_frame(BOB)
        assert connection.send_unfiltered(MetadataRequest(topics=[]), 9).throttle_time_ms == 1000 * WINDOW_S
        took_s = time.monotonic() - before
        connection.ask(MetadataRequest(topics=[]), 9)
        muted_s = time.monotonic() - before - took_s
        connection.close()
    assert took_s < 0.5 * WINDOW_S
    assert muted_s > 0.5 * WINDOW_S
