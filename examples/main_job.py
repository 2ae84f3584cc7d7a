"""The main job, from an empty folder to checked results: a cluster, orders, a pipeline, and injected failures.

Three nodes run on this machine. The example produces orders, some of them bad, while the pipeline reads them into
tables of all records, valid orders, dead letters and totals, and sends alerts to a topic. Meanwhile it kills a broker
and a Spark task. Then it turns the topic into an Iceberg table, which DuckDB reads. At the end it counts
everything: each order must exist once, and the lag must be zero. An HTML page shows the run in plots.
"""

import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from ottla.cli.local_cluster import LocalCluster
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.producer import Producer

sys.path.insert(0, str(Path(__file__).parent))
from main_job_page import JobReport, write_page

HERE = Path(__file__).parent
ROOT = HERE.parent / "build" / "demo"
FIRST, SECOND = 30_000, 20_000
EXPENSIVE_PRICE = 950
OTTLA = (sys.executable, "-m", "ottla")


class Orders(NamedTuple):
    """The number of orders of each kind that were sent."""

    sent: int
    malformed: int
    unpriced: int
    expensive: int

    def plus(self, other: "Orders") -> "Orders":
        return Orders(*(left + right for left, right in zip(self, other, strict=True)))


def main() -> None:
    began_s = time.monotonic()
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    report = JobReport()
    cluster = LocalCluster(ROOT / "cluster", nodes=3, base_port=free_ports(), settings={})
    project = ROOT / "shop"
    shutil.copytree(HERE / "shop", project)
    (ROOT / "trap").touch()
    try:
        report.show("starting three nodes")
        cluster.prepare()
        cluster.start()
        wait_until(lambda: all(node.is_ready for node in cluster.nodes), "the nodes are ready")
        asyncio.run(create_topics(cluster.servers))
        report.show(f"cluster at {cluster.servers}; topics orders and alerts")
        run_all(report, cluster, project)
        tables = count_tables(project)
        stop_spark(project)
        problems = check(report, cluster, {**tables, **make_table(report, cluster.servers)})
    finally:
        stop_spark(project)
        cluster.stop()
        cluster.kill()
    page = write_page(report, ROOT / "summary.html")
    print(f"\nTotal time: {time.monotonic() - began_s:.0f} s. Plots and figures: {page}")
    if problems:
        raise SystemExit("\n".join(problems))
    print_next(project)


def run_all(report: "JobReport", cluster: LocalCluster, project: Path) -> None:
    """Run the pipeline twice: a cold run through all failures, and a warm one."""
    environment = {**os.environ, "BOOTSTRAP_SERVERS": cluster.servers, "KILL_A_TASK": str(ROOT / "trap")}
    sender = Sender(cluster.servers, FIRST)
    sender.start()
    victim = cluster.nodes[1]

    def kill_broker(event: dict[str, Any]) -> None:
        if event["event"] == "flow" and event["state"] == "running" and victim.exit_code() is None and not report.marks:
            assert victim.process is not None
            victim.process.kill()
            victim.process.wait()
            report.mark("broker 2 killed")

    run_pipeline(report, project, environment, kill_broker)
    assert not (ROOT / "trap").exists(), "no task was killed"
    report.mark("a Spark task was killed and retried")
    report.orders = sender.finish()
    victim.start()
    wait_until(lambda: victim.is_ready, "node 2 is back")
    report.mark("broker 2 is back")
    more = Sender(cluster.servers, SECOND, first=FIRST)
    more.start()
    report.orders = report.orders.plus(more.finish())
    report.show(f"{report.orders.sent:,} orders sent; a warm run reads the rest")
    report.warm_s = run_pipeline(report, project, environment, lambda event: None)


