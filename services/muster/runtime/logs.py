"""structlog for services: JSON lines for collectors, coloured lines on a terminal. One line per decision, never per pod."""

import logging
import sys
from typing import Any

import structlog

SECRET_WORDS = ("token", "password", "secret", "authorization", "credential")


def redact(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Values under names that sound like secrets never reach a log."""
    for key in event:
        if any(word in key.lower() for word in SECRET_WORDS):
            event[key] = "[redacted]"
    return event


def configure_logs(*, log_format: str, level: str, service: str) -> structlog.stdlib.BoundLogger:
    """Set up structlog once for this process and return the service's logger.

    Lines of libraries that use the standard logging module appear in the same form, from warnings up.
    """
    threshold = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        redact,
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if log_format == "console"
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, renderer]
        if log_format == "json"
        else [*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logger: structlog.stdlib.BoundLogger = structlog.get_logger().bind(service=service)
    return logger
