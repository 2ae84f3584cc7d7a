"""What a person must see to before a table goes on."""


class TableError(Exception):
    """Something about a table cannot go on by itself; the message says what, where and what to do."""


class Overtaken(TableError):
    """Somebody else committed to the table what this run was about to: one of two runs must end."""
