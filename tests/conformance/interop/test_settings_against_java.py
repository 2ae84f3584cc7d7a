"""Settings, properties files, directory names and locks work as with Kafka's classes."""

import json
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.config.settings.catalogue import broker_settings, group_settings, topic_settings
from ottla.config.settings.properties import InvalidProperties, parse_properties, show_properties
from ottla.config.settings.setting import InvalidSetting
from ottla.config.settings.topics import validate_topic_settings
from ottla.config.settings.values import SettingType, show_value
from ottla.storage.directories.node_files import (
    DirectoryLock,
    NotAPartition,
    Role,
    marked_directory_name,
    parse_directory_name,
)
from tests.support.java_peer import JavaError, JavaPeer

KINDS = {"broker": broker_settings, "topic": topic_settings, "group": group_settings}
# Numbers around every limit of a setting, and texts around every parsing rule.
TEXTS = [
    *(
        "",
        " ",
        "x",
        "true",
        " TRUE ",
        "False",
        "yes",
        "0",
        "1",
        "-1",
        "-2",
        "-3",
        "+5",
        "05",
        "5 ",
        "- 5",
        "1_0",
        "0x10",
    ),
    *("1.0", "0.5", ".5", "5.", "1e-3", "1E400", "0.5f", "0.5d", "1.0000001", "-0.0", "NaN", "Infinity", "NaNd", "inf"),
    *("32767", "32768", "-32769", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "9" * 5000),
    *(
        "1048575",
        "1048576",
        "524287",
        "8388607",
        "131072",
        "-131072",
        "-131073",
        "9",
        "10",
        "17",
        "18",
        "22",
        "23",
        "3",
    ),
    *("99", "100", "500", "501", "999", "1000", "1001", "1023", "1024", "3600", "3601", "30000", "30001", "3600001"),
    *(
        "compact",
        "delete",
        "compact,delete",
        "delete , compact",
        "delete,delete",
        "Delete",
        "compact,,delete",
        "a,",
        ",",
    ),
    *("producer", "gzip", "none", "uncompressed", "ZSTD", "CreateTime", "createtime", "LogAppendTime", "a\tb", "é"),
    *("*", "**", "*,", "0:1", "0:1,1:2", "0:1, 1:2 ", "0:1,*", "0-1", "0:1,", "0:x", "٣", "1:1\n"),
    *("broker", "controller,broker", "classic,consumer", "SASL_SSL", "required", "read_committed", "upgrade", "Es256"),
    *(
        "latest",
        "Latest",
        "earliest",
        "by_duration",
        "by_duration:",
        "by_duration:P1D",
        "by_duration:PT",
        "by_duration:P",
    ),
    *("by_duration:pt1h", "by_duration:PT-1H", "by_duration:-PT1H", "by_duration:P1DT2H3M4.5S", "by_duration:PT-0.5S"),
    *("by_duration:PT1H-30M", "by_duration:P1Y", "by_duration:PT0S", "by_duration:P99999999999999999999D", "none:P1D"),
    *(
        "1@a:9",
        "1@a:9,2@b:9",
        "1@a",
        "x@a:9",
        "1@a:9@",
        "1@[::1]:9",
        "1@a b:9",
        "a:9",
        "a:",
        "a:99999",
        "[::1]:9",
        ":9",
    ),
    *("1@0.0.0.0:9", "PLAINTEXT://a:9", "2147483648@a:9", "a:9,b:10", "a:9,,b:9"),
]


def ask(peer: JavaPeer, questions: Sequence[Sequence[str | bytes]]) -> list[list[bytes] | JavaError]:
    items = [[part.encode() if isinstance(part, str) else part for part in question] for question in questions]
    return peer._exchange("SETTINGS", items)


