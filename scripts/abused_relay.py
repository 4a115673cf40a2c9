"""Connections to a program go through this one, which counts their bytes and does something when there are so many."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Relay:
    """Carries connections to `peer`, which may move; `do` something once when so many bytes have been carried."""

    def __init__(self, peer: tuple[str, int]):
        self.peer, self.count, self.most, self.act = peer, 0, None, lambda: None
        self.lock, self.sockets, self.threads = threading.Lock(), [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.start(self.accept)

    def after(self, most: int | None, act: Callable[[], None]) -> None:
        """Counts from now on; what was to be done before is not done any more."""
        with self.lock:
            self.count, self.most, self.act = 0, most, act

    def start(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        self.threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self.threads[-1].start()

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                self.sockets.append(near)
                far = socket.socket()
                self.sockets.append(far)
                try:
                    far.connect(self.peer)
                except OSError:
                    near.close()
                    continue
                self.start(self.carry, near, far)
                self.start(self.carry, far, near)

    def close(self) -> None:
        """When those on one side have ended."""
        with suppress(OSError):
            # Closing it alone does not wake who waits for a connection.
            self.listener.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for one in [*self.sockets, self.listener]:
            one.close()

    def carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1024):
                with self.lock:
                    self.count += len(piece)
                    if self.most is not None and self.count >= self.most:
                        self.most = None
                        self.act()
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
