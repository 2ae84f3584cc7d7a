"""A network of its own for a test that breaks it: hosts in namespaces, a bridge between them, rules who hears whom.

    with Network([1, 2, 3]) as network:      # this thread, and what it starts, is the clients' host from here on
        cluster = OttlaCluster(tmp_path, network=network)
        network.cut([1], [2, 3])             # neither hears the other, though clients hear both
        network.deafen(2, to=[3])            # 2 does not hear 3, which hears 2
        network.heal()

The addresses are of the range that is kept for benchmarks (RFC 2544) and exist in these namespaces alone. Leaving the
block removes everything; what a killed test run left is removed by the next one. Needs root, iproute2 and nftables:
where they cannot be had, the asking test is skipped.
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
"""The host that clients are on."""
_PREFIX = "ottla"
_NAMES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_RULES = """table inet faults {
    set unheard { type ipv4_addr; }
    chain input { type filter hook input priority 0; ip saddr @unheard drop; }
}"""
_numbers = count()


class Network:
    """Hosts, numbered from 1 to 99, that all hear each other to begin with."""

    def __init__(self, hosts: Iterable[int]) -> None:
        self._hosts = [CLIENTS, *hosts]
        self._name = f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
        self._before: int | None = None

    def address(self, host: int) -> str:
        return f"198.18.0.{host or 100}"

    def within(self, host: int) -> tuple[str, ...]:
        """What to put before a command, so that it runs on a host."""
        return ("ip", "netns", "exec", self._namespace(host))

    # -- who hears whom --

    def cut(self, some: Iterable[int], others: Iterable[int]) -> None:
        """Nothing gets from these to those, nor back."""
        some, others = [*some], [*others]
        for host in some:
            self.deafen(host, to=others)
        for host in others:
            self.deafen(host, to=some)

    def deafen(self, host: int, *, to: Iterable[int]) -> None:
        """One way only: a host does not hear the others any more."""
        unheard = ", ".join(self.address(other) for other in to if other != host)
        if unheard:
            self._rules(host, f"add element inet faults unheard {{ {unheard} }}")

    def isolate(self, host: int) -> None:
        """From everybody, clients included."""
        self.cut([host], [other for other in self._hosts if other != host])

    def heal(self) -> None:
        for host in self._hosts:
            self._rules(host, "flush set inet faults unheard")

    # -- making and removing --

    def __enter__(self) -> Self:
        _need_tools()
        _sweep()
        try:
            self._make()
            self._before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            inside = os.open(_NAMES / self._namespace(CLIENTS), os.O_RDONLY | os.O_CLOEXEC)
            _enter(inside)
            os.close(inside)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave, and remove all hosts with whatever still runs on them."""
        if self._before is not None:
            _enter(self._before)
            os.close(self._before)
            self._before = None
        for host in self._hosts:
            if (_NAMES / self._namespace(host)).exists():
                _remove(self._namespace(host))

    def _make(self) -> None:
        hub = self._namespace(CLIENTS)
        for host in self._hosts:
            _run("ip", "netns", "add", self._namespace(host))
            _run("ip", "-n", self._namespace(host), "link", "set", "lo", "up")
            self._rules(host, _RULES)
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

    def _rules(self, host: int, what: str) -> None:
        _run(*self.within(host), "nft", "-f", "-", told=what)

    def _namespace(self, host: int) -> str:
        return f"{self._name}-{host}"


def _need_tools() -> None:
    """Skip the test where networks cannot be made."""
    for command, package in (("ip", "iproute2"), ("nft", "nftables")):
        if shutil.which(command) is None:
            install(package)
        if shutil.which(command) is None:
            pytest.skip(f"breaking networks needs {command} ({package})")
    probe = f"{_PREFIX}-{os.getpid()}-probe"
    try:
        _run("ip", "netns", "add", probe)
        _run("ip", "netns", "exec", probe, "nft", "-f", "-", told=_RULES)
    except NetworkFailed as error:
        pytest.skip(f"breaking networks needs the right to make network namespaces: {error}")
    finally:
        if (_NAMES / probe).exists():
            _run("ip", "netns", "delete", probe)


def _sweep() -> None:
    """Remove what test runs left that were killed."""
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
    """A command of the system's refused; with what it said."""


def _run(*command: str, told: str = "") -> str:
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise NetworkFailed(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _enter(namespace: int) -> None:
    """Let this thread, and all threads and processes that it starts, be in another network."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
