"""An attached worker in Python's standard library.

It speaks ringway-session/1 in clear text (docs/reference/session-protocol.md), offers one HTTP
service, and drains and leaves on SIGTERM.

    python3 worker.py RELAY_PEER_ADDR CLUSTER ENVIRONMENT ID SERVICE
"""
import http.server
import random
import signal
import socket
import struct
import sys
import threading
import time

HELLO, RECORD, LEAVE, MOVED, ROW, REFUSED, BEAT = 1, 2, 4, 5, 6, 7, 8
BEAT_SECONDS, SILENCE_SECONDS, DRAIN_SECONDS, LIST_SECONDS = 5, 10, 2, 1


def text(s):
    return bytes([len(s)]) + s.encode("ascii")


def pack(value):
    """MessagePack of what a record has: numbers, strings and lists."""
    if isinstance(value, int):
        return bytes([value]) if value < 128 else b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, str):
        return b"\xd9" + text(value)
    return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(pack, value))


class Session:
    """One session with a relay; two threads read and write it."""

    def __init__(self, worker, address):
        self.worker, self.address = worker, address
        self.relay, self.row, self.spares, self.began = None, None, [], None
        self.lock = threading.Lock()
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=5)
        self.socket.settimeout(SILENCE_SECONDS)
        self.reader = self.socket.makefile("rb")
        self.socket.sendall((f"GET /ringway-session/1 HTTP/1.1\r\nHost: {address}\r\n"
                             "Connection: Upgrade\r\nUpgrade: ringway-session/1\r\n\r\n").encode())
        status = self.reader.readline()
        if b" 101 " not in status:
            raise ConnectionError(f"{address} answers {status!r}")
        while self.reader.readline() not in (b"\r\n", b""):
            pass
        names = (worker.cluster, worker.environment, worker.id, "", "", "python")
        self.send(HELLO, bytes([1]) + struct.pack(">Q", worker.epoch) + b"".join(map(text, names)))
        self.send(RECORD, worker.record)
        threading.Thread(target=self.beat, daemon=True).start()
        threading.Thread(target=self.read, daemon=True).start()

    def send(self, kind, payload=b""):
        with self.lock:
            self.socket.sendall(struct.pack(">I", kind << 24 | len(payload)) + payload)

    def beat(self):
        try:
            while True:
                time.sleep(BEAT_SECONDS)
                self.send(BEAT)
        except OSError:
            pass

    def read(self):
        try:
            while True:
                head = self.reader.read(4)
                if len(head) < 4:
                    break
                kind, length = head[0], int.from_bytes(head[1:], "big")
                payload = self.reader.read(length)
                if kind == ROW:
                    self.take(payload)
                elif kind == REFUSED:
                    print("refused:", payload[1:], file=sys.stderr, flush=True)
        except OSError:
            pass
        self.socket.close()
        self.worker.ended(self)

    def take(self, payload):
        at = 8  # behind the version

        def name():
            nonlocal at
            start, at = at + 1, at + 1 + payload[at]
            return payload[start:at].decode()

        relay = name()
        size, number = payload[at + 8], payload[at + 9]
        at += 10
        row = []
        for _ in range(number):
            one = name()
            at += 8  # the epoch
            row.append((one, name()))
        self.worker.follow(self, relay, dict(row[:size]), row[size:])


class Worker:
    """Holds sessions with the relays of its rows."""

    def __init__(self, seed, cluster, environment, id, service, address):
        self.seed, self.cluster, self.environment, self.id = seed, cluster, environment, id
        self.service, self.address = service, address
        self.epoch, self.sequence = int(time.time() * 1000), 0
        self.changed = threading.Condition()
        self.sessions = []
        self.leaving = False
        self.offer(draining=False)

    def offer(self, draining):
        """Sends a record: with its state and the next sequence."""
        self.sequence += 1
        offered = [self.service, self.address, 0, 10, 0, int(draining), "", [], 0]
        self.record = b"\x95" + b"".join(map(pack, [1, self.id, self.epoch, self.sequence, [offered]]))
        for session in list(self.sessions):
            try:
                session.send(RECORD, self.record)
            except OSError:
                pass

    def follow(self, session, relay, row, spares):
        with self.changed:
            session.relay, session.row, session.spares = relay, row, spares
            session.began = session.began or time.monotonic()
            self.changed.notify()

    def ended(self, session):
        with self.changed:
            if session in self.sessions:
                self.sessions.remove(session)
            self.changed.notify()

    def connect(self, address):
        try:
            session = Session(self, address)
        except OSError:
            return False
        with self.changed:
            self.sessions.append(session)
        return True

    def run(self):
        last = {}
        while not self.leaving:
            with self.changed:
                told = [s for s in self.sessions if s.row is not None]
                row = {id: address for s in told for id, address in s.row.items()}
                spares = [spare for s in told for spare in s.spares if spare[0] not in row]
                open_ = {s.relay for s in told}
                pending = {s.address for s in self.sessions}
            last = row or last
            if not told and not pending:
                addresses = [self.seed, *last.values()]
                self.connect(random.choice(addresses))
            for id, address in list(row.items()):
                if id in open_ or address in pending:
                    continue
                if not self.connect(address) and spares:
                    id, address = spares.pop(0)
                    row[id] = address
                    if id not in open_ and address not in pending:
                        self.connect(address)
            # Open before close, and not before the other relays have heard of it.
            listed = any(s.relay in row and time.monotonic() - s.began >= LIST_SECONDS for s in told)
            if listed and row.keys() <= open_:
                for session in told:
                    if session.relay not in row:
                        session.send(MOVED)
            with self.changed:
                self.changed.wait(timeout=0.5)

    def stop(self, *_):
        """Drains, so that relays send nothing new, then leaves."""
        self.leaving = True
        self.offer(draining=True)
        time.sleep(DRAIN_SECONDS)
        for session in list(self.sessions):
            session.send(LEAVE)
        deadline = time.time() + 1
        while self.sessions and time.time() < deadline:
            time.sleep(0.01)
        sys.exit(0)


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = b"python"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    worker = Worker(*sys.argv[1:6], "127.0.0.1:%d" % server.server_address[1])
    signal.signal(signal.SIGTERM, worker.stop)
    worker.run()


main()
