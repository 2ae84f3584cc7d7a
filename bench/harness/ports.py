"""Free ports for nodes that are about to start.

They lie below the kernel's ephemeral ports, so that no outgoing connection takes one before its node listens. Parallel
test processes use separate ranges.
"""

import os
import socket
from collections import deque
from random import SystemRandom

SPAN = 4_000
_recent: deque[int] = deque(maxlen=SPAN // 8)
"""The ports returned last, whose nodes may not listen yet."""


def free_ports(count: int) -> list[int]:
    """Return consecutive ports that are free and were not returned recently."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
    while True:
        first = 15_000 + worker * SPAN + SystemRandom().randrange(SPAN - count)  # tests may seed `random`
        ports = list(range(first, first + count))
        if not any(port in _recent for port in ports) and all(_is_free(port) for port in ports):
            _recent.extend(ports)
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
