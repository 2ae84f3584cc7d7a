"""What is logged at first, and where to. Levels are changed while the node runs by
`broker/handlers/broker_loggers.py`.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

from ottla.broker.authorization import audit
from ottla.broker.handlers.broker_loggers import TRACE

REQUESTS: Final = "kafka.request.logger"
AUDIT: Final = audit.LOGGER


def set_up(*, verbose: bool = False, stream: TextIO | None = None) -> None:
    """Log to a stream, by default standard error: what is wrong, or, if asked for, what the node does."""
    logging.addLevelName(TRACE, "TRACE")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger(REQUESTS).setLevel(logging.WARNING)  # not even a verbose node writes every request down
    logging.getLogger(AUDIT).setLevel(logging.INFO)  # refusals, as Kafka's own configuration has it
