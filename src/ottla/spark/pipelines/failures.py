"""What went wrong in Spark, in the words of the one who wrote the pipeline: no stack of Java in front.

Spark wraps what a Python source, sink or function raises in texts of its own. The last exception of a Python traceback
is what was wrong; else it is the first line of what Spark says, without its error class and state.
"""

import re
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON_ERROR: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*): (.+)$")
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: P0001|$)", re.DOTALL)
_NOISE: Final = re.compile(r"\s*SQLSTATE: \w+;?|^\[[A-Z0-9_.]+\]\s*|;$")
_QUERY: Final = re.compile(r"^\[STREAM_FAILED\] Query \[id = [^]]*\] terminated with exception: ")
_JAVA_NAMES: Final = re.compile(r'^(?:Exception in thread "[^"]*" )?(?:\([\w.$]+\) )?(?:(?:[a-z]\w*\.)+[\w$]+: )?')


def plain(text: str) -> str:
    """The one sentence that tells what is wrong."""
    if found := _RAISED.search(text):
        return found[1].strip()
    if _TRACEBACK in text and (said := _last_of_traceback(text)):
        return said
    lines = [line.strip() for line in text.splitlines()]
    named = [_JAVA_NAMES.sub("", line) for line in lines if not line.startswith(("at ", "...", "JVM stacktrace"))]
    kept = [line for line in named if line and not re.fullmatch(r"[\w.$]+", line)]
    return _NOISE.sub("", _QUERY.sub("", kept[0])).strip() if kept else text.strip()


def _last_of_traceback(text: str) -> str | None:
    """What the innermost Python exception says, with the lines that belong to it."""
    part = text.rsplit(_TRACEBACK, 1)[1]
    lines = part.splitlines()
    for number, line in enumerate(lines):
        if found := _PYTHON_ERROR.match(line):
            said = [found[2]]
            for further in lines[number + 1 :]:
                if not further.strip() or further.startswith((" ", "\t")) or "SQLSTATE" in further:
                    break
                said.append(further)
            joined = _NOISE.sub("", "\n".join(said)).strip()
            return joined if _is_ours(line) else f"{found[1]}: {joined}"
    return None


def _is_ours(line: str) -> bool:
    """Exceptions of Ottla speak for themselves; of others the name helps."""
    return line.startswith("ottla.")
