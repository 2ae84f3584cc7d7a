"""The command line prints the same about Apache Kafka as about Ottla."""

import json
import re

import pytest

from tests.support.commands import run_ottla


def story(address: str, topic: str) -> list[tuple[str, int, str, str]]:
    """Return the output of several commands, without values that differ between clusters."""
    commands: list[tuple[list[str], bytes]] = [
        (["topic", "create", topic, "-p", "3", "--set", "retention.ms=60000000"], b""),
        (["topic", "create", topic], b""),
        (["topic", "create", "a b"], b""),
        (["topic", "create", topic + "x", "-r", "3"], b""),
        (["produce", topic, "-K", ":", "--null", "-", "-z", "zstd", "--json"], b"k1:v1\nk2:v2\nk3:-\n"),
        (["produce", topic, "-p", "7"], b"x\n"),
        (["consume", topic, "--json", "-p", "0"], b""),
        (["consume", topic, "--format", "value", "--last", "1", "-p", "1"], b""),
        (["consume", topic + "x"], b""),
        (["topic", "describe", topic], b""),
        (["topic", "add-partitions", topic, "--to", "4"], b""),
        (["topic", "describe", topic + "x"], b""),
        (["config", "set", "-t", topic, "cleanup.policy+=compact"], b""),
        (["config", "set", "-t", topic, "nonsense=1"], b""),
        (["config", "describe", "-t", topic, "--all"], b""),
        (["config", "describe", "--broker", "3"], b""),
        (["log", "offsets", topic], b""),
        (["log", "delete-records", topic, "-p", "0", "--before", "end"], b""),
        (["log", "delete-records", topic, "-p", "0", "--before", "50"], b""),
        (["cluster", "describe"], b""),
        (["topic", "delete", topic], b""),
        (["topic", "delete", topic], b""),
    ]
    outputs = []
    for arguments, typed in commands:
        done = run_ottla(*arguments, server=address, typed=typed)
        outputs.append(
            (" ".join(arguments), done.returncode, _common(done.stdout, address), _common(done.stderr, address))
        )
    return outputs


def _common(text: str, address: str) -> str:
    text = text.replace(address, "ADDRESS")
    text = re.sub(r"id [\w-]{22}", "id ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r'"timestamp": \d+', '"timestamp": TIME', text)
    # Kafka gives this reason even if there is no directory.
    text = text.replace(" or some brokers have all their log directories cordoned", "")
    # The width of the column depends on the length of the port.
    return re.sub(r" {2,}", "  ", text)


def test_kafka_and_ottla_are_described_in_the_same_words(kafka_address: str, ottla_address: str) -> None:
    theirs, ours = story(kafka_address, "the-same"), story(ottla_address, "the-same")
    differences = [pair for pair in zip(theirs, ours, strict=True) if pair[0] != pair[1]]
    assert not differences, "\n\n".join(f"{one}\n{other}" for one, other in differences)


@pytest.mark.parametrize("words", [["quorum"], ["features"], ["brokers"], ["describe"]])
def test_the_cluster_is_described_with_the_same_fields(
    kafka_address: str, ottla_address: str, words: list[str]
) -> None:
    def fields(address: str) -> object:
        described = json.loads(run_ottla("cluster", *words, "--json", server=address).stdout)
        rows = described if isinstance(described, list) else described.get("members", described.get("brokers"))
        return sorted(rows[0]), len(rows)

    assert fields(kafka_address) == fields(ottla_address)
