"""HTTP protocol of uvicorn with limits on connections, header size and header time."""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ON_SHUTDOWN = "steelyard.on_shutdown"  # key of the request scope for a function that ends the response

_log = logging.getLogger("steelyard.service")
_MAX_HEADER_BYTES = 65_536
_MAX_HEADER_SECONDS = 20.0
_MAX_CONNECTIONS = 1_000
_RESERVED_FILES = 64  # number of file descriptors kept free for the store, the log and the event loop
_REASONS = {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}


class LimitedProtocol(HttpToolsProtocol):
    """HTTP connection that is closed if its headers are too long or too slow.

    uvicorn has neither limit, so clients could fill the memory or use up the file descriptors.
    """

    _header_timer: asyncio.TimerHandle | None = None
    _n_header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit = min(_MAX_CONNECTIONS, max(1, n_files - _RESERVED_FILES))
        if len(self.connections) > limit:
            self._refuse(503, f"there are {limit} connections already")
        else:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_received()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._header_timer is None:
            self._expect_headers()

    def on_headers_complete(self) -> None:
        self._headers_received()
        super().on_headers_complete()

    def shutdown(self) -> None:
        """End event streams, which would delay the shutdown. Other responses can finish."""
        super().shutdown()
        end_stream: Any = None if self.cycle is None else self.cycle.scope.get(ON_SHUTDOWN)
        if end_stream is not None:
            end_stream()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._header_timer is not None:
            self._n_header_bytes += len(data)
            if self._n_header_bytes > _MAX_HEADER_BYTES:
                self._refuse(431, f"the headers have more than {_MAX_HEADER_BYTES:,} bytes")

    def _expect_headers(self) -> None:
        self._n_header_bytes = 0
        self._header_timer = self.loop.call_later(
            _MAX_HEADER_SECONDS, self._refuse, 408, f"no headers within {_MAX_HEADER_SECONDS:g} seconds"
        )

    def _headers_received(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self, status: int, reason: str) -> None:
        self._headers_received()
        address: Any = self.client[0] if self.client else "a client"
        _log.warning("connection of %s closed: %s", address, reason)
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        self.transport.write(head.encode())
        self.transport.close()
