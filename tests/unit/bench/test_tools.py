"""The parsers of Kafka's performance tools."""

import pytest
from bench.harness.tools import ToolFailed, parse_consumer, parse_latency, parse_producer, run_tool

SENT = """\
61873 records sent, 12374.6 records/sec (11.80 MB/sec), 1790.2 ms avg latency, 2651.0 ms max latency.
100000 records sent, 13559.3 records/sec (12.93 MB/sec), 1838.20 ms avg latency, 2651.00 ms max latency, \
1871 ms 50th, 2538 ms 95th, 2610 ms 99th, 2648 ms 99.9th.
"""
READ = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
fetch.MB.sec, fetch.nMsg.sec
2026-03-01 10:00:00:000, 2026-03-01 10:00:04:100, 953.6743, 232.6035, 1000000, 243902.4390, 600, 3500, \
272.4784, 285714.2857
"""
SHARED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms
2026-03-01 10:00:00:000, 2026-03-01 10:00:08:955, 95.3674, 10.6496, 11166.9458, 100000, 8955
"""
LATENCIES = "0\t48.1\n1000\t0.4\nAvg latency: 0.4321 ms\nPercentiles: 50th = 0, 99th = 1, 99.9th = 7\n"


def test_the_last_line_of_a_producer_has_its_figures() -> None:
    assert parse_producer(SENT, 100_000) == {
        "records_per_s": 13559.3,
        "mb_per_s": 12.93,
        "p50_ms": 1871,
        "p99_ms": 2610,
        "p999_ms": 2648,
    }


def test_warm_up_records_are_left_out() -> None:
    steady = SENT.splitlines()[-1].replace("100000 records", "60000 steady state records").replace("2610 ms", "31 ms")
    assert parse_producer(SENT + steady, 60_000)["p99_ms"] == 31


def test_a_producer_that_sent_too_few_records_fails() -> None:
    with pytest.raises(ToolFailed, match="100000 of 200000"):
        parse_producer(SENT, 200_000)


def test_the_time_of_a_consumer_excludes_joining_its_group() -> None:
    assert parse_consumer(READ, 1_000_000) == {"records_per_s": 285714.2857, "mb_per_s": 272.4784, "time_ms": 3500}


def test_the_time_of_a_share_consumer_includes_joining_its_group() -> None:
    assert parse_consumer(SHARED, 100_000) == {"records_per_s": 11166.9458, "mb_per_s": 10.6496, "time_ms": 8955}


def test_a_consumer_that_read_too_few_records_fails() -> None:
    with pytest.raises(ToolFailed, match="1000000 of 1000001"):
        parse_consumer(READ, 1_000_001)


def test_latencies_are_parsed() -> None:
    assert parse_latency(LATENCIES) == {"time_ms": 0.4321, "p50_ms": 0, "p99_ms": 1, "p999_ms": 7}


@pytest.mark.parametrize("text", ["", "WARN no brokers\n", "start.time, end.time\n"])
def test_output_without_figures_fails(text: str) -> None:
    with pytest.raises(ToolFailed):
        parse_producer(text, 1)
    with pytest.raises(ToolFailed):
        parse_consumer(text, 1)
    with pytest.raises(ToolFailed):
        parse_latency(text)


def test_the_error_quotes_the_output_of_a_failed_tool() -> None:
    with pytest.raises(ToolFailed, match=r"exit 3: (?s:.*)no such topic"):
        run_tool(["sh", "-c", "echo no such topic >&2; exit 3"])