def run_pipeline(report: "JobReport", project: Path, environment: dict[str, str], watch: Any) -> float:
    """Run `ottla pipeline run` and process its events; return its duration in seconds."""
    began_s = time.monotonic()
    command = [*OTTLA, "pipeline", "run", str(project), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            report.add_event(event)
            watch(event)
    if process.returncode:
        raise SystemExit("the pipeline failed")
    return time.monotonic() - began_s


class Sender(threading.Thread):
    """Sends orders in the background: one in 500 is not JSON, one in 300 has no price."""

    def __init__(self, servers: str, count: int, *, first: int = 0) -> None:
        super().__init__()
        self._servers = servers
        self._numbers = range(first, first + count)
        self._orders = Orders(0, 0, 0, 0)
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:  # noqa: BLE001 (`finish` raises it)
            self._error = error

    def finish(self) -> Orders:
        self.join()
        if self._error is not None:
            raise self._error
        return self._orders

    async def _send(self) -> None:
        chance = random.Random(self._numbers.start)
        deliveries = []
        async with Cluster(self._servers) as cluster, Producer(cluster) as producer:
            for number in self._numbers:
                price = round(chance.uniform(1, 1000), 2)
                order = {"id": number, "customer": f"customer-{number % 40}", "price": price}
                malformed, unpriced = number % 500 == 7, number % 300 == 11
                if unpriced:
                    del order["price"]
                value = b"{ no order" if malformed else json.dumps(order).encode()
                expensive = price > EXPENSIVE_PRICE and not malformed and not unpriced
                self._orders = self._orders.plus(Orders(1, malformed, unpriced and not malformed, expensive))
                deliveries.append(await producer.send("orders", value, key=str(order["customer"]).encode()))
                if number % 500 == 0:
                    await asyncio.sleep(0.05)  # so that the pipeline has to wait for records
        for delivery in deliveries:
            await delivery


def stop_spark(project: Path) -> None:
    subprocess.run([*OTTLA, "pipeline", "stop", str(project)], stdout=subprocess.DEVNULL, check=True, timeout=90)


def make_table(report: "JobReport", servers: str) -> dict[str, int]:
    """Turn the topic into an Iceberg table, and count its rows with DuckDB, without Ottla or Spark."""
    import duckdb
    from pyiceberg.catalog import load_catalog

    home = ROOT / "tables"
    report.show("turning topic orders into an Iceberg table")
    for words in (["create", "orders", "--topic", "orders", "-b", servers], ["run", "orders", "--once"]):
        command = [*OTTLA, "table", *words, "--home", str(home)]
        # The Connect session of `count_tables` has set SPARK_ variables, which would affect the command.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        subprocess.run(command, check=True, timeout=300, env=environment)
    catalog = load_catalog("ottla", type="sql", uri=f"sqlite:///{home / 'catalog.db'}")
    with duckdb.connect() as connection:
        connection.register("orders", catalog.load_table("default.orders").scan().to_arrow())
        connection.register("letters", catalog.load_table("default.orders_dead_letters").scan().to_arrow())
        counts = connection.execute("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM letters)").fetchone()
        top = connection.execute(
            "SELECT customer, sum(price) FROM orders GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
        ).fetchone()
    assert counts is not None, "DuckDB returned no counts"
    assert top is not None, "the table has no orders"
    report.show(f"DuckDB reads {counts[0]:,} rows; {top[0]} has spent the most: {top[1]:,.2f}")
    return {"iceberg": int(counts[0]), "iceberg dead letters": int(counts[1])}


def count_tables(project: Path) -> dict[str, int]:
    """Count the rows of the pipeline's tables with its Spark server, which is still running."""
    from pyspark.sql import SparkSession

    from ottla.spark.pipelines.project import find_project
    from ottla.spark.pipelines.server import ServerHome

    server = ServerHome(find_project(project)).find()
    assert server is not None, "the Spark server is not running"
    session = SparkSession.builder.remote(server.address).create()
    try:
        tables = {name: session.table(name).count() for name in ("bronze", "parsed", "dead_letters", "malformed")}
        tables["totals"] = int(session.sql("SELECT sum(orders) FROM totals").collect()[0][0])
        tables["distinct ids"] = session.table("parsed").select("id").distinct().count()
    finally:
        session.stop()
    return tables


def check(report: "JobReport", cluster: LocalCluster, tables: dict[str, int]) -> list[str]:
    """Compare the counts with the orders that were sent; return the differences."""
    sent = report.orders
    alerts = count_records(cluster.servers, "alerts")
    expected = {
        "bronze": (tables["bronze"], sent.sent),
        "without a price": (tables["dead_letters"], sent.unpriced),
        "malformed": (tables["malformed"], sent.malformed),
        "parsed": (tables["parsed"], sent.sent - sent.malformed - sent.unpriced),
        "distinct ids": (tables["distinct ids"], tables["parsed"]),
        "orders in totals": (tables["totals"], tables["parsed"]),
        "alerts in the topic": (alerts, sent.expensive),
        "rows of the Iceberg table": (tables["iceberg"], sent.sent - sent.malformed),
        "its dead letters": (tables["iceberg dead letters"], sent.malformed),
        "lag": (report.lag.get("bronze", -1), 0),
    }
    report.counts = expected
    print()
    for name, (count, wanted) in expected.items():
        print(
            f"  {'✓' if count == wanted else '✗'} {name}: {count:,}" + ("" if count == wanted else f", not {wanted:,}")
        )
    return [f"{name}: {count:,} instead of {wanted:,}" for name, (count, wanted) in expected.items() if count != wanted]


def count_records(servers: str, topic: str) -> int:
    """Count the committed records of a topic."""
    import pyarrow as pa

    from ottla.spark.connector.micro_batch_reader import plan_batch, read_range
    from ottla.spark.connector.read_options import parse_read_options

    options = parse_read_options({"kafka.bootstrap.servers": servers, "subscribe": topic}, streaming=False)
    schema = pa.schema([("offset", pa.int64())])
    return sum(batch.num_rows for wanted in plan_batch(options) for batch in read_range(options, wanted, schema))


async def create_topics(servers: str) -> None:
    async with Cluster(servers) as cluster:
        admin = Admin(cluster)
        await admin.create_topic("orders", partitions=6, replicas=3)
        await admin.create_topic("alerts", partitions=3, replicas=3)


def wait_until(is_true: Any, condition: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            raise SystemExit(f"not true after {timeout_s:g} s: {condition}")
        time.sleep(0.05)


def free_ports() -> int:
    """Return the first of six consecutive free ports."""
    while True:
        first = random.SystemRandom().randrange(15_000, 32_000)
        try:
            for port in range(first, first + 6):
                with socket.socket() as listener:
                    listener.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def print_next(project: Path) -> None:
    print(
        "\nWhat to try next:\n"
        f"  less {project}/transformations/orders.py     read the whole pipeline\n"
        "  ottla serve & ottla pipeline init mine        create your own pipeline\n"
        "  ottla pipeline run mine --continuous          run it continuously\n"
        "  python examples/first_node.py                 use a node from the command line"
    )


if __name__ == "__main__":
    main()
