"""Ports for the nodes of tests: free, and not given to another node a moment ago.

They lie below those that the kernel hands out, so that no outgoing connection gets one before its node listens. Tests
that run beside each other in several processes have ranges of their own.
"""

import os
import socket
from collections import deque
from random import SystemRandom

SPAN = 4_000
_given: deque[int] = deque(maxlen=SPAN // 8)
"""Those given last, whose nodes may not listen yet."""


def free_ports(count: int) -> list[int]:
    """Ports in a row that nobody listens on, or is about to."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
    while True:
        first = 15_000 + worker * SPAN + SystemRandom().randrange(SPAN - count)  # tests may seed the common chance
        ports = list(range(first, first + count))
        if not any(port in _given for port in ports) and all(_is_free(port) for port in ports):
            _given.extend(ports)
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
