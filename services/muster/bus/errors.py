"""What can go wrong on the bus. The difference that matters: was nothing sent, was it refused, or is it not known?"""


class BusError(Exception):
    """Base of all errors of the bus."""


class NotConnectedError(BusError):
    """There is no connection and nothing was sent."""


class UnknownOutcomeError(BusError):
    """Sent, but no answer came: the message may or may not have been stored. Read the stream before deciding."""


class WrongLastSequenceError(BusError):
    """Refused: the stream (or subject) is not at the expected sequence; nothing was stored."""

    def __init__(self, subject: str, expected: int, actual: int | None) -> None:
        """``actual`` is None where the server does not tell it."""
        super().__init__(f"{subject}: expected last sequence {expected}, the stream is at {actual or 'another'}")
        self.subject = subject
        self.expected = expected
        self.actual = actual


class QueueFullError(BusError):
    """Refused: the stream's limit, or the limit of this subject, is reached; nothing was stored."""


class NoStreamError(BusError):
    """No stream stores this subject (or the stream is missing); nothing was stored."""


class PublishRefusedError(BusError):
    """Refused by the server for another reason, named in the message; nothing was stored."""


class MessageTooLargeError(BusError):
    """The message is larger than the server takes, even compressed; nothing was sent."""


class UnsuitableServerError(BusError):
    """The NATS server cannot be used: too old, or without JetStream."""


class StreamConflictError(BusError):
    """A stream exists with settings that Muster can neither use nor change."""


class UndecodableError(BusError):
    """A message does not have the form its subject and type promise; the text names the field."""


class NoAnswerError(BusError):
    """Nobody answered the request in time, or nobody serves it."""


class RequestRefusedError(BusError):
    """The service answered with an error: ``code`` is a short word, the text is for people."""

    def __init__(self, code: str, message: str) -> None:
        """See the class."""
        super().__init__(message)
        self.code = code


class DeposedError(BusError):
    """Another writer has taken over: stop for good."""


class StateMovedError(BusError):
    """A message slipped into STATE from elsewhere: reload, relist, publish what differs; never resend."""


class LedgerMovedError(BusError):
    """LEDGER is not at the sequence the decision was made on; nothing was appended."""
