"""Kafka's performance tools, run as their scripts run them, and the figures from their output."""

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
    """A client failed or printed something unexpected. The message ends with its last output."""


def run_tool(command: Sequence[str]) -> str:
    """Run a tool and return its output. Raise ToolFailed if it fails."""
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(f"{' '.join(command[-8:])}: no result after {TIMEOUT_S} s") from error
    if result.returncode:
        raise ToolFailed(f"exit {result.returncode}: {(result.stdout + result.stderr)[-2000:]}")
    return result.stdout


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
    """Run `kafka-producer-perf-test`. A latency lasts from the call of `send` to the response.

    The figures leave out the first `warm_up` records, during which the JVM compiles the producer's code.
    """
    properties = [f"{name}={value}" for name, value in settings.items()]
    options = ["--transaction-duration-ms", str(transaction_ms)] if transaction_ms else []
    if warm_up:
        options += ["--warmup-records", str(warm_up)]
    command = java_tool(
        "ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *("--num-records", str(records), "--record-size", str(record_bytes), "--throughput", str(records_per_s)),
        *options,
        *(["--command-property", *properties] if properties else []),
    )
    return parse_producer(run_tool(command), records - warm_up)


def consumer_performance(bootstrap: str, topic: str, *, records: int, settings: Mapping[str, str]) -> Figures:
    """Run `kafka-consumer-perf-test`: one consumer in its own group, from the beginning."""
    properties = [word for name, value in settings.items() for word in ("--command-property", f"{name}={value}")]
    command = java_tool(
        "ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records), "--timeout", "60000"),
        *properties,
    )
    return parse_consumer(run_tool(command), records)


def share_consumer_performance(bootstrap: str, topic: str, *, records: int, group: str) -> Figures:
    """Run `kafka-share-consumer-perf-test`: one consumer of a share group, which acknowledges all records."""
    command = java_tool(
        "ShareConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records), "--timeout", "60000"),
        *("--group", group),
    )
    return parse_consumer(run_tool(command), records)


def end_to_end_latency(bootstrap: str, topic: str, *, records: int, record_bytes: int, acks: str) -> Figures:
    """Run `kafka-e2e-latency`, which sends and reads one record at a time. Only the average is finer than 1 ms."""
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
            return figures | _percentile_figures(latencies)
    raise ToolFailed(f"the producer printed no figures: {text[-2000:]}")


def parse_consumer(text: str, records: int) -> Figures:
    """Return the figures in the line after the header, without the time to join the group if the tool reports it."""
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
    raise ToolFailed(f"the consumer printed no figures: {text[-2000:]}")


def parse_latency(text: str) -> Figures:
    """Return the figures that EndToEndLatency prints."""
    average, percentiles = _AVERAGE.search(text), _LATENCY.search(text)
    if not average or not percentiles:
        raise ToolFailed(f"EndToEndLatency printed no latencies: {text[-2000:]}")
    return {"time_ms": _number(average[1])} | _percentile_figures(percentiles)


def _percentile_figures(match: re.Match[str]) -> Figures:
    return {name: float(value) for name, value in zip(("p50_ms", "p99_ms", "p999_ms"), match.groups(), strict=True)}


def _number(text: str) -> float:
    return float(text.replace(",", "."))
