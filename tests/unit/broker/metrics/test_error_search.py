"""The generated search for errors, compared with a naive one over all responses."""

from random import Random
from typing import Any

import pytest
from bench.harness.message_values import Values

from ottla.broker.metrics.error_search import compile_error_search
from ottla.protocol.messages.apis import APIS, Api
from ottla.protocol.messages.rpc.api_versions import ApiVersionsResponse
from ottla.protocol.messages.rpc.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.protocol.wire.declare import is_declared, schema_of
from ottla.protocol.wire.types import Fixed


class Note:
    def __init__(self) -> None:
        self.codes: set[int] = set()

    def failed(self, codes: set[int]) -> None:
        assert codes
        self.codes |= codes


class FewErrors(Values):
    """Responses in which most items have no error."""

    def fixed(self, kind: Fixed, name: str) -> Any:
        if name.endswith("error_code"):
            return self.random.choice((0, 0, 0, 3, 6, -1, 42))
        return super().fixed(kind, name)


def naive(value: Any) -> set[int]:
    codes: set[int] = set()
    if isinstance(value, list):
        for item in value:
            codes |= naive(item)
    elif is_declared(type(value)):
        for name in schema_of(type(value)).fields:
            inner = getattr(value, name)
            if name.endswith("error_code") and inner:
                codes.add(inner)
            else:
                codes |= naive(inner)
    return codes


@pytest.mark.parametrize("api", [api for api in APIS if api.latest >= api.oldest], ids=lambda api: api.name)
def test_all_errors_of_a_response_are_found(api: Api) -> None:
    search = compile_error_search(api.response)
    assert search is not None, "every response has a field for an error"
    values = FewErrors(Random(api.key), unknown_tags=False)
    for _ in range(30):
        response = values.message(api.response, api.latest)
        note = Note()
        search(note, response)
        assert note.codes == naive(response)


def test_a_response_without_errors_has_no_codes() -> None:
    note = Note()
    search = compile_error_search(ApiVersionsResponse)
    assert search is not None
    search(note, ApiVersionsResponse())
    assert not note.codes


def test_each_code_is_returned_once() -> None:
    parts = [PartitionProduceResponse(error_code=code) for code in (3, 0, 3, 6)]
    note = Note()
    search = compile_error_search(ProduceResponse)
    assert search is not None
    search(note, ProduceResponse(responses=[TopicProduceResponse(partition_responses=parts)]))
    assert note.codes == {3, 6}
