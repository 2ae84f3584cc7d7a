"""Count the lines that Python runs: unlike times, counts do not depend on the machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_lines(action: Callable[[], Any]) -> int:
    """Return how many lines of Python an action runs."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines
