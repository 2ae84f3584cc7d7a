"""The cost of a request's metrics. The figures are printed (`pytest -s`) and not checked, because machines differ."""

from collections.abc import Callable
from timeit import repeat

from ottla.broker.metrics.error_search import compile_error_search
from ottla.broker.metrics.request_metrics import Meter, on_sent
from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.rpc.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.storage.state_machine.histogram import total

NUMBER = 20_000


class Finished:
    """A produce that took 50 µs and was sent in 20."""

    def __init__(self, note: Meter) -> None:
        self.arrived_ns = now = 10**15
        self.started_ns, self.replied_ns, self.sent_ns = now + 900, now + 50_000, now + 70_000
        self.handled_ns = self.sending_ns = self.mute_ms = 0
        self.received_bytes, self.sent_bytes = 1200, 70
        self.note: object = note


def test_what_a_request_costs(record_property: Callable[[str, object], None]) -> None:
    meter = Meter(BY_KEY[ApiKey.PRODUCE], "Produce", 11)
    finished = Finished(meter)
    answer = TopicProduceResponse(name="t", partition_responses=[PartitionProduceResponse()])
    response = ProduceResponse(responses=[answer])
    search = compile_error_search(ProduceResponse)
    assert search is not None
    empty = min(repeat(lambda: None, number=NUMBER, repeat=5))
    for name, work in {"times and sizes": lambda: on_sent(finished), "errors": lambda: search(meter, response)}.items():
        ns = (min(repeat(work, number=NUMBER, repeat=5)) - empty) / NUMBER * 1e9
        record_property(name, ns)
        print(f"{name}: {ns:.0f} ns a request")
    assert total(meter.spans()["totaltimems"]) == 5 * NUMBER
    assert not meter.errors