@pytest.mark.parametrize("kind", KINDS)
def test_the_catalogue_equals_kafkas(java_peer: JavaPeer, kind: str) -> None:
    [answer] = ask(java_peer, [["definitions", kind]])
    assert isinstance(answer, list)
    theirs = {row["name"]: row for row in map(json.loads, answer)}
    ours = {
        setting.name: {
            "name": setting.name,
            "type": str(setting.type),
            "required": setting.required,
            "default": setting.default,
            "importance": str(setting.importance),
            "internal": setting.internal,
        }
        for setting in KINDS[kind]().values()
    }
    # Java's default depends on the Java version.
    theirs.get("ssl.enabled.protocols", {})["default"] = "TLSv1.2,TLSv1.3"
    assert ours == theirs


@pytest.mark.parametrize("kind", KINDS)
def test_settings_accept_the_values_that_kafka_accepts(java_peer: JavaPeer, kind: str) -> None:
    # Kafka accepts classes that Java can load; Ottla has other classes.
    settings = [setting for setting in KINDS[kind]().values() if setting.type is not SettingType.CLASS]
    for setting in settings:
        answers = ask(java_peer, [["parse", kind, setting.name, text] for text in TEXTS])
        for text, answer in zip(TEXTS, answers, strict=True):
            theirs = None if isinstance(answer, JavaError) else answer[0].decode()
            try:
                value = setting.parse(text)
                ours = "[hidden]" if setting.is_sensitive else show_value(value)
            except InvalidSetting:
                ours = None
            assert ours == theirs, f"{setting.name} = {text!r}: {answer}"


