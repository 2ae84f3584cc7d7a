"""Ports for the nodes of tests: free, and each given to one node only.

They lie below those that the kernel hands out, so that no outgoing connection gets one before its node listens. Tests
that run beside each other in several processes have ranges of their own.
"""

import os
import socket
from random import SystemRandom

SPAN = 4_000
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports in a row that nobody listens on and nobody was given."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
    while True:
        first = 15_000 + worker * SPAN + SystemRandom().randrange(SPAN - count)  # tests may seed the common chance
        ports = list(range(first, first + count))
        if _given.isdisjoint(ports) and all(_is_free(port) for port in ports):
            _given.update(ports)
            return ports


def free_port() -> int:
    return free_ports(1)[0]


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
