"""The main job, from nothing to checked results: a cluster, orders, the pipeline, and what goes wrong on the way.

Three nodes run on this machine. Orders are produced, a few of them bad, while the pipeline reads: orders as they came,
those that are sound and dead letters, totals, and alerts in a topic. A broker is killed meanwhile, and a Spark task.
Then the topic becomes an Iceberg table, which DuckDB reads. In the end everything is counted: what was sent is there,
once, and nothing is left to be read. A page tells the story in plots.
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
from main_job_page import Story, write_page

HERE = Path(__file__).parent
ROOT = HERE.parent / "build" / "demo"
FIRST, SECOND = 30_000, 20_000
DEAR = 950
OTTLA = (sys.executable, "-m", "ottla")


class Orders(NamedTuple):
    """How many orders of each kind were sent."""

    sent: int
    unreadable: int
    unpriced: int
    dear: int

    def plus(self, other: "Orders") -> "Orders":
        return Orders(*(mine + its for mine, its in zip(self, other, strict=True)))


def main() -> None:
    began_s = time.monotonic()
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    story = Story()
    cluster = LocalCluster(ROOT / "cluster", nodes=3, base_port=free_ports(), settings={})
    project = ROOT / "shop"
    shutil.copytree(HERE / "shop", project)
    (ROOT / "trap").touch()
    try:
        story.tell("three nodes start")
        cluster.prepare()
        cluster.start()
        wait_until(lambda: all(node.is_ready for node in cluster.nodes), "the nodes are ready")
        asyncio.run(create_topics(cluster.servers))
        story.tell(f"cluster at {cluster.servers}; topics orders and alerts")
        run_all(story, cluster, project)
        tables = count_tables(project)
        stop_spark(project)
        problems = check(story, cluster, {**tables, **make_table(story, cluster.servers)})
    finally:
        stop_spark(project)
        cluster.stop()
        cluster.kill()
    page = write_page(story, ROOT / "summary.html")
    print(f"\n{time.monotonic() - began_s:.0f} s in all. Plots and figures: {page}")
    if problems:
        raise SystemExit("\n".join(problems))
    print_next(project)


def run_all(story: "Story", cluster: LocalCluster, project: Path) -> None:
    """Two runs: a cold one through all trouble, and a warm one."""
    environment = {**os.environ, "BOOTSTRAP_SERVERS": cluster.servers, "KILL_A_TASK": str(ROOT / "trap")}
    sender = Sender(cluster.servers, FIRST)
    sender.start()
    victim = cluster.nodes[1]

    def trouble(event: dict[str, Any]) -> None:
        if event["event"] == "flow" and event["state"] == "running" and victim.exit_code() is None and not story.marks:
            assert victim.process is not None
            victim.process.kill()
            victim.process.wait()
            story.mark("broker 2 killed")

    run_pipeline(story, project, environment, trouble)
    assert not (ROOT / "trap").exists(), "no task was killed"
    story.mark("a Spark task was killed, and tried again")
    story.orders = sender.finish()
    victim.start()
    wait_until(lambda: victim.is_ready, "node 2 is back")
    story.mark("broker 2 is back")
    more = Sender(cluster.servers, SECOND, first=FIRST)
    more.start()
    story.orders = story.orders.plus(more.finish())
    story.tell(f"{story.orders.sent:,} orders sent; a warm run takes up the rest")
    story.warm_s = run_pipeline(story, project, environment, lambda event: None)


def run_pipeline(story: "Story", project: Path, environment: dict[str, str], watch: Any) -> float:
    """`ottla pipeline run`, with its events; how long it took, in seconds."""
    began_s = time.monotonic()
    command = [*OTTLA, "pipeline", "run", str(project), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            story.take(event)
            watch(event)
    if process.returncode:
        raise SystemExit("the pipeline failed")
    return time.monotonic() - began_s


class Sender(threading.Thread):
    """Sends orders in the background: one in 500 is no JSON, one in 300 has no price."""

    def __init__(self, servers: str, count: int, *, first: int = 0) -> None:
        super().__init__()
        self._servers = servers
        self._numbers = range(first, first + count)
        self._orders = Orders(0, 0, 0, 0)
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:  # noqa: BLE001 (told by `finish`)
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
                unreadable, unpriced = number % 500 == 7, number % 300 == 11
                if unpriced:
                    del order["price"]
                value = b"{ no order" if unreadable else json.dumps(order).encode()
                dear = price > DEAR and not unreadable and not unpriced
                self._orders = self._orders.plus(Orders(1, unreadable, unpriced and not unreadable, dear))
                deliveries.append(await producer.send("orders", value, key=str(order["customer"]).encode()))
                if number % 500 == 0:
                    await asyncio.sleep(0.05)  # so that the pipeline has something to wait for
        for delivery in deliveries:
            await delivery


def stop_spark(project: Path) -> None:
    subprocess.run([*OTTLA, "pipeline", "stop", str(project)], stdout=subprocess.DEVNULL, check=True, timeout=90)


def make_table(story: "Story", servers: str) -> dict[str, int]:
    """The topic as an Iceberg table, as DuckDB counts it: without Ottla, and without Spark."""
    import duckdb
    from pyiceberg.catalog import load_catalog

    home = ROOT / "tables"
    story.tell("topic orders becomes an Iceberg table")
    for words in (["create", "orders", "--topic", "orders", "-b", servers], ["run", "orders", "--once"]):
        command = [*OTTLA, "table", *words, "--home", str(home)]
        # A session behind a Connect server, as the one of `count_tables`, leaves its mark in the environment.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        subprocess.run(command, check=True, timeout=300, env=environment)
    catalog = load_catalog("ottla", type="sql", uri=f"sqlite:///{home / 'catalog.db'}")
    with duckdb.connect() as connection:
        connection.register("orders", catalog.load_table("default.orders").scan().to_arrow())
        connection.register("letters", catalog.load_table("default.orders_dead_letters").scan().to_arrow())
        found = connection.execute("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM letters)").fetchone()
        top = connection.execute(
            "SELECT customer, sum(price) FROM orders GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
        ).fetchone()
    assert found is not None, "a count is one row"
    assert top is not None, "there are orders"
    story.tell(f"DuckDB reads {found[0]:,} rows; {top[0]} has spent most: {top[1]:,.2f}")
    return {"iceberg": int(found[0]), "iceberg dead letters": int(found[1])}


def count_tables(project: Path) -> dict[str, int]:
    """What the pipeline's tables hold, asked of the Spark that is still warm."""
    from pyspark.sql import SparkSession

    from ottla.spark.pipelines.project import find_project
    from ottla.spark.pipelines.server import ServerHome

    server = ServerHome(find_project(project)).find()
    assert server is not None, "Spark is warm"
    session = SparkSession.builder.remote(server.address).create()
    try:
        tables = {name: session.table(name).count() for name in ("bronze", "parsed", "dead_letters", "unreadable")}
        tables["totals"] = int(session.sql("SELECT sum(orders) FROM totals").collect()[0][0])
        tables["each once"] = session.table("parsed").select("id").distinct().count()
    finally:
        session.stop()
    return tables