TOPICS: list[tuple[dict[str, str], dict[str, str]]] = [
    ({}, {}),
    ({"no.such.setting": "1"}, {}),
    ({"retention.ms": "-1", "segment.bytes": "2097152"}, {"log.retention.hours": "1", "log.segment.bytes": "1048577"}),
    ({}, {"log.retention.hours": "1", "log.retention.minutes": "5"}),
    ({}, {"log.retention.hours": "1", "log.retention.minutes": "5", "log.retention.ms": "7"}),
    ({}, {"log.retention.hours": "-1"}),
    ({}, {"log.retention.minutes": "-7"}),
    ({}, {"log.roll.hours": "2", "log.roll.jitter.hours": "1", "log.flush.scheduler.interval.ms": "9"}),
    ({}, {"log.roll.hours": "2", "log.roll.ms": "3", "log.flush.interval.ms": "8", "log.roll.jitter.ms": "1"}),
    ({}, {"log.cleanup.policy": "compact,delete", "compression.type": "lz4", "compression.lz4.level": "3"}),
    (
        {},
        {
            "message.max.bytes": "5",
            "log.message.timestamp.type": "LogAppendTime",
            "log.cleaner.min.cleanable.ratio": "1",
        },
    ),
    ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}, {}),
    ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, {}),
    ({"min.compaction.lag.ms": "6"}, {"log.cleaner.max.compaction.lag.ms": "5"}),
    ({"cleanup.policy": ""}, {}),
    ({"internal.segment.bytes": "1000"}, {}),
    ({"remote.storage.enable": "true"}, {}),
    ({"remote.storage.enable": "true", "cleanup.policy": "compact"}, {}),
    ({"remote.storage.enable": "true", "cleanup.policy": "delete,compact"}, {}),
    ({"remote.storage.enable": "true", "cleanup.policy": ""}, {}),
    ({"remote.storage.enable": "true", "local.retention.ms": "-1"}, {}),
    ({"remote.storage.enable": "true", "local.retention.ms": "5", "retention.ms": "4"}, {}),
    ({"remote.storage.enable": "true", "local.retention.ms": "5", "retention.ms": "5"}, {}),
    ({"remote.storage.enable": "true", "local.retention.ms": "5", "retention.ms": "-1"}, {}),
    ({"remote.storage.enable": "true", "local.retention.bytes": "-1", "retention.bytes": "4"}, {}),
    ({"remote.storage.enable": "true", "local.retention.bytes": "-1", "retention.bytes": "-5"}, {}),
    ({"remote.storage.enable": "true", "local.retention.bytes": "5"}, {"log.retention.bytes": "4"}),
    ({"remote.storage.enable": "true", "remote.log.copy.disable": "true"}, {}),
    ({"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "5"}, {}),
    ({"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.bytes": "-1"}, {}),
    ({"remote.log.delete.on.disable": "true"}, {}),
]


@pytest.mark.parametrize("before", [{}, {"remote.storage.enable": "true"}], ids=["local before", "remote before"])
@pytest.mark.parametrize("remote_storage", [False, True])
def test_effective_topic_settings_equal_kafkas(
    java_peer: JavaPeer, before: Mapping[str, str], remote_storage: bool
) -> None:
    flag = "true" if remote_storage else "false"
    answers = ask(
        java_peer,
        [["topic", json.dumps(topic), json.dumps(broker), json.dumps(before), flag] for topic, broker in TOPICS],
    )
    for (topic, broker), answer in zip(TOPICS, answers, strict=True):
        theirs: Any = None if isinstance(answer, JavaError) else json.loads(answer[0])
        try:
            validated = validate_topic_settings(topic, broker, before=before, remote_storage=remote_storage)
            ours = {name: setting.text for name, setting in validated.items()}
        except InvalidSetting:
            ours = None
        assert ours == theirs, f"{topic} {broker}: {answer}"


@pytest.mark.parametrize("seed", range(20))
def test_properties_files_are_parsed_as_in_java(java_peer: JavaPeer, seed: int) -> None:
    randomness = random.Random(seed)
    signs = "ab \\\\\n\r\t\f=:#!u0041\u00e9"
    files = ["".join(randomness.choices(signs, k=randomness.randrange(40))).encode("latin-1") for _ in range(500)]
    # In Java, a lone backslash at the end is an empty key or none, depending on the line end after it.
    files = [file for file in files if not file.rstrip().endswith(b"\\")]
    for file, answer in zip(files, ask(java_peer, [["load properties", file] for file in files]), strict=True):
        theirs: Any = None if isinstance(answer, JavaError) else json.loads(answer[0])
        try:
            ours = {key: entry.value for key, entry in parse_properties(file).items()}
        except InvalidProperties:
            ours = None
        assert ours == theirs, file


def test_each_side_reads_properties_that_the_other_wrote(java_peer: JavaPeer) -> None:
    values = {"a b:=#!\\c": "  x y\t\n\r\f\\ é€😀:=#!", "empty": "", "": "no key", "node.id": "1", "é": "\x7f\x00"}
    [written, read] = ask(
        java_peer, [["store properties", json.dumps(values)], ["load properties", show_properties(values)]]
    )
    assert isinstance(read, list)
    assert isinstance(written, list)
    assert json.loads(read[0]) == values
    assert {key: entry.value for key, entry in parse_properties(written[0]).items()} == values


def test_directory_names_are_parsed_as_in_kafka(java_peer: JavaPeer) -> None:
    unique = "1f3c23e49c0a411e8d886079bb36fafd"
    long = [marked_directory_name("x" * 249, 12, role, unique) for role in Role if role]
    odd = (
        "a-1 a-b-1 a--1 -1 a- a a-1.x-delete a-1.-delete a-1-delete a-+1 a-01 a-1.b-2.u-future a.b-1.u-stray my-delete"
    )
    odd += (
        " a-1.x-y-delete my-future-3 a-1.u-deleted a-1.xyz a-2147483648 a--5.u-delete x-y.z-delete-7 .lock a-1.u-stray"
    )
    names = [*long, *odd.split(), "a- 1", "a b-1", "a b-1.u-delete", "a-1.u-delete\n"]
    for name, answer in zip(names, ask(java_peer, [["directory", name] for name in names]), strict=True):
        theirs = None if isinstance(answer, JavaError) else (answer[0].decode(), int(answer[1]))
        try:
            ours = parse_directory_name(name)[:2]
        except NotAPartition:
            ours = None
        assert ours == theirs, name


def test_kafka_cannot_lock_a_directory_that_ottla_locked(java_peer: JavaPeer, tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    question = [["try lock", os.fspath(tmp_path / ".lock")]]
    assert ask(java_peer, question) == [[b"held"]]
    lock.release()
    assert ask(java_peer, question) == [[b"free"]]
