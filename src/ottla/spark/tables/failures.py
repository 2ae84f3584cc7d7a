"""What a person must see to before a table goes on."""


class TableError(Exception):
    """Something about a table cannot go on by itself; the message says what, where and what to do."""


class TransientTableError(Exception):
    """A run ended by what may pass, such as a broker that is away; the next one goes on where the table is."""


class Overtaken(TableError):
    """Somebody else committed to the table what this run was about to: one of two runs must end."""
