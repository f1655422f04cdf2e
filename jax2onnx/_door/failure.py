"""The exception that ends a command with a message and without a traceback."""


class Failure(Exception):
    """A command cannot continue; the message says why."""
