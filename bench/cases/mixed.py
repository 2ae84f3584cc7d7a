"""Mixed load: producers at full speed, consumers that catch up, and a consumer that waits for each record."""

from concurrent.futures import ThreadPoolExecutor

from bench.cases.consume import fill_topic
from bench.harness.case import Trial, case
from bench.harness.figures import Figures
from bench.harness.load import librdkafka

GOALS = {"server_cpu_s": 0.6, "p99_ms": 0.7}
PARTITIONS = 10


@case(
    "mixed-load",
    "10 producers, 3 consumers catching up, and latency at 500 records/s, concurrently",
    goals=GOALS,
    seconds=50,
)
def mixed_load(trial: Trial) -> Figures:
    """Percentiles are those of the records at 500/s; throughput is that of the producers plus the three consumers."""
    bootstrap = trial.cluster.bootstrap
    backlog = trial.scaled(400_000)
    backlog_topic = fill_topic(trial, backlog, PARTITIONS)
    with (
        trial.topic(PARTITIONS) as load_topic,
        trial.topic() as latency_topic,
        ThreadPoolExecutor(3) as clients,
        trial.measured() as figures,
    ):
        producing = clients.submit(
            librdkafka,
            "produce",
            bootstrap=bootstrap,
            topic=load_topic,
            producers=10,
            records=trial.scaled(300_000),
            record_bytes=1_000,
            settings={"acks": "1"},
        )
        reading = clients.submit(
            librdkafka,
            "consume",
            bootstrap=bootstrap,
            topic=backlog_topic,
            partitions=PARTITIONS,
            consumers=3,
            records=backlog,
            settings={},
        )
        waiting = clients.submit(
            librdkafka,
            "end-to-end",
            bootstrap=bootstrap,
            topic=latency_topic,
            records_per_s=500,
            seconds=max(1.0, 6 * trial.scale),
            record_bytes=100,
            consumers=1,
            producer_settings={"acks": "1"},
        )
        figures |= waiting.result()
        figures["records_per_s"] = producing.result()["records_per_s"] + reading.result()["records_per_s"]
    return figures
