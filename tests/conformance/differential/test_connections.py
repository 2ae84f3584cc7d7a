"""Versions, headers and malformed requests: a node closes the connection of a client that breaks the protocol."""

import struct
from random import Random

import pytest

from ottla.protocol.messages.apis import APIS, BY_KEY, Api, ApiKey, Listeners
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from tests.conformance.differential.harness import Answers, NodePair, Side, decode_response, frame_of, header_of
from tests.conformance.differential.normalization import CLOSED
from tests.conformance.differential.requests import Part, batch, fetch, produce

STABLE = range(5)
SERVED = ("PLAINTEXT", "CONTROLLER")


def versions_request(**fields: object) -> ApiVersionsRequest:
    values = {"client_software_name": "differential", "client_software_version": "1.0", **fields}
    return ApiVersionsRequest(**values)  # type: ignore[arg-type]


def without_unserved_apis(answers: Answers) -> ApiVersionsResponse:
    """Return Kafka's answer without the APIs that Ottla does not advertise."""
    served = {api.api_key for api in answers.ottla.api_keys}
    answers.kafka.api_keys = [api for api in answers.kafka.api_keys if api.api_key in served]
    response: ApiVersionsResponse = answers.kafka
    return response


@pytest.mark.parametrize("listener", SERVED)
@pytest.mark.parametrize("version", STABLE)
def test_api_versions_get_the_same_answers(both: NodePair, version: int, listener: str) -> None:
    answers = both.ask(versions_request(), version, listener=listener)
    assert both.differences(Answers(without_unserved_apis(answers), answers.ottla), version) == []


@pytest.mark.parametrize("version", STABLE)
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("", "1"),
        ("a", ""),
        ("-a", "1"),
        ("a-", "1"),
        ("a b", "1"),
        ("a_b", "1"),
        ("ä", "1"),
        ("a.b-c9", "1.0-x"),
        ("a\n", "1"),
    ],
)
def test_client_software_names_are_checked_the_same_way(both: NodePair, name: str, number: str, version: int) -> None:
    request = versions_request(client_software_name=name, client_software_version=number)
    answers = both.ask(request, version)
    assert both.differences(Answers(without_unserved_apis(answers), answers.ottla), version) == []


@pytest.mark.parametrize("version", [5, 6, 99, 32_767, -1])
@pytest.mark.parametrize("body", [b"", b"\0", b"whatever follows"])
def test_unsupported_api_versions_requests_are_answered_in_version_0(both: NodePair, version: int, body: bytes) -> None:
    frames = both.send(header_of(ApiKey.API_VERSIONS, version, 7) + body)
    kafka, ottla = (
        frame if isinstance(frame, str) else decode_response(ApiKey.API_VERSIONS, 0, frame) for frame in frames
    )
    assert kafka == ottla


@pytest.mark.parametrize("listener", SERVED)
@pytest.mark.parametrize("key", [-1, 4, 5, 6, 7, 93, 200, 32_767])
def test_unknown_apis_close_the_connection(both: NodePair, key: int, listener: str) -> None:
    for version in (0, 1, 5):
        assert both.send(struct.pack(">hhih", key, version, 1, -1), listener=listener) == (CLOSED, CLOSED)


def out_of_range(api: Api) -> list[int]:
    return [version for version in (api.oldest - 1, api.latest + 1, 32_767) if version >= 0]


@pytest.mark.parametrize("api", [api for api in APIS if api.key != ApiKey.API_VERSIONS], ids=lambda api: api.name)
def test_unknown_versions_close_the_connection(both: NodePair, api: Api) -> None:
    for version in out_of_range(api):
        assert both.send(header_of(api.key, version, 1) + bytes(40)) == (CLOSED, CLOSED), version


@pytest.mark.parametrize(
    "api", [api for api in APIS if api.listeners is Listeners.CONTROLLER], ids=lambda api: api.name
)
def test_brokers_do_not_serve_controller_apis(both: NodePair, api: Api) -> None:
    assert both.send(frame_of(api.request(), api.latest_stable, 1, "differential")) == (CLOSED, CLOSED)


