"""HTTP server in a thread, on a free port."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import httpx
import uvicorn

from steelyard.service.http.protocol import LimitedProtocol


@contextmanager
def serving(app):
    """Serve an application; yield an HTTP client with its address as base URL."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="error", access_log=False, ws="none", http=LimitedProtocol
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(60)
