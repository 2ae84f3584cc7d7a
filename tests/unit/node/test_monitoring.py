"""The metrics of a real node, used through librdkafka."""

import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.node.settings_loader import InvalidConfiguration, load_settings
from tests.support.exposition import Exposition


class Watched:
    """A node in its own process, with its metrics."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        settings = {
            "log.dirs": folder / "data",
            "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
            "ottla.metrics.listener": "127.0.0.1:0",
            "ottla.metrics.partitions": "true",
        }
        options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ottla", "serve", "--verbose", *options], stdout=output, stderr=subprocess.STDOUT
            )
        self.broker = self._find(r"is ready at PLAINTEXT://(\S+),")
        self.watcher = self._find(r"serving metrics at http://(\S+)/metrics")

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.watcher}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metrics(self) -> Exposition:
        time.sleep(1.05)  # they are gathered once a second
        code, text = self.get("/metrics")
        assert code == 200
        return Exposition(text)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()

    def _find(self, pattern: str) -> str:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.log.read_text()):
                return found[1]
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        raise AssertionError(self.log.read_text())


def create_topic(node: Watched, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": node.broker})
    admin.create_topics([NewTopic("orders", partitions, 1)])["orders"].result(20)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    node = Watched(tmp_path)
    yield node
    node.stop()


def test_metrics_of_a_running_node(watched: Watched) -> None:
    assert watched.get("/healthz") == (200, "ok\n")
    assert watched.get("/livez") == (200, "ok\n")
    assert watched.get("/")[0] == 404
    broker = {"bootstrap.servers": watched.broker}
    create_topic(watched, partitions=3)
    producer = Producer(broker)
    for number in range(500):
        producer.produce("orders", b"x" * 100, partition=number % 3)
    assert producer.flush(20) == 0

    shown = watched.metrics()
    assert shown['kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'] == 500
    assert shown['kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}'] > 50_000
    assert sum(shown[f'kafka_log_log_logendoffset{{topic="orders",partition="{part}"}}'] for part in range(3)) == 500
    sizes = sum(shown[f'kafka_log_log_size{{topic="orders",partition="{part}"}}'] for part in range(3))
    assert sizes == shown['kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}']
    assert shown['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] >= 1
    assert shown['kafka_network_requestmetrics_requestbytes_sum{request="Produce"}'] > sizes
    assert shown['kafka_network_requestmetrics_errors_total{request="Produce",error="NONE"}'] >= 1
    for name, value in {
        "kafka_controller_kafkacontroller_activecontrollercount": 1,
        "kafka_controller_kafkacontroller_activebrokercount": 1,
        "kafka_controller_kafkacontroller_fencedbrokercount": 0,
        "kafka_controller_kafkacontroller_globaltopiccount": 1,
        "kafka_controller_kafkacontroller_globalpartitioncount": 3,
        "kafka_controller_kafkacontroller_offlinepartitionscount": 0,
        "kafka_server_replicamanager_partitioncount": 3,
        "kafka_server_replicamanager_leadercount": 3,
        "kafka_server_replicamanager_underreplicatedpartitions": 0,
        "kafka_server_replicamanager_offlinereplicacount": 0,
        "kafka_network_requestchannel_requestqueuesize": 0,
        "kafka_server_kafkaserver_brokerstate": 3,
        "ottla_metadata_applied_lag_records": 0,
    }.items():
        assert shown[name] == value, name
    assert shown['ottla_controller_event_time_ms_count{event="CreateTopics"}'] == 1
    assert shown["kafka_log_logflushstats_logflushrateandtimems_count"] > 0
    assert shown['kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}'] >= 1
    assert 0 <= shown['kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent{window="1m"}'] <= 1


def test_metrics_of_consumers_and_waiting_requests(watched: Watched) -> None:
    broker = {"bootstrap.servers": watched.broker}
    create_topic(watched)
    producer = Producer(broker)
    producer.produce("orders", b"x" * 1000)
    assert producer.flush(20) == 0
    consumer = Consumer({**broker, "group.id": "unused", "fetch.wait.max.ms": 5000, "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    message = consumer.poll(20)
    assert message is not None
    assert message.error() is None
    shown = watched.metrics()
    assert shown['kafka_server_brokertopicmetrics_bytesout_total{topic="orders"}'] > 1000
    assert shown['kafka_network_requestmetrics_totaltimems_count{request="FetchConsumer"}'] >= 1
    assert shown['kafka_server_delayedoperationpurgatory_purgatorysize{delayedoperation="Fetch"}'] == 1
    assert shown['kafka_server_delayedoperationpurgatory_numdelayedoperations{delayedoperation="Fetch"}'] == 1
    assert shown['kafka_server_delayedoperationpurgatory_purgatorysize{delayedoperation="ShareFetch"}'] == 0
    expired = 'kafka_server_delayedfetchmetrics_expires_total{fetchertype="consumer"}'
    assert shown[expired] == 0
    assert consumer.poll(5.5) is None, "there is nothing more"
    shown = watched.metrics()
    assert shown[expired] >= 1
    assert shown['kafka_server_delayedfetchmetrics_expires_total{fetchertype="follower"}'] == 0
    assert shown["kafka_server_delayedproducemetrics_expires_total"] == 0
    assert shown["kafka_server_fetchsessioncache_numincrementalfetchsessions"] >= 0
    consumer.close()


def test_a_transaction_that_is_open_for_too_long_is_shown(watched: Watched) -> None:
    name = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    create_topic(watched, partitions=2)
    producer = Producer({"bootstrap.servers": watched.broker, "transactional.id": "late"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"now", partition=0)
    assert producer.flush(20) == 0
    assert watched.metrics()[name] == 0
    an_hour_ago_ms = int(time.time() * 1000) - 3_600_000
    producer.produce("orders", b"an hour ago", partition=1, timestamp=an_hour_ago_ms)
    assert producer.flush(20) == 0
    assert watched.metrics()[name] == 1
    producer.commit_transaction(20)
    assert watched.metrics()[name] == 0


def test_a_restart_does_not_count_stored_records(tmp_path: Path) -> None:
    first = Watched(tmp_path)
    broker = {"bootstrap.servers": first.broker}
    create_topic(first)
    producer = Producer(broker)
    producer.produce("orders", b"x")
    assert producer.flush(20) == 0
    assert first.stop() == 0
    second = Watched(tmp_path)
    try:
        shown = second.metrics()
        assert shown['kafka_log_log_logendoffset{topic="orders",partition="0"}'] == 1
        assert "kafka_server_brokertopicmetrics_messagesin_total" not in shown.metrics
    finally:
        second.stop()


def test_ottlas_own_settings_are_validated() -> None:
    settings = load_settings(None, {"ottla.metrics.listener": "[::1]:0", "ottla.metric.partitions": "true"})
    assert settings["ottla.metrics.listener"] == ("[::1]:0",)
    assert settings.warnings == (
        "--set: ottla.metric.partitions is not a setting and is ignored; did you mean ottla.metrics.partitions?",
    )
    with pytest.raises(InvalidConfiguration, match=r"ottla\.metrics\.listener=nowhere"):
        load_settings(None, {"ottla.metrics.listener": "nowhere"})