def check(story: "Story", cluster: LocalCluster, tables: dict[str, int]) -> list[str]:
    """Hold what is there against what was sent; what does not add up."""
    sent = story.orders
    alerts = count_records(cluster.servers, "alerts")
    expected = {
        "bronze": (tables["bronze"], sent.sent),
        "without a price": (tables["dead_letters"], sent.unpriced),
        "unreadable": (tables["unreadable"], sent.unreadable),
        "parsed": (tables["parsed"], sent.sent - sent.unreadable - sent.unpriced),
        "parsed, each once": (tables["each once"], tables["parsed"]),
        "orders in totals": (tables["totals"], tables["parsed"]),
        "alerts in the topic": (alerts, sent.dear),
        "rows of the Iceberg table": (tables["iceberg"], sent.sent - sent.unreadable),
        "its dead letters": (tables["iceberg dead letters"], sent.unreadable),
        "lag": (story.lag.get("bronze", -1), 0),
    }
    story.counts = expected
    print()
    for name, (found, wanted) in expected.items():
        print(
            f"  {'✓' if found == wanted else '✗'} {name}: {found:,}" + ("" if found == wanted else f", not {wanted:,}")
        )
    return [f"{name}: {found:,} instead of {wanted:,}" for name, (found, wanted) in expected.items() if found != wanted]


def count_records(servers: str, topic: str) -> int:
    """What a consumer that reads only what is committed finds."""
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


def wait_until(is_so: Any, what: str, patience_s: float = 60) -> None:
    deadline = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"not so after {patience_s:g} s: {what}")
        time.sleep(0.05)


def free_ports() -> int:
    """The first of six ports in a row that nobody listens on."""
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
        f"  less {project}/transformations/orders.py     the whole pipeline\n"
        "  ottla serve & ottla pipeline init mine        one of your own\n"
        "  ottla pipeline run mine --continuous          and keep it up to date\n"
        "  python examples/first_node.py                 a node from start to stop"
    )


if __name__ == "__main__":
    main()
