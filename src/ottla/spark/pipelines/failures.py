"""Summarizes Spark's errors for the author of a pipeline, without Java stack traces.

Spark wraps the errors of Python sources, sinks and functions in its own texts. The summary is the last exception of the
Python traceback, or else the first line of Spark's message without its error class and SQLSTATE.
"""

import re
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON_ERROR: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*): (.+)$")
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: P0001|$)", re.DOTALL)
_NOISE: Final = re.compile(r"\s*SQLSTATE: \w+;?|^\[[A-Z0-9_.]+\]\s*|;$")
_QUERY: Final = re.compile(r"^\[STREAM_FAILED\] Query \[id = [^]]*\] terminated with exception: ")
_JAVA_NAMES: Final = re.compile(r'^(?:Exception in thread "[^"]*" )?(?:\([\w.$]+\) )?(?:(?:[a-z]\w*\.)+[\w$]+: )?')


def summarize_error(text: str) -> str:
    """Return the sentence of an error text that says what is wrong."""
    if match := _RAISED.search(text):
        return match[1].strip()
    if _TRACEBACK in text and (message := _last_of_traceback(text)):
        return message
    lines = [line.strip() for line in text.splitlines()]
    messages = [_JAVA_NAMES.sub("", line) for line in lines if not line.startswith(("at ", "...", "JVM stacktrace"))]
    telling = [line for line in messages if line and not re.fullmatch(r"[\w.$]+", line)]
    return _NOISE.sub("", _QUERY.sub("", telling[0])).strip() if telling else text.strip()


def _last_of_traceback(text: str) -> str | None:
    """Return the message of the innermost Python exception, with its continuation lines."""
    part = text.rsplit(_TRACEBACK, 1)[1]
    lines = part.splitlines()
    for number, line in enumerate(lines):
        if match := _PYTHON_ERROR.match(line):
            message = [match[2]]
            for continuation in lines[number + 1 :]:
                if not continuation.strip() or continuation.startswith((" ", "\t")) or "SQLSTATE" in continuation:
                    break
                message.append(continuation)
            joined = _NOISE.sub("", "\n".join(message)).strip()
            return joined if _is_own_error(line) else f"{match[1]}: {joined}"
    return None


def _is_own_error(line: str) -> bool:
    """Whether Ottla raised the error: its messages need no class name."""
    return line.startswith("ottla.")
