"""The errors of tables."""


class TableError(Exception):
    """A table needs an operator before it can continue; the message says what failed, why, and what to do."""


class TransientTableError(Exception):
    """A run failed for a reason that may pass, such as an unreachable broker; the next run continues where it ended."""


class ConcurrentRunError(TableError):
    """Another run committed the records that this run was about to commit; one of the two must end."""
