"""The samples of the README and the first tutorial work as shown, and the generated reference matches the code."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ottla_node import OttlaNode

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/tutorials/first-broker.md")
SETTINGS = {"node.id": "1", "process.roles": "broker,controller", "controller.listener.names": "CONTROLLER"}
ADDRESS = "localhost:9092"
NOT_RUN = ("pip ", "ottla serve", "ottla cluster start", "ottla table", "ottla pipeline")
"""Commands that install the product or start nodes or Spark: other tests cover them."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    node = OttlaNode(tmp_path, SETTINGS)
    node.format()
    with node.running():
        yield node


def code_blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page that are in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def console_samples(page: str) -> list[tuple[str, str]]:
    """Return the commands in a page's console samples, each with the output that the page shows."""
    return [
        (command, output)
        for block in code_blocks(page, "console")
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
        if not command.startswith(NOT_RUN)
    ]


def without_times(text: str) -> str:
    """Replace timestamps, which differ from run to run."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)


@pytest.mark.parametrize("page", PAGES)
def test_console_samples_print_what_the_page_shows(page: str, node: OttlaNode) -> None:
    samples = console_samples(page)
    assert samples
    environment = {
        **os.environ,
        "OTTLA_BOOTSTRAP_SERVER": node.address,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    for command, output in samples:
        finished = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert finished.returncode == 0, f"{command}: {finished.stderr}"
        assert without_times(finished.stdout) == without_times(output), command


def test_the_producer_of_the_first_tutorial_writes_a_record(node: OttlaNode) -> None:
    [program] = code_blocks("docs/tutorials/first-broker.md", "python")
    assert ADDRESS in program
    subprocess.run([sys.executable, "-c", program.replace(ADDRESS, node.address)], timeout=60, check=True)
    read = subprocess.run(
        [sys.executable, "-m", "ottla", "consume", "orders", "--from", "beginning", "-b", node.address],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "customer-2  a lamp" in read.stdout


def test_the_generated_reference_is_up_to_date() -> None:
    finished = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "generate_reference.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
