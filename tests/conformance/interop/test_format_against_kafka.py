"""Configuration and formatting against Kafka's KafkaConfig and StorageTool, and a Kafka broker on the result.

All questions go to one Java process, whose source is below: `format` runs `kafka-storage format`, and `config` reads a
configuration as a broker does. Each answer is a line.
"""

import base64
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench.harness.kafka_jars import java, kafka_libs

from ottla.config.listeners import ListenerEndpoint
from ottla.metadata.image.encoding import ControlEntry, entries
from ottla.node.formatting import FormattingRefused, format_directories
from ottla.node.settings_loader import InvalidConfiguration, NodeSettings, load_settings
from ottla.protocol.messages.records.raft_records import SnapshotHeaderRecord, VotersRecord
from ottla.protocol.wire.batch import check_crc, read_batches
from ottla.storage.directories.node_files import read_meta
from ottla.storage.disk import SystemDisk
from tests.support.kafka_broker import KafkaNode

CLUSTER_ID = "b3R0bGEtaW50ZXJvcC0xMA"
JUDGE = r"""
import java.io.*;
import java.util.*;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.utils.Utils;
import scala.jdk.javaapi.CollectionConverters;

public class Judge {
    public static void main(String[] ignored) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream answers = System.out;
        System.setOut(System.err);
        for (String line; (line = questions.readLine()) != null; ) {
            String[] words = line.split("\t");
            answers.println(answer(words).replace("\n", " "));
        }
        answers.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] words) {
        try {
            if (words[0].equals("config")) return "yes\t" + config(words[1]);
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            int code = kafka.tools.StorageTool.execute(words, new PrintStream(output));
            return (code == 0 ? "yes\t" : "no\t") + output.toString();
        } catch (Throwable error) {
            return "no\t" + error;
        }
    }

    private static String config(String path) throws Exception {
        KafkaConfig config = KafkaConfig.fromProps(Utils.loadProps(path), false);
        return String.join("\t",
            endpoints(config.listeners()),
            endpoints(config.effectiveAdvertisedBrokerListeners()),
            endpoints(config.effectiveAdvertisedControllerListeners()),
            config.interBrokerListenerName().value(),
            String.join(",", config.logDirs()),
            config.metadataLogDir(),
            Long.toString(config.logRetentionTimeMillis()),
            Integer.toString(config.nodeId()));
    }

    private static String endpoints(scala.collection.Seq<Endpoint> endpoints) {
        StringJoiner joined = new StringJoiner(";");
        for (Endpoint endpoint : CollectionConverters.asJava(endpoints))
            joined.add(endpoint.listener() + "|" + (endpoint.host() == null ? "" : endpoint.host()) + "|"
                + endpoint.port() + "|" + endpoint.securityProtocol().id);
        return joined.toString();
    }
}
"""
COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.quorum.voters": "1@localhost:9093",
    "log.dirs": "/d/a",
}
DYNAMIC = {**COMBINED, "controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "localhost:9093"}
BROKER = {
    **COMBINED,
    "process.roles": "broker",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.quorum.voters": "2@localhost:9093",
}
CONTROLLER = {**COMBINED, "process.roles": "controller", "listeners": "CONTROLLER://localhost:9093"}


@dataclass
class Question:
    """A question to Java, with its answer."""

    arguments: Sequence[str]
    answer: list[str] = field(default_factory=list)

    @property
    def is_accepted(self) -> bool:
        return self.answer[0] == "yes"


def ask_java(folder: Path, questions: Sequence[Question]) -> None:
    source = folder / "Judge.java"
    source.write_text(JUDGE)
    command = [str(java()), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libs()}/*", str(source)]
    text = "".join("\t".join(question.arguments) + "\n" for question in questions)
    finished = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    answers = finished.stdout.splitlines()
    assert len(answers) == len(questions), finished.stderr[-4000:]
    for question, answer in zip(questions, answers, strict=True):
        question.answer = answer.split("\t")


def write_properties(path: Path, values: Mapping[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


# ---- configurations: Ottla accepts, refuses and interprets them as Kafka ----

Change = Mapping[str, str | None]
COMBINED_CHANGES: dict[str, Change] = {
    "combined": {},
    "no roles": {"process.roles": None},
    "no node id": {"node.id": None},
    "broker id in its place": {"node.id": None, "broker.id": "1"},
    "broker id differs": {"broker.id": "2"},
    "no controller listeners": {"controller.listener.names": None},
    "no quorum": {"controller.quorum.voters": None},
    "bootstrap servers": {
        "controller.quorum.voters": None,
        "controller.quorum.bootstrap.servers": "a:1,[::1]:2",
    },
    "both": {"controller.quorum.bootstrap.servers": "a:1"},
    "not a voter": {"controller.quorum.voters": "2@localhost:9093"},
    "all listeners are the controllers'": {"listeners": "CONTROLLER://localhost:9093"},
    "no controller listener": {"listeners": "PLAINTEXT://localhost:9092"},
    "lower case name": {"controller.listener.names": "controller"},
    "lower case listener": {"listeners": "plaintext://localhost:9092,controller://localhost:9093"},
    "the same port": {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9092"},
    "the same port, any": {"listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0"},
    "the same port, v4 and v6": {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"},
    "the same port, v4 twice": {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.2:9092"},
    "the same port, v4 and a name": {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://a:9092"},
    "the same port three times": {
        "listeners": "PLAINTEXT://127.0.0.1:92,CONTROLLER://[::1]:92,SSL://a:92",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL",
    },
    "the same name": {"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2,CONTROLLER://a:3"},
    "everywhere": {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
    "everywhere by address": {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093"},
    "everywhere, advertised otherwise": {
        "listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
        "advertised.listeners": "PLAINTEXT://me:9092",
    },
    "controllers advertised too": {"advertised.listeners": "PLAINTEXT://me:9092,CONTROLLER://me:93"},
    "advertised 0.0.0.0": {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
    "advertised an unknown listener": {"advertised.listeners": "PLAINTEXT://me:9092,SSL://me:1"},
    "advertised the same port": {
        "listeners": "PLAINTEXT://a:1,SSL://a:2,CONTROLLER://a:3",
        "advertised.listeners": "PLAINTEXT://a:1,SSL://a:1",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL",
    },
    "only controllers advertised": {"advertised.listeners": "CONTROLLER://me:93"},
    "unparseable": {"listeners": "PLAINTEXT:localhost:9092"},
    "invalid port": {"listeners": "PLAINTEXT://localhost:x,CONTROLLER://localhost:9093"},
    "unmapped": {"listeners": "CLIENTS://localhost:9092,CONTROLLER://localhost:9093"},
    "mapped": {
        "listeners": "CLIENTS://localhost:9092,CONTROLLER://localhost:9093",
        "listener.security.protocol.map": "CLIENTS:plaintext , CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "clients",
    },
    "mapped, not between brokers": {
        "listeners": "CLIENTS://localhost:9092,CONTROLLER://localhost:9093",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    },
    "mapped to no protocol": {"listener.security.protocol.map": "PLAINTEXT:X"},
    "no map": {"listener.security.protocol.map": "PLAINTEXT"},
    "map without controllers": {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    "secured without a map": {"listeners": "PLAINTEXT://localhost:9092,SSL://a:1,CONTROLLER://localhost:9093"},
    "between brokers, both ways": {
        "inter.broker.listener.name": "PLAINTEXT",
        "security.inter.broker.protocol": "PLAINTEXT",
    },
    "between brokers, unmapped": {"inter.broker.listener.name": "OTHER"},
    "between brokers, the controllers'": {"inter.broker.listener.name": "CONTROLLER"},
    "between brokers, sasl": {
        "listeners": "SASL_PLAINTEXT://a:1,CONTROLLER://a:2",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    },
    "between brokers, sasl enabled": {
        "listeners": "SASL_PLAINTEXT://a:1,CONTROLLER://a:2",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "GSSAPI, PLAIN",
    },
    "roll": {"log.roll.ms": "0"},
    "jitter": {"log.roll.jitter.ms": "-1"},
    "retention 0": {"log.retention.ms": "0"},
    "retention -5": {"log.retention.ms": "-5"},
    "retention in minutes": {"log.retention.minutes": "2"},
    "retention in minutes, 0": {"log.retention.minutes": "0"},
    "retention in all units": {
        "log.retention.hours": "1",
        "log.retention.minutes": "2",
        "log.retention.ms": "3",
    },
    "retention in hours": {"log.retention.hours": "-1"},
    "log dir": {"log.dirs": None, "log.dir": "/x/y,/z"},
    "both log dirs": {"log.dir": "/x/y"},
    "no log dirs": {"log.dirs": ""},
    "metadata dir": {"metadata.log.dir": "/m"},
    "cleaner buffer": {"log.cleaner.dedupe.buffer.size": "1048576"},
    "cleaner buffer for two": {
        "log.cleaner.dedupe.buffer.size": "2097153",
        "log.cleaner.threads": "2",
    },
    "cleaner buffer for two, enough": {
        "log.cleaner.dedupe.buffer.size": "2097154",
        "log.cleaner.threads": "2",
    },
    "no cleaner": {"log.cleaner.threads": "0"},
    "fetch wait": {"replica.fetch.wait.max.ms": "30001"},
    "lag": {"replica.lag.time.max.ms": "499"},
    "heartbeats": {"broker.heartbeat.interval.ms": "9000"},
    "queued bytes": {"queued.max.request.bytes": "1000"},
    "no connections": {"max.connections.per.ip": "0"},
    "no connections with overrides": {
        "max.connections.per.ip": "0",
        "max.connections.per.ip.overrides": "a:1,::1:3",
    },
    "invalid override": {"max.connections.per.ip.overrides": "a b:1"},
    "override without a count": {"max.connections.per.ip.overrides": "a:b"},
    "failed authentication": {"connections.max.idle.ms": "100"},
    "failed authentication, never idle": {"connections.max.idle.ms": "-1"},
    "early": {"early.start.listeners": "PLAINTEXT"},
    "unknown early listener": {"early.start.listeners": "SSL"},
    "early in lower case": {"early.start.listeners": "plaintext"},
    "cordoned": {"cordoned.log.dirs": "/d/a"},
    "compressed offsets": {"offsets.topic.compression.codec": "4"},
    "invalid compression of offsets": {"offsets.topic.compression.codec": "5"},
    "compressed share states": {"share.coordinator.state.topic.compression.codec": "1"},
    "invalid compression of share states": {"share.coordinator.state.topic.compression.codec": "-1"},
    "unknown cordoned directory": {"cordoned.log.dirs": "/d/b"},
    "all cordoned": {"cordoned.log.dirs": "*"},
    "all directories and one cordoned": {"cordoned.log.dirs": "*,/d/a"},
    "no classic protocol": {"group.coordinator.rebalance.protocols": "consumer"},
    "two assignors": {"group.share.assignors": "simple,other"},
    "heartbeat above session timeout": {
        "group.consumer.heartbeat.interval.ms": "45000",
        "group.consumer.max.heartbeat.interval.ms": "60000",
    },
    "heartbeat above maximum": {"group.share.heartbeat.interval.ms": "15001"},
    "session timeout below minimum": {"group.streams.session.timeout.ms": "44999"},
    "minimum above maximum": {"group.consumer.min.session.timeout.ms": "60001"},
    "assignment": {"group.streams.assignment.interval.ms": "15001"},
    "standbys": {"group.streams.num.standby.replicas": "3"},
    "deliveries": {"group.share.delivery.count.limit": "3", "group.share.min.delivery.count.limit": "4"},
    "locks": {"group.share.partition.max.record.locks": "5000"},
    "lock duration": {"group.share.record.lock.duration.ms": "60001"},
    "share sessions": {"group.share.max.share.sessions": "199"},
    "not a number": {"num.partitions": "x"},
    "unknown": {"nmu.partitions": "3", "super.users": "User:a"},
    "auto join": {"controller.quorum.auto.join.enable": "true"},
    "roles twice": {"process.roles": "broker,broker"},
    "unknown role": {"process.roles": "zookeeper"},
}
BROKER_CHANGES: dict[str, Change] = {
    "broker": {},
    "broker among voters": {"controller.quorum.voters": "1@localhost:9093"},
    "broker with a controller listener": {"listeners": "PLAINTEXT://a:1,CONTROLLER://a:2"},
    "broker with a map": {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    "broker in lower case": {"controller.listener.names": "controller"},
    "broker that joins": {"controller.quorum.auto.join.enable": "true"},
    "broker with two controller listeners": {"controller.listener.names": "A,B"},
    "broker without listeners": {"listeners": None},
    "secured broker": {"controller.listener.names": "SSL"},
    "secured broker with another listener": {"controller.listener.names": "SSL,B"},
}
CONTROLLER_CHANGES: dict[str, Change] = {
    "controller": {},
    "controller listener between brokers": {"inter.broker.listener.name": "CONTROLLER"},
    "controller with another listener": {"listeners": "CONTROLLER://a:1,PLAINTEXT://a:2"},
    "controller that advertises": {"advertised.listeners": "CONTROLLER://me:1"},
    "controller without host": {
        "listeners": "CONTROLLER://:1",
        "controller.quorum.voters": "1@voter:77",
    },
    "controller without host or voters": {
        "listeners": "CONTROLLER://0.0.0.0:1",
        "controller.quorum.voters": None,
        "controller.quorum.bootstrap.servers": "a:1",
    },
    "two controller listeners": {
        "listeners": "A://:1,B://:2",
        "controller.listener.names": "A,B",
        "controller.quorum.voters": "1@voter:77",
    },
}
CONFIGURATIONS: dict[str, tuple[Mapping[str, str], Change]] = {
    name: (base, change)
    for base, changes in ((COMBINED, COMBINED_CHANGES), (BROKER, BROKER_CHANGES), (CONTROLLER, CONTROLLER_CHANGES))
    for name, change in changes.items()
}
"""Name → a consistent configuration and a change to it; None removes a setting."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Question]:
    """Ask all questions of this module in one run of Java."""
    folder = tmp_path_factory.mktemp("judge")
    questions = {}
    for number, (name, (base, change)) in enumerate(CONFIGURATIONS.items()):
        values = {key: value for key, value in {**base, **change}.items() if value is not None}
        path = write_properties(folder / f"{number}.properties", values)
        questions[name] = Question(["config", str(path)])
    for name, case in FORMATS.items():
        path = write_properties(folder / name / "server.properties", case.properties(folder / name))
        questions[f"format {name}"] = Question(["format", "-t", CLUSTER_ID, "-c", str(path), *case.flags])
    ask_java(folder, list(questions.values()))
    return questions


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations_are_accepted_or_refused_as_in_kafka(name: str, answers: Mapping[str, Question]) -> None:
    question = answers[name]
    if question.is_accepted:
        assert listener_summary(load_settings(question.arguments[1])) == question.answer[1:]
    else:
        with pytest.raises(InvalidConfiguration, match=f"^{question.arguments[1]}"):
            load_settings(question.arguments[1])


def listener_summary(settings: NodeSettings) -> list[str]:
    return [
        format_endpoints(settings.listeners),
        format_endpoints(settings.advertised),
        format_endpoints(settings.advertised_controllers),
        settings.inter_broker_listener_name,
        ",".join(settings.log_dirs),
        settings.metadata_log_dir,
        str(settings.retention_ms),
        str(settings.node_id),
    ]


def format_endpoints(endpoints: Sequence[ListenerEndpoint]) -> str:
    return ";".join(
        f"{endpoint.name}|{endpoint.host}|{endpoint.port}|{int(endpoint.protocol)}" for endpoint in endpoints
    )


# ---- formatting: the same files with the same records, except for ids and times ----


@dataclass(frozen=True)
class Formatting:
    """A way to format a node."""

    base: Mapping[str, str]
    flags: tuple[str, ...] = ()
    change: Mapping[str, str] = field(default_factory=dict)

    def properties(self, folder: Path) -> dict[str, str]:
        return {
            **self.base,
            "log.dirs": f"{folder}/b,{folder}/a",
            **{name: value.replace("FOLDER", str(folder)) for name, value in self.change.items()},
        }


ALICE = 'SCRAM-SHA-256=[name=alice,password=alice-secret,salt="MWx2NXV1aWQ="]'
BOB = "SCRAM-SHA-512=[name=bob,iterations=8192,salt=N3E=,saltedpassword=YCE=]"
TWO = "1@localhost:9093:JEXY6aqzQY-32P5TStzaFg,2@[::1]:9094:MvDxzVmcRsaTz33bUuRU6A"
FORMATS = {
    "static": Formatting(COMBINED),
    "metadata-apart": Formatting(COMBINED, change={"metadata.log.dir": "FOLDER/m"}),
    "standalone": Formatting(DYNAMIC, ("--standalone",)),
    "initial-controllers": Formatting(DYNAMIC, ("-I", TWO)),
    "initial-controllers-twice": Formatting(DYNAMIC, ("-I", f"{TWO},1@a:1:JEXY6aqzQY-32P5TStzaFg")),
    "initial-controllers-invalid": Formatting(DYNAMIC, ("-I", "1@a:1")),
    "initial-controllers-elsewhere": Formatting(DYNAMIC, ("-I", "7@a:1:JEXY6aqzQY-32P5TStzaFg")),
    "joins": Formatting(DYNAMIC, ("-N",)),
    "joins-with-level": Formatting(DYNAMIC, ("-N", "-f", "kraft.version=1")),
    "joins-with-level-0": Formatting(DYNAMIC, ("-N", "-f", "kraft.version=0")),
    "no-quorum-option": Formatting(DYNAMIC),
    "voters-and-standalone": Formatting(COMBINED, ("--standalone",)),
    "broker": Formatting(BROKER),
    "broker-dynamic": Formatting({**BROKER, **{name: DYNAMIC[name] for name in list(DYNAMIC)[4:]}}),
    "broker-standalone": Formatting({**BROKER, **{name: DYNAMIC[name] for name in list(DYNAMIC)[4:]}}, ("-s",)),
    "controller": Formatting(CONTROLLER),
    "release-3.3": Formatting(COMBINED, ("-r", "3.3")),
    "release-3.4": Formatting(COMBINED, ("-r", "3.4-IV0")),
    "release-3.9.1": Formatting(COMBINED, ("-r", "3.9.1")),
    "release-4.0": Formatting(COMBINED, ("-r", "4.0")),
    "release-4.0-IV0": Formatting(COMBINED, ("-r", "4.0-IV0")),
    "release-4.1": Formatting(COMBINED, ("-r", "4.1")),
    "release-4.2-IV0": Formatting(COMBINED, ("-r", "4.2-IV0")),
    "release-4.4": Formatting(COMBINED, ("-r", "4.4")),
    "release-4.4-IV0": Formatting(COMBINED, ("-r", "4.4-IV0")),
    "release-unstable": Formatting(COMBINED, change={"unstable.feature.versions.enable": "true"}),
    "release-unstable-named": Formatting(
        COMBINED, ("-r", "4.4-IV0"), change={"unstable.feature.versions.enable": "true"}
    ),
    "release-unknown": Formatting(COMBINED, ("-r", "3.0")),
    "release-old-standalone": Formatting(DYNAMIC, ("-s", "-r", "3.3")),
    "feature-levels": Formatting(COMBINED, ("-r", "3.9", "-f", "group.version=1", "-f", "transaction.version=1")),
    "feature-off": Formatting(COMBINED, ("-f", "share.version=0", "-f", "streams.version=0")),
    "feature-needs": Formatting(COMBINED, ("-r", "3.8", "-f", "eligible.leader.replicas.version=1")),
    "feature-needs-met": Formatting(COMBINED, ("-r", "4.0-IV1", "-f", "eligible.leader.replicas.version=1")),
    "feature-unknown": Formatting(COMBINED, ("-f", "foo=1")),
    "feature-level-unknown": Formatting(COMBINED, ("-f", "group.version=7")),
    "feature-metadata": Formatting(COMBINED, ("-f", "metadata.version=25")),
    "feature-metadata-unknown": Formatting(COMBINED, ("-f", "metadata.version=99")),
    "feature-metadata-twice": Formatting(COMBINED, ("-r", "4.0", "-f", "metadata.version=25")),
    "feature-kraft": Formatting(COMBINED, ("-f", "kraft.version=1")),
    "feature-kraft-0": Formatting(COMBINED, ("-f", "kraft.version=0")),
    "scram": Formatting(DYNAMIC, ("-s", "-S", ALICE, "-S", BOB)),
    "scram-too-early": Formatting(COMBINED, ("-r", "3.4", "-S", ALICE)),
    "scram-without-name": Formatting(COMBINED, ("-S", "SCRAM-SHA-256=[password=x]")),
    "scram-few-iterations": Formatting(COMBINED, ("-S", "SCRAM-SHA-256=[name=a,password=x,iterations=100]")),
    "scram-unknown": Formatting(COMBINED, ("-S", "SCRAM-SHA-1=[name=a,password=x]")),
    "scram-unknown-parameter": Formatting(COMBINED, ("-S", "SCRAM-SHA-256=[name=a,password=x,colour=red]")),
    "scram-unsalted": Formatting(COMBINED, ("-S", "SCRAM-SHA-256=[name=a,saltedpassword=YCE=]")),
}
CHOSEN_ID = base64.urlsafe_b64decode("JEXY6aqzQY-32P5TStzaFg==")
NAMES = {"-I": "initial_controllers", "-r": "release_version"}
SWITCHES = {"-s": "standalone", "--standalone": "standalone", "-N": "no_initial_controllers"}


def format_as(flags: Sequence[str], settings: NodeSettings) -> None:
    """Format as the command line does with these flags."""
    remaining = iter(flags)
    arguments: dict[str, object] = {}
    features: dict[str, int] = {}
    scram: list[str] = []
    for flag in remaining:
        if flag in SWITCHES:
            arguments[SWITCHES[flag]] = True
        elif flag in NAMES:
            arguments[NAMES[flag]] = next(remaining)
        elif flag == "-f":
            name, _, level = next(remaining).partition("=")
            features[name] = int(level)
        else:
            assert flag == "-S"
            scram.append(next(remaining))
    format_directories(settings, CLUSTER_ID, features=features, scram=scram, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FORMATS)
def test_nodes_are_formatted_as_in_kafka(name: str, answers: Mapping[str, Question], tmp_path: Path) -> None:
    question, case = answers[f"format {name}"], FORMATS[name]
    kafka_folder = Path(question.arguments[4]).parent
    path = write_properties(tmp_path / "server.properties", case.properties(tmp_path))
    if not question.is_accepted:
        with pytest.raises(FormattingRefused):
            format_as(case.flags, load_settings(path))
        assert list(tmp_path.rglob("*")) == [path]
        return
    format_as(case.flags, load_settings(path))
    assert files_in(tmp_path) == files_in(kafka_folder)
    for file in files_in(tmp_path):
        if file.endswith(".checkpoint"):
            assert read_snapshot(tmp_path / file) == read_snapshot(kafka_folder / file)
        if file.endswith("meta.properties"):
            check_meta(tmp_path / file, kafka_folder / file)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def check_meta(ottla_path: Path, kafka_path: Path) -> None:
    ottla_meta, kafka_meta = (
        read_meta(SystemDisk(), str(ottla_path.parent)),
        read_meta(SystemDisk(), str(kafka_path.parent)),
    )
    assert ottla_meta is not None
    assert kafka_meta is not None
    assert (ottla_meta.cluster_id, ottla_meta.node_id, ottla_meta.others) == (
        kafka_meta.cluster_id,
        kafka_meta.node_id,
        kafka_meta.others,
    )
    assert ottla_meta.directory_id
    # A voter's directory has the id that the operator chose; other ids are random.
    assert (ottla_meta.directory_id == CHOSEN_ID) == (kafka_meta.directory_id == CHOSEN_ID)


def read_snapshot(path: Path) -> list[object]:
    """Return the content of a snapshot without times and random ids."""
    content = path.read_bytes()
    parts: list[object] = []
    for pos, header in read_batches(content):
        check_crc(content, pos, header)
        # The fields before the CRC and after the timestamps.
        parts.append(header._replace(crc=0, base_timestamp=0, max_timestamp=0))
        for entry in entries(content, pos, header):
            assert entry.timestamp == header.base_timestamp
            if isinstance(entry, ControlEntry):
                message = entry.message
                if isinstance(message, SnapshotHeaderRecord) and message.last_contained_log_timestamp:
                    message.last_contained_log_timestamp = 1
                if isinstance(message, VotersRecord) and len(message.voters) == 1:
                    message.voters[0].voter_directory_id = bytes(16)
                parts.append((entry.offset, entry.kind, message))
            else:
                parts.append((entry.offset, entry.version, entry.record))
    return parts


# ---- a broker starts on the result ----


@pytest.mark.parametrize("flags", [[], ["--standalone", "--add-scram", ALICE]], ids=["static", "standalone"])
def test_kafka_starts_on_a_directory_that_ottla_formatted(flags: Sequence[str], tmp_path: Path) -> None:
    node = KafkaNode(tmp_path)
    path = tmp_path / "server.properties"
    if flags:
        text = path.read_text()
        path.write_text(re.sub(r"controller\.quorum\.voters=1@", "controller.quorum.bootstrap.servers=", text))
    command = [sys.executable, "-m", "ottla", "format", "-t", CLUSTER_ID, "-c", str(path), *flags]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    with node.running():
        pass
    meta = read_meta(SystemDisk(), str(node.directory))
    assert meta is not None
    assert meta.cluster_id == CLUSTER_ID
