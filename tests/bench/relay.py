"""A relay before a server, for where no link can be made: it counts round trips, and may hold all
that is said."""

import queue
import socket
import threading
import time


class Relay:
    """Passes on what clients and the server at `port` say, each time after `hold_ms`."""

    def __init__(self, port, hold_ms=0):
        self.server, self.hold = port, hold_ms / 1000
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = self.door.getsockname()[1]
        self.said = []  # (seconds, who), in order: "connects", "client" or "server"
        threading.Thread(target=self.welcome, daemon=True).start()

    def welcome(self):
        while True:
            try:
                client, _ = self.door.accept()
            except OSError:
                return
            self.said.append((time.clock_gettime(time.CLOCK_BOOTTIME), "connects"))
            server = socket.create_connection(("127.0.0.1", self.server))
            for one, other, who in ((client, server, "client"), (server, client, "server")):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                held = queue.SimpleQueue()
                threading.Thread(target=self.hear, args=(one, held, who), daemon=True).start()
                threading.Thread(target=self.tell, args=(other, held), daemon=True).start()

    def hear(self, one, held, who):
        data = b"-"
        while data:
            try:
                data = one.recv(65536)
            except OSError:
                data = b""
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            if data:
                self.said.append((now, who))
            held.put((now + self.hold, data))

    def tell(self, other, held):
        data = b"-"
        while data:
            due, data = held.get()
            time.sleep(max(0, due - time.clock_gettime(time.CLOCK_BOOTTIME)))
            try:
                other.sendall(data) if data else other.shutdown(socket.SHUT_WR)
            except OSError:
                return

    def round_trips(self, since, until):
        """How often the network was crossed and crossed back: handshakes, and answers."""
        said = [who for at, who in self.said if since <= at <= until]
        answers = sum(a == "client" and b == "server" for a, b in zip(said, said[1:]))
        return said.count("connects") + answers

    def end(self):
        self.door.close()
