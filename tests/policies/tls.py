"""A server that speaks https, one connection after another, in a thread: when it is left, nothing of it is open."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CERTIFICATE = Path(__file__).parent / "self_signed.pem"
"""Of localhost, signed by itself, with its key; made for these tests (``openssl req -x509 -days 36500``)."""


@contextmanager
def serving_https(body: bytes) -> Iterator[str]:
    """Answer the first request of every connection with ``body``; give the address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    over = threading.Event()

    def serve(listening: socket.socket) -> None:
        while True:
            connection, _ = listening.accept()
            with connection:
                if over.is_set():
                    return
                with suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                    while (piece := secured.recv(65536)) and not piece.endswith(b"\r\n\r\n"):
                        pass
                    secured.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield f"https://localhost:{listening.getsockname()[1]}"
        finally:
            over.set()
            socket.create_connection(listening.getsockname()).close()
            thread.join()