@pytest.mark.parametrize("api", [api for api in APIS if api.listeners is Listeners.BROKER], ids=lambda api: api.name)
def test_controllers_do_not_serve_broker_apis(both: NodePair, api: Api) -> None:
    frame = frame_of(api.request(), api.latest_stable, 1, "differential")
    assert both.send(frame, listener="CONTROLLER") == (CLOSED, CLOSED)


HEADERS = {
    "nothing": b"",
    "a truncated key": b"\0",
    "only a key": struct.pack(">h", 3),
    "no correlation id": struct.pack(">hh", 3, 1),
    "no client id": struct.pack(">hhi", 3, 1, 1),
    "client id past the end": struct.pack(">hhih", 3, 1, 1, 50) + b"short",
    "negative client id": struct.pack(">hhih", 3, 1, 1, -2) + bytes(20),
    "client id not UTF-8": struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe" + bytes(4),
    "no body": struct.pack(">hhih", 3, 1, 1, -1),
    "no tags": struct.pack(">hhih", 3, 9, 1, -1),
    "tags past the end": struct.pack(">hhih", 3, 9, 1, -1) + b"\x05",
    "many tags": struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\x0f",
    "unknown tags": struct.pack(">hhih", 3, 9, 1, -1) + b"\x02\x05\x01x\x09\x00" + b"\x01\x00\x00\x00\x00",
    "tags out of order": struct.pack(">hhih", 3, 9, 1, -1) + b"\x02\x09\x00\x05\x00" + b"\x01\x00\x00\x00\x00",
    "the same tag twice": struct.pack(">hhih", 3, 9, 1, -1) + b"\x02\x05\x00\x05\x00" + b"\x01\x00\x00\x00\x00",
    "trailing bytes": struct.pack(">hhih", 3, 4, 1, -1) + b"\0\0\0\0\0" + b"more",
}


STRICTER = {
    "tags out of order",
    "the same tag twice",
    "negative count",
    "not UTF-8",
}
"""Faults that Kafka accepts and Ottla refuses."""


def outcome(frame: bytes | str, key: int, version: int) -> str:
    return frame if isinstance(frame, str) else f"answered {decode_response(key, version, frame)[0]}"


@pytest.mark.parametrize("name", HEADERS)
def test_malformed_headers_are_handled_the_same_way(both: NodePair, name: str) -> None:
    data = HEADERS[name]
    version = struct.unpack_from(">h", data, 2)[0] if len(data) >= 4 else 1
    kafka, ottla = (outcome(frame, 3, version) for frame in both.send(data))
    assert ottla == (CLOSED if name in STRICTER else kafka)


