"""A private network for tests that break it: hosts in network namespaces, a bridge between them, and packet filters.

    with Network([1, 2, 3]) as network:      # this thread, and what it starts, now runs on the clients' host
        cluster = OttlaCluster(tmp_path, network=network)
        network.cut([1], [2, 3])             # no packets in either direction; clients still reach all hosts
        network.block(2, sources=[3])        # 2 receives nothing from 3, but 3 receives from 2
        network.heal()

The addresses belong to the range for benchmarks (RFC 2544) and exist only in these namespaces. Leaving the block
removes everything; the next test run removes the remains of a killed one. Needs root, iproute2 and nftables; if they
are not available, the test is skipped.
"""

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from bench.harness.kafka_jars import install

CLIENTS = 0
"""The host of the clients."""
_PREFIX = "ottla"
_NAMES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_RULES = """table inet faults {
    set blocked { type ipv4_addr; }
    chain input { type filter hook input priority 0; ip saddr @blocked drop; }
}"""
_numbers = count()


class Network:
    """Hosts with numbers from 1 to 99. At first, all of them are connected."""

    def __init__(self, hosts: Iterable[int]) -> None:
        self._hosts = [CLIENTS, *hosts]
        self._name = f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
        self._original_namespace: int | None = None

    def address(self, host: int) -> str:
        return f"198.18.0.{host or 100}"

    def within(self, host: int) -> tuple[str, ...]:
        """Return the prefix that makes a command run on a host."""
        return ("ip", "netns", "exec", self._namespace(host))

    # -- packet filters --

    def cut(self, hosts: Iterable[int], others: Iterable[int]) -> None:
        """Block all packets between two groups of hosts, in both directions."""
        hosts, others = [*hosts], [*others]
        for host in hosts:
            self.block(host, sources=others)
        for host in others:
            self.block(host, sources=hosts)

    def block(self, host: int, *, sources: Iterable[int]) -> None:
        """Block packets from the sources to a host, in this direction only."""
        blocked = ", ".join(self.address(source) for source in sources if source != host)
        if blocked:
            self._apply_rules(host, f"add element inet faults blocked {{ {blocked} }}")

    def isolate(self, host: int) -> None:
        """Block all packets between a host and all others, including clients."""
        self.cut([host], [other for other in self._hosts if other != host])

    def heal(self) -> None:
        for host in self._hosts:
            self._apply_rules(host, "flush set inet faults blocked")

    # -- creation and removal --

    def __enter__(self) -> Self:
        _require_tools()
        _remove_leftovers()
        try:
            self._create()
            self._original_namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            inside = os.open(_NAMES / self._namespace(CLIENTS), os.O_RDONLY | os.O_CLOEXEC)
            _enter(inside)
            os.close(inside)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the namespace, and remove all hosts with their processes."""
        if self._original_namespace is not None:
            _enter(self._original_namespace)
            os.close(self._original_namespace)
            self._original_namespace = None
        for host in self._hosts:
            if (_NAMES / self._namespace(host)).exists():
                _remove(self._namespace(host))

    def _create(self) -> None:
        hub = self._namespace(CLIENTS)
        for host in self._hosts:
            _run("ip", "netns", "add", self._namespace(host))
            _run("ip", "-n", self._namespace(host), "link", "set", "lo", "up")
            self._apply_rules(host, _RULES)
        _run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        self._set_up(CLIENTS, "bridge")
        for host in self._hosts[1:]:
            port, namespace = f"to{host}", self._namespace(host)
            _run("ip", "-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _run("ip", "-n", hub, "link", "set", port, "master", "bridge", "up")
            self._set_up(host, "eth0")

    def _set_up(self, host: int, device: str) -> None:
        namespace = self._namespace(host)
        _run("ip", "-n", namespace, "address", "add", f"{self.address(host)}/24", "dev", device)
        _run("ip", "-n", namespace, "link", "set", device, "up")

    def _apply_rules(self, host: int, rules: str) -> None:
        _run(*self.within(host), "nft", "-f", "-", stdin=rules)

    def _namespace(self, host: int) -> str:
        return f"{self._name}-{host}"


def _require_tools() -> None:
    """Skip the test if this machine cannot create network namespaces."""
    for command, package in (("ip", "iproute2"), ("nft", "nftables")):
        if shutil.which(command) is None:
            install(package)
        if shutil.which(command) is None:
            pytest.skip(f"network faults need {command} (package {package})")
    probe = f"{_PREFIX}-{os.getpid()}-probe"
    try:
        _run("ip", "netns", "add", probe)
        _run("ip", "netns", "exec", probe, "nft", "-f", "-", stdin=_RULES)
    except NetworkFailed as error:
        pytest.skip(f"network faults need the permission to create network namespaces: {error}")
    finally:
        if (_NAMES / probe).exists():
            _run("ip", "netns", "delete", probe)


def _remove_leftovers() -> None:
    """Remove the namespaces of killed test runs."""
    for path in _NAMES.glob(f"{_PREFIX}-*-*"):
        owner = path.name.split("-")[1]
        if owner.isdigit() and not Path("/proc", owner).exists():
            _remove(path.name)


def _remove(namespace: str) -> None:
    for number in _run("ip", "netns", "pids", namespace).split():
        if int(number) != os.getpid():
            os.kill(int(number), signal.SIGKILL)
    _run("ip", "netns", "delete", namespace)


class NetworkFailed(Exception):
    """A system command failed. The message contains its output."""


def _run(*command: str, stdin: str = "") -> str:
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=30, check=False)
    if result.returncode:
        raise NetworkFailed(f"{' '.join(command)}: {result.stderr.strip() or result.returncode}")
    return result.stdout


def _enter(namespace: int) -> None:
    """Move this thread, and all threads and processes that it starts, to another network namespace."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
