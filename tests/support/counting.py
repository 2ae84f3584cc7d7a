"""What work costs, as counts of lines that Python runs: times depend on the machine, counts do not."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(action: Callable[[], Any]) -> int:
    """How many lines of Python an action runs."""
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
