"""Mixed load: producers at full speed, somebody who reads it all again, and somebody who waits for each record."""

from concurrent.futures import ThreadPoolExecutor

from bench.cases.consume import filled
from bench.harness.case import Trial, case
from bench.harness.figures import Figures
from bench.harness.load import librdkafka

GOALS = {"server_cpu_s": 0.6, "p99_ms": 0.7}
PARTITIONS = 10


@case(
    "mixed-load",
    "10 producers, 3 consumers catching up, and latencies at 500 records/s, all at once",
    goals=GOALS,
    seconds=50,
)
def mixed_load(trial: Trial) -> Figures:
    """Percentiles are those of the records that somebody waits for; the throughput is that of both others together."""
    bootstrap = trial.cluster.bootstrap
    old = trial.scaled(400_000)
    topic = filled(trial, old, PARTITIONS)
    with (
        trial.topic(PARTITIONS) as written,
        trial.topic() as awaited,
        ThreadPoolExecutor(3) as clients,
        trial.measured() as figures,
    ):
        producing = clients.submit(
            librdkafka,
            "produce",
            bootstrap=bootstrap,
            topic=written,
            producers=10,
            records=trial.scaled(300_000),
            record_bytes=1_000,
            settings={"acks": "1"},
        )
        reading = clients.submit(
            librdkafka,
            "consume",
            bootstrap=bootstrap,
            topic=topic,
            partitions=PARTITIONS,
            consumers=3,
            records=old,
            settings={},
        )
        waiting = clients.submit(
            librdkafka,
            "end-to-end",
            bootstrap=bootstrap,
            topic=awaited,
            records_per_s=500,
            seconds=max(1.0, 6 * trial.scale),
            record_bytes=100,
            consumers=1,
            producer_settings={"acks": "1"},
        )
        figures |= waiting.result()
        figures["records_per_s"] = producing.result()["records_per_s"] + reading.result()["records_per_s"]
    return figures
