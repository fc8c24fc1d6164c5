"""Log records as JSON, one object per line."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec


class JsonFormatter(logging.Formatter):
    """Formatter for structured logs: time, level, message, and the id of the request if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line. Messages that are already JSON objects, such as request logs, stay unchanged."""
        message = record.getMessage()
        if record.levelno <= logging.INFO and message.startswith("{"):
            return message
        head, _, details = message.partition("\n")
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": head,
        }
        request_id = getattr(record, "request_id", None)
        if request_id is not None:
            line["request_id"] = request_id
        if details:
            line["details"] = details
        return msgspec.json.encode(line).decode()
