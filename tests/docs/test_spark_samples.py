"""The Spark samples of the README and the tutorials, run as programs and commands against a node."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.harness.kafka_jars import java

from tests.docs.test_samples import ADDRESS, code_blocks
from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import OttlaNode

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SESSION = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
ORDERS = ('{"id": 1, "item": "a book", "price": 12.5, "customer": "ada", "paid": true}', '{"id": 2, "item": "a lamp"}')


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    """Run a node with a topic `orders` of three partitions and two records."""
    node = OttlaNode(tmp_path, {**SETTINGS, "auto.create.topics.enable": "true"})
    node.format()
    with node.running():
        run_ottla(tmp_path, node, "topic", "create", "orders", "--partitions", "3")
        run_ottla(tmp_path, node, "produce", "orders", input_text="\n".join(ORDERS))
        yield node


def environment(node: OttlaNode) -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(java().parents[1]),
        "OTTLA_BOOTSTRAP_SERVER": node.address,
        "OTTLA_TABLES": str(node.directory.parent / "tables"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run(folder: Path, node: OttlaNode, command: list[str], input_text: str | None = None) -> str:
    finished = subprocess.run(
        command,
        cwd=folder,
        env=environment(node),
        input=input_text,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, f"{command}: {finished.stdout}{finished.stderr}"
    return finished.stdout


def run_ottla(folder: Path, node: OttlaNode, *arguments: str, input_text: str | None = None) -> str:
    return run(folder, node, [sys.executable, "-m", "ottla", *arguments], input_text)


def run_python(folder: Path, node: OttlaNode, sample: str) -> str:
    assert ADDRESS in sample
    return run(folder, node, [sys.executable, "-c", sample.replace(ADDRESS, node.address)])


def consume_values(folder: Path, node: OttlaNode, topic: str) -> list[str]:
    return sorted(run_ottla(folder, node, "consume", topic, "--format", "value").splitlines())


def test_the_streaming_query_of_the_readme_copies_a_topic(tmp_path: Path, node: OttlaNode) -> None:
    [sample] = [block for block in code_blocks("README.md", "python") if "readStream" in block]
    run_python(tmp_path, node, f"{SESSION}{sample}query.processAllAvailable()\nquery.stop()\n")
    assert consume_values(tmp_path, node, "copy") == sorted(ORDERS)


def test_the_samples_of_the_spark_tutorial_run_one_after_the_other(tmp_path: Path, node: OttlaNode) -> None:
    batch, stream, values = code_blocks("docs/tutorials/spark.md", "python")
    output = run_python(tmp_path, node, f"{batch}{stream}{values}print(orders.schema.simpleString())\n")
    assert '{"id": 1, "item"' in output  # Spark shows the first 20 characters
    assert "id:bigint" in output.splitlines()[-1]
    assert consume_values(tmp_path, node, "copy") == sorted(ORDERS)


def test_the_commands_and_the_reader_of_the_tables_tutorial_work(tmp_path: Path, node: OttlaNode) -> None:
    page = "docs/tutorials/tables.md"
    consoles = "".join(code_blocks(page, "console"))
    commands = re.findall(r"^\$ ottla (.*)$", consoles, re.MULTILINE)
    created = [command for command in commands if command.startswith("table create orders")]
    assert len(created) == 1
    run(tmp_path, node, ["bash", "-c", f"ottla {created[0]}"])
    assert "table run --once" in commands
    written = run(tmp_path, node, ["bash", "-c", "ottla table run --once"])
    assert re.search(r"^orders: 2 rows, new columns ", written, re.MULTILINE)
    [reader] = code_blocks(page, "python")
    tables = environment(node)["OTTLA_TABLES"]
    program = reader.replace("/path/to/tables", tables) + "print(sorted(rows.column('id').to_pylist()))\n"
    assert run(tmp_path, node, [sys.executable, "-c", program]).splitlines()[-1] == "[1, 2]"
    assert "orders" in run_ottla(tmp_path, node, "table", "describe", "orders")


def test_the_commands_of_the_pipeline_tutorial_work(tmp_path: Path, node: OttlaNode) -> None:
    consoles = "".join(code_blocks("docs/tutorials/pipeline.md", "console"))
    commands = re.findall(r"^\$ (ottla .*)$", consoles, re.MULTILINE)
    assert commands == ["ottla pipeline init shop", "ottla pipeline run shop"]
    run(tmp_path, node, ["bash", "-c", f"{commands[0]} -b {node.address}"])
    try:
        assert "completed" in run(tmp_path, node, ["bash", "-c", commands[1]])
        assert "completed" in run_ottla(tmp_path, node, "pipeline", "status", "shop")
    finally:
        run_ottla(tmp_path, node, "pipeline", "stop", "shop")


def test_the_expectations_of_the_pipeline_tutorial_work(tmp_path: Path, node: OttlaNode) -> None:
    [sample] = code_blocks("docs/tutorials/pipeline.md", "python")
    run_ottla(tmp_path, node, "pipeline", "init", "shop", "-b", node.address)
    definitions = next((tmp_path / "shop").rglob("*.py"))
    (definitions.parent / "tutorial.py").write_text(sample)
    try:
        assert "completed" in run_ottla(tmp_path, node, "pipeline", "run", "shop")
    finally:
        run_ottla(tmp_path, node, "pipeline", "stop", "shop")
