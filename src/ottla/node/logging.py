"""Initial log levels and output. `broker/handlers/broker_loggers.py` changes levels while the node runs."""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

from ottla.broker.authorization import audit
from ottla.broker.handlers.broker_loggers import TRACE

REQUESTS: Final = "kafka.request.logger"
AUDIT: Final = audit.LOGGER


def set_up(*, verbose: bool = False, stream: TextIO | None = None) -> None:
    """Log to a stream, by default standard error, from WARNING, or from INFO if verbose."""
    logging.addLevelName(TRACE, "TRACE")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger(REQUESTS).setLevel(logging.WARNING)  # requests are not logged even if verbose
    logging.getLogger(AUDIT).setLevel(logging.INFO)  # logs denied requests, as Kafka's default configuration does
