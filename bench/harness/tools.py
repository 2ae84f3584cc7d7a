"""Kafka's own performance tools, run as their scripts run them; and what they print, as figures."""

import itertools
import re
import subprocess
from collections.abc import Mapping, Sequence

from bench.harness.figures import Figures
from bench.harness.systems import java_tool

TIMEOUT_S = 600
_NUMBER = r"(\d+(?:[.,]\d+)?)"
_SENT = re.compile(rf"^(\d+) (steady state )?records sent, {_NUMBER} records/sec \({_NUMBER} MB/sec\).*")
_PERCENTILES = re.compile(r"(\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th")
_LATENCY = re.compile(r"Percentiles: 50th = (\d+), 99th = (\d+), 99\.9th = (\d+)")
_AVERAGE = re.compile(rf"Avg latency: {_NUMBER} ms")


class ToolFailed(Exception):
    """A client failed, or printed something unexpected; with its last words."""


def run_tool(command: Sequence[str]) -> str:
    """What a tool prints; raises ToolFailed when it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(f"{' '.join(command[-8:])}: not done after {TIMEOUT_S} s") from error
    if done.returncode:
        raise ToolFailed(f"exit {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def producer_performance(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    record_bytes: int,
    settings: Mapping[str, str],
    records_per_s: int = -1,
    transaction_ms: int | None = None,
    warm_up: int = 0,
) -> Figures:
    """`kafka-producer-perf-test`. A latency begins when the producer is given a record, and ends with its answer.

    The first records, while the producer's own code gets warm, may be left out of what is told.
    """
    given = [f"{name}={value}" for name, value in settings.items()]
    options = ["--transaction-duration-ms", str(transaction_ms)] if transaction_ms else []
    if warm_up:
        options += ["--warmup-records", str(warm_up)]
    command = java_tool(
        "ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *("--num-records", str(records), "--record-size", str(record_bytes), "--throughput", str(records_per_s)),
        *options,
        *(["--command-property", *given] if given else []),
    )
    return parse_producer(run_tool(command), records - warm_up)


def consumer_performance(bootstrap: str, topic: str, *, records: int, settings: Mapping[str, str]) -> Figures:
    """`kafka-consumer-perf-test`: one consumer in a group of its own, from the beginning."""
    given = [word for name, value in settings.items() for word in ("--command-property", f"{name}={value}")]
    command = java_tool(
        "ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records), "--timeout", "60000"),
        *given,
    )
    return parse_consumer(run_tool(command), records)


def share_consumer_performance(bootstrap: str, topic: str, *, records: int, group: str) -> Figures:
    """`kafka-share-consumer-perf-test`: one consumer of a share group, which acknowledges all that it reads."""
    command = java_tool(
        "ShareConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records), "--timeout", "60000"),
        *("--group", group),
    )
    return parse_consumer(run_tool(command), records)


def end_to_end_latency(bootstrap: str, topic: str, *, records: int, record_bytes: int, acks: str) -> Figures:
    """`kafka-e2e-latency`: one record at a time, sent, then read. It counts whole milliseconds, but for the average."""
    command = java_tool("EndToEndLatency", bootstrap, topic, str(records), acks, str(record_bytes))
    return parse_latency(run_tool(command))


def parse_producer(text: str, records: int) -> Figures:
    """Return the figures in the last line of ProducerPerformance, which must report this many records."""
    for line in reversed(text.splitlines()):
        sent, latencies = _SENT.match(line), _PERCENTILES.search(line)
        if sent and latencies:
            if int(sent[1]) != records:
                raise ToolFailed(f"{sent[1]} of {records} records were sent: {text[-2000:]}")
            figures = {"records_per_s": _number(sent[3]), "mb_per_s": _number(sent[4])}
            return figures | _three(latencies)
    raise ToolFailed(f"the producer told no figures: {text[-2000:]}")


def parse_consumer(text: str, records: int) -> Figures:
    """Figures from the line under the header; the time to join the group is not in them where the tool knows it."""
    lines = text.splitlines()
    for names, values in itertools.pairwise(lines):
        if not names.startswith("start.time"):
            continue
        row = dict(zip(names.split(", "), values.split(", "), strict=False))
        if int(row["data.consumed.in.nMsg"]) < records:
            raise ToolFailed(f"{row['data.consumed.in.nMsg']} of {records} records were read: {text[-2000:]}")
        return {
            "records_per_s": float(row.get("fetch.nMsg.sec") or row["nMsg.sec"]),
            "mb_per_s": float(row.get("fetch.MB.sec") or row["MB.sec"]),
            "time_ms": float(row["fetch.time.ms"]),
        }
    raise ToolFailed(f"the consumer told no figures: {text[-2000:]}")


def parse_latency(text: str) -> Figures:
    """Figures of EndToEndLatency."""
    average, percentiles = _AVERAGE.search(text), _LATENCY.search(text)
    if not average or not percentiles:
        raise ToolFailed(f"no latencies were told: {text[-2000:]}")
    return {"time_ms": _number(average[1])} | _three(percentiles)


def _three(match: re.Match[str]) -> Figures:
    return {name: float(value) for name, value in zip(("p50_ms", "p99_ms", "p999_ms"), match.groups(), strict=True)}


def _number(text: str) -> float:
    return float(text.replace(",", "."))
