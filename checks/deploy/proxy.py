"""What checks/deploy/proxy asks through nginx. Starts and stops the replicas itself."""

import ctypes
import http.client
import itertools
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

ADDRESSES = {"a": "172.30.99.2", "b": "172.30.99.3"}
PORT = 8443
# From sched.h.
CLONE_NEWNET = 0x40000000
PATH = "/api/v1/market/selic/current"
failures = []


def check(name, passed, detail=""):
    print(f"{'ok' if passed else 'FAILED'}: {name}" + ("" if passed else f" ({detail})"))
    if not passed:
        failures.append(name)


class Client:
    """One connection from an address of its own; nginx is at 127.0.0.1 of the other namespace."""

    def __init__(self, source="127.0.0.1", version=None):
        context = ssl.create_default_context(cafile=os.environ["CERTIFICATE"])
        if version:
            context.minimum_version = context.maximum_version = version
        self.connection = http.client.HTTPSConnection(
            "127.0.0.1", PORT, timeout=30, context=context, source_address=(source, 0)
        )

    def get(self, path=PATH, **headers):
        return self.request("GET", path, None, headers)

    def request(self, method, path, body, headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        response.content = response.read()
        return response

    def close(self):
        self.connection.close()


class Replica:
    def __init__(self, name):
        self.name = name
        self.start()

    def start(self):
        """In the namespace of the replicas, which this process has left."""
        command = ["nsenter", "--target", str(os.getppid()), "--net", os.environ["REPLICA"], self.name]
        self.process = subprocess.Popen(command + [ADDRESSES[self.name]])

    def wait_until_ready(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                connection = http.client.HTTPConnection(ADDRESSES[self.name], 9080, timeout=2)
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"replica {self.name} is not ready")

    def wait_until_used(self):
        """nginx leaves a replica out for two seconds after a failure."""
        answered_before = self.count_answered()
        deadline = time.monotonic() + 60
        while self.count_answered() == answered_before:
            if time.monotonic() > deadline:
                sys.exit(f"nginx sends replica {self.name} no requests")
            time.sleep(0.1)

    def count_answered(self):
        with open(os.environ["NGINX_LOG"]) as log:
            return log.read().count(f'"{ADDRESSES[self.name]}:8080"')

    def stop(self, number):
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


class SteadyLoad(threading.Thread):
    """Some seven requests a second, half of them on new connections. That is below the limit of the plan."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.statuses = []
        self.start()

    def run(self):
        kept = Client()
        for number in itertools.count():
            if self.ended.is_set():
                return
            client = kept if number % 2 else Client()
            try:
                self.statuses.append(client.get(X_API_Key=os.environ["GOLD_KEY"]).status)
            except OSError as error:
                self.statuses.append(repr(error))
                kept = Client()
            if client is not kept:
                client.close()
            time.sleep(0.13)

    def stop(self):
        self.ended.set()
        self.join()
        return [status for status in self.statuses if status != 200]


def enter_proxy_namespace():
    """os.setns needs Python 3.12."""
    namespace = os.open(f"/proc/{os.environ['NAMESPACE']}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))


def slow_post(source):
    """A request whose body does not come."""
    raw = socket.create_connection(("127.0.0.1", PORT), timeout=30, source_address=(source, 0))
    context = ssl.create_default_context(cafile=os.environ["CERTIFICATE"])
    secured = context.wrap_socket(raw, server_hostname="127.0.0.1")
    secured.sendall(
        b"POST /api/v1/plans/register HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{"
    )
    return secured


def main():
    enter_proxy_namespace()
    replicas = [Replica("a"), Replica("b")]
    try:
        ask(replicas)
    finally:
        for replica in replicas:
            replica.process.kill()


def ask(replicas):
    for replica in replicas:
        replica.wait_until_ready()

    plain = http.client.HTTPConnection("127.0.0.1", 8080)
    plain.request("GET", "/docs?x=1", headers={"Host": "localhost"})
    response = plain.getresponse()
    check("http is redirected", (response.status, response.headers["Location"]) == (308, "https://localhost/docs?x=1"))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        check(f"{version.name} works", Client(version=version).get("/health").status == 200)

    client = Client("127.0.0.2")
    response = client.get()
    for header in ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-Request-Id", "ETag", "Strict-Transport-Security"):
        check(f"{header} arrives", header in response.headers)
    response = client.get("/api/v1/filings?limit=100", Accept_Encoding="gzip", X_API_Key=os.environ["GOLD_KEY"])
    check("compressed responses pass", response.headers["Content-Encoding"] == "gzip" and response.content[:2] == b"\x1f\x8b")
    check("the admin port is not reachable", client.get("/metrics").status == 404 and client.get("/readyz").status == 404)

    limit = int(client.get().headers["X-RateLimit-Limit"])
    client = Client("127.0.0.5")
    statuses = [
        client.get(X_Forwarded_For=f"9.9.9.{number}", Forwarded=f"for=9.9.8.{number}").status for number in range(limit + 5)
    ]
    check("forged addresses do not extend the limit", statuses == [200] * limit + [429] * 5, statuses)
    response = Client("127.0.0.6").get()
    check("another client has its own limit", int(response.headers["X-RateLimit-Remaining"]) == limit - 1)

    response = Client("127.0.0.7").request("POST", "/api/v1/plans/register", "x" * 20_000, {"Content-Type": "application/json"})
    check("large bodies are refused", response.status == 413, response.status)

    held = [slow_post("127.0.0.8") for _ in range(256)]
    response = Client("127.0.0.8").get()
    body = json.loads(response.content)
    check("one address has at most 256 requests at once", response.status == 503, response.status)
    check("the refusal is in our format", body["error"] == "service_unavailable" and response.headers["Retry-After"] == "1")
    started = time.monotonic()
    response = Client("127.0.0.9").request(
        "POST",
        "/api/v1/plans/register",
        json.dumps({"name": "Check", "email": "proxy@example.com"}),
        {"Content-Type": "application/json"},
    )
    check("slow bodies hold nobody up", response.status == 201 and time.monotonic() - started < 5, response.status)
    for connection in held:
        connection.close()

    load = SteadyLoad()
    for replica in replicas:
        check(f"replica {replica.name} exits", replica.stop(signal.SIGTERM) == 0)
        replica.start()
        replica.wait_until_ready()
        replica.wait_until_used()
    for replica in replicas:
        replica.stop(signal.SIGKILL)
        replica.start()
        replica.wait_until_ready()
        replica.wait_until_used()
    failed = load.stop()
    check("no request fails while replicas are restarted and killed", not failed, failed[:5])

    for replica in replicas:
        replica.stop(signal.SIGKILL)
    response = Client("127.0.0.10").get()
    check(
        "without replicas: 503 with Retry-After",
        (response.status, response.headers["Retry-After"]) == (503, "1"),
        response.status,
    )
    print(f"requests: {len(load.statuses)}")
    print(f"failures: {len(failures)}")
    sys.exit(bool(failures))


main()
