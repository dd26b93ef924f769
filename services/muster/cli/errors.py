"""How a command ends when it cannot do what was asked."""

BAD_INPUT = 2
REFUSED = 1


class CommandError(Exception):
    """Told on stderr as it is, without a traceback; `code` is the exit code."""

    def __init__(self, message: str, *, code: int = REFUSED) -> None:
        super().__init__(message)
        self.code = code
