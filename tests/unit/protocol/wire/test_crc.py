"""CRC-32C as in the standard, without the modules that the whole package imports."""

import importlib.machinery
import subprocess
import sys
from typing import Any

import crc32c as package
import pytest

from ottla.protocol.wire import crc

EXAMPLES = {
    bytes(32): 0x8A9136AA,  # these three are from RFC 3720
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    b"": 0,
}


@pytest.mark.parametrize("data", EXAMPLES)
def test_examples_of_the_standard(data: bytes) -> None:
    assert crc.crc32c(data) == crc.crc32c(memoryview(data)) == crc.crc32c(bytearray(data)) == EXAMPLES[data]
    assert crc.crc32c(data[5:], crc.crc32c(data[:5])) == EXAMPLES[data]


def test_another_release_of_the_package_is_imported_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    def finds_nothing(*_: Any) -> None:
        return None

    monkeypatch.setattr(importlib.machinery.PathFinder, "find_spec", finds_nothing)
    assert crc._load() is package.crc32c


def test_a_node_loads_no_mail_parsers() -> None:
    """They take 1/15 of the import time of a node."""
    code = "import ottla.node.node, sys; print(*{'email', 'zipfile', 'importlib.metadata'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