BODIES = {
    "count of topics too large": (ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"),
    "negative count": (ApiKey.METADATA, 1, b"\xff\xff\xff\xfe"),
    "null not allowed": (ApiKey.METADATA, 0, b"\xff\xff\xff\xff"),
    "text past the end": (ApiKey.METADATA, 1, b"\0\0\0\1\0\x20ab"),
    "null text": (ApiKey.METADATA, 1, b"\0\0\0\1\xff\xff"),
    "compact count too large": (ApiKey.METADATA, 9, b"\xff\xff\xff\xff\x07\0\0\0\0"),
    "an endless varint": (ApiKey.METADATA, 9, b"\xff" * 12),
    "not UTF-8": (ApiKey.METADATA, 1, b"\0\0\0\1\0\2\xff\xfe"),
    "truncated tags": (ApiKey.METADATA, 9, b"\x01\0\0\0\x01\x05"),
    "boolean 7": (ApiKey.METADATA, 4, b"\0\0\0\0\x07"),
    "an empty produce": (ApiKey.PRODUCE, 9, b""),
    "an empty fetch": (ApiKey.FETCH, 12, b""),
    "half a fetch": (ApiKey.FETCH, 4, bytes(9)),
}


@pytest.mark.parametrize("name", BODIES)
def test_malformed_bodies_are_handled_the_same_way(both: NodePair, name: str) -> None:
    key, version, body = BODIES[name]
    kafka, ottla = (outcome(frame, key, version) for frame in both.send(header_of(key, version, 1) + body))
    assert ottla == (CLOSED if name in STRICTER else kafka)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_requests_are_handled_the_same_way(both: NodePair, seed: int) -> None:
    """Both nodes answer or both close; the errors may differ if the changed bytes are still a request."""
    random = Random(seed)
    topic = both.new_topic()
    makers = [
        (ApiKey.PRODUCE, 9, produce(9, (topic, 0, batch()), acks=1)),
        (ApiKey.PRODUCE, 3, produce(3, (topic, 0, batch()), acks=1)),
        (ApiKey.FETCH, 12, fetch(12, Part(topic))),
        (ApiKey.FETCH, 4, fetch(4, Part(topic))),
        (ApiKey.METADATA, 12, lambda side: MetadataRequest(topics=[])),
    ]
    for _ in range(40):
        key, version, make = random.choice(makers)
        frame = bytearray(frame_of(make(both.ottla), version, 1, "differential"))
        start = len(header_of(key, version, 1))
        end = random.randrange(start, len(frame))
        if random.random() < 0.5:
            del frame[end:]
        else:
            # Times and sizes stay, so that a request does not wait for an hour.
            frame[start] ^= 1 << random.randrange(8)
        responses = both.send(bytes(frame), timeout_s=5)
        kafka, ottla = (response if isinstance(response, str) else "answered" for response in responses)
        # Kafka reads any negative length as null.
        assert ottla in (kafka, CLOSED), bytes(frame)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_frames_of_invalid_sizes_close_the_connection(both: NodePair, size: int) -> None:
    outcomes = []
    for side in both.sides:
        side.send_raw(struct.pack(">i", size) + bytes(20))
        outcomes.append(side.receive("PLAINTEXT", 5))
    assert outcomes == [CLOSED, CLOSED]


def send_pipelined(side: Side, count: int) -> list[int]:
    """Send several requests at once, and return the correlation ids of the answers."""
    frames = [frame_of(ApiVersionsRequest(), 0, number, "differential") for number in range(count)]
    side.send_raw(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    answers = [side.receive("PLAINTEXT", 5) for _ in range(count)]
    return [struct.unpack_from(">i", answer)[0] for answer in answers if not isinstance(answer, str)]


def test_requests_are_answered_in_order(both: NodePair) -> None:
    for side in both.sides:
        assert send_pipelined(side, 50) == list(range(50))


def test_requests_after_a_bad_request_are_not_answered(both: NodePair) -> None:
    for side in both.sides:
        good = frame_of(ApiVersionsRequest(), 0, 1, "differential")
        bad = struct.pack(">hhih", 999, 0, 2, -1)
        side.send_raw(b"".join(struct.pack(">i", len(frame)) + frame for frame in (good, bad, good)))
        assert not isinstance(side.receive("PLAINTEXT", 5), str)
        assert side.receive("PLAINTEXT", 5) == CLOSED


@pytest.mark.parametrize("client_id", [None, "", "ä" * 100, "x" * 30_000])
def test_client_ids_do_not_change_answers(both: NodePair, client_id: str | None) -> None:
    for version in (1, 9, 13):
        both.expect_same(MetadataRequest(topics=[]), version, client_id=client_id)


def test_every_advertised_api_is_advertised_by_kafka(both: NodePair) -> None:
    answers = both.ask(ApiVersionsRequest(), 0)
    assert {api.api_key for api in answers.ottla.api_keys} <= {api.api_key for api in answers.kafka.api_keys}
    assert {api.api_key for api in answers.ottla.api_keys} <= BY_KEY.keys()
