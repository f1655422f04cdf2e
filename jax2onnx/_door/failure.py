"""What ends a command with a message and no traceback."""


class Failure(Exception):
    """A command cannot do its work; the message says why."""
