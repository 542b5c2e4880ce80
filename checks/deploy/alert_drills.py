"""What checks/deploy/alert-drills does, in a network namespace in which all default ports are free.

usage: alert_drills.py [DRILL…]    with VINTEM, UPSTREAMS and PROMETHEUS as paths of programs
Exits with status 1 if an alert does not fire or does not clear, or if no drill covers it.
"""

import asyncio
import datetime
import glob
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/rules.yaml"
VINTEM, UPSTREAMS, PROMETHEUS = (os.environ[name] for name in ("VINTEM", "UPSTREAMS", "PROMETHEUS"))
PG_BIN = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")[0]
POSTGRES_PORT, REDIS_PORT, PUBLIC_PORT, UPSTREAM_PORT, RECEIVER_PORT = 5432, 6379, 8080, 8900, 8901
# An alert fires within this time.
MAX_FIRE_SECONDS = 120
# Alerts on rare events clear when their window of ten minutes has passed.
MAX_CLEAR_SECONDS = 780
TODAY = datetime.date.today()
DAY_BEFORE = TODAY - datetime.timedelta(days=1)


def wait_for(what, condition, seconds=60):
    """Waits for a condition, and returns how long that took."""
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        if condition():
            return time.monotonic() - started
        time.sleep(0.3)
    raise TimeoutError(f"{what} within {seconds} seconds")


def fetch_json(url, **options):
    with urllib.request.urlopen(urllib.request.Request(url, **options), timeout=10) as response:
        return json.load(response)


def answers(url):
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except OSError:
        return False
    return True


class Stack:
    """PostgreSQL, Redis, publishers, the three roles and Prometheus, each of which a drill may disturb."""

    def __init__(self, directory):
        self.directory = directory
        self.processes = {}
        self.environment = os.environ | {
            "VINTEM_REDIS_URL": f"redis://127.0.0.1:{REDIS_PORT}",
            "VINTEM_KEY_PEPPER": "a pepper for the drills of the alerts",
            "VINTEM_SECRET_KEY": "a secret key for the drills of the alerts",
            "VINTEM_LIMIT_PLATINUM": "100000000",
            "VINTEM_LIMIT_FREE": "10000",
            "VINTEM_WORK_ADMIN_LISTEN": "127.0.0.1:9081",
            "VINTEM_INGEST_ADMIN_LISTEN": "127.0.0.1:9082",
            "VINTEM_EXPORT_DIR": str(directory / "export"),
            "VINTEM_WEBHOOK_ALLOW": "127.0.0.0/8",
            "VINTEM_DRAIN_SECONDS": "0",
            "VINTEM_LOG": "info,sqlx=warn",
        }
        for upstream in ("SGS", "PTAX", "CVM"):
            self.environment[f"VINTEM_{upstream}_URL"] = f"http://127.0.0.1:{UPSTREAM_PORT}"
        self.use_database("vintem")

    def use_database(self, name):
        self.environment["VINTEM_DATABASE_URL"] = f"postgres://postgres@127.0.0.1:{POSTGRES_PORT}/{name}"

    # Processes

    def spawn(self, name, command, **environment):
        log = open(self.directory / f"{name}.log", "ab")
        self.processes[name] = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment | environment
        )

    def stop(self, name, number=signal.SIGKILL):
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(timeout=30)

    def vintem(self, *arguments, check=True):
        done = subprocess.run([VINTEM, *arguments], env=self.environment, capture_output=True, text=True, timeout=300)
        if check and done.returncode:
            raise RuntimeError(f"vintem {' '.join(arguments)}: {done.stderr[-2000:]}{done.stdout[-2000:]}")
        return done.stdout

    def start_replica(self, **environment):
        self.spawn("serve", [VINTEM, "serve"], **environment)
        wait_for("the replica answers", lambda: answers(f"http://127.0.0.1:{PUBLIC_PORT}/health"))

    def start_worker(self, **environment):
        self.spawn("work", [VINTEM, "work"], **environment)
        wait_for("the worker answers", lambda: answers("http://127.0.0.1:9081/livez"))

    def start_ingestion(self):
        self.spawn("ingest", [VINTEM, "ingest", "--watch"])
        wait_for("the ingestion answers", lambda: answers("http://127.0.0.1:9082/livez"))

    def start_publishers(self, today=TODAY, *arguments, companies=100):
        self.spawn("upstreams", [
            UPSTREAMS, "--listen", f"127.0.0.1:{UPSTREAM_PORT}", "--today", str(today), "--ipe-rows", "20",
            "--companies", str(companies), *arguments,
        ])
        registry = f"http://127.0.0.1:{UPSTREAM_PORT}/dados/CIA_ABERTA/CAD/DADOS/cad_cia_aberta.csv"
        wait_for("the publishers answer", lambda: answers(registry))

    def restart_publishers(self, *arguments, **options):
        self.stop("upstreams")
        self.start_publishers(*arguments, **options)

    def make_everything_due(self):
        self.sql("update source_part set checked_at = checked_at - interval '2 days', next_attempt_at = null")

    # PostgreSQL and Redis

    def start_postgres(self):
        data = self.directory / "postgres"
        if not data.exists():
            data.mkdir()
            shutil.chown(data, "postgres")
            self.as_postgres("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.as_postgres(
            "pg_ctl", "-D", data, "-l", data / "log", "-w", "start",
            "-o", f"-p {POSTGRES_PORT} -k '' -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200",
        )

    def as_postgres(self, program, *arguments):
        command = ["runuser", "-u", "postgres", "--", f"{PG_BIN}/{program}", *map(str, arguments)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def signal_postgres(self, number):
        postmaster = int((self.directory / "postgres/postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for process in [postmaster, *map(int, children)]:
            os.kill(process, number)

    def sql(self, *statements):
        command = ["psql", self.environment["VINTEM_DATABASE_URL"], "-At", "-v", "ON_ERROR_STOP=1"]
        for statement in statements:
            command += ["-c", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def start_redis(self):
        (self.directory / "redis").mkdir(exist_ok=True)
        self.spawn("redis", [
            "redis-server", "--port", str(REDIS_PORT), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes",
            "--appendfsync", "always", "--dir", str(self.directory / "redis"),
        ])
        wait_for("Redis answers", lambda: self.redis("ping") == "PONG")

    def redis(self, *words):
        command = ["redis-cli", "-p", str(REDIS_PORT), *words]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    # Prometheus

    def start_prometheus(self):
        self.spawn("prometheus", [
            PROMETHEUS, f"--config.file={ROOT / 'deploy/prometheus/prometheus.yaml'}",
            f"--storage.tsdb.path={self.directory / 'prometheus'}", "--web.listen-address=127.0.0.1:9090",
        ])
        wait_for("Prometheus answers", lambda: answers("http://127.0.0.1:9090/-/ready"))

    def firing_alerts(self):
        alerts = fetch_json("http://127.0.0.1:9090/api/v1/alerts")["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    # Requests

    def create_key(self, plan):
        arguments = ["keys", "create", "--plan", plan, "--name", "drill", "--email", "drill@example.com", "--json"]
        return json.loads(self.vintem(*arguments))["api_key"]

    def close(self):
        for name in list(self.processes):
            self.stop(name)
        if (self.directory / "postgres/postmaster.pid").exists():
            self.signal_postgres(signal.SIGCONT)
            self.as_postgres("pg_ctl", "-D", self.directory / "postgres", "-m", "immediate", "stop")


class Traffic:
    """Sends one request after another on each of some connections until it is stopped; bounded in rate and time."""

    def __init__(self, path, key, connections=2, per_second=10, max_seconds=900):
        self.stopping = threading.Event()
        self.path, self.headers, self.pause = path, {"X-API-Key": key}, connections / per_second
        self.until = time.monotonic() + max_seconds
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(connections)]
        for thread in self.threads:
            thread.start()

    def run(self):
        connection = None
        while not self.stopping.is_set() and time.monotonic() < self.until:
            started = time.monotonic()
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", PUBLIC_PORT, timeout=10)
                connection.request("GET", self.path, headers=self.headers)
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection = None
                self.stopping.wait(0.2)
            self.stopping.wait(max(0, self.pause - (time.monotonic() - started)))

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


class SlowUploads:
    """Clients of several addresses that send the head of a registration and then nothing, again and again."""

    HEAD = (
        b"POST /api/v1/plans/register HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )

    def __init__(self, addresses, connections_each, seconds_each, max_seconds=240):
        self.until = time.monotonic() + max_seconds
        self.addresses = [f"127.0.0.{10 + number}" for number in range(addresses) for _ in range(connections_each)]
        self.seconds_each = seconds_each
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True)
        self.thread.start()

    async def run(self):
        await asyncio.gather(*map(self.upload, self.addresses))

    async def upload(self, address):
        while time.monotonic() < self.until:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", PUBLIC_PORT, local_addr=(address, 0))
                writer.write(self.HEAD)
                try:
                    await asyncio.wait_for(reader.read(4096), self.seconds_each)
                finally:
                    writer.close()
            except (OSError, asyncio.TimeoutError):
                await asyncio.sleep(0.05)

    def stop(self):
        self.until = 0
        self.thread.join()


class Drills:
    """Each drill names its alerts, causes the failure, yields until they fire, and repairs it."""

    def __init__(self, stack):
        self.stack = stack
        self.key = stack.create_key("platinum")

    def postgres_hangs(self):
        """
        VintemPostgresDown VintemLagging VintemUsageNotStored
        VintemFailingFast VintemFailingSlowly VintemVerySlow VintemSlow
        """
        # Usage needs PostgreSQL: these requests get 503 after more than 250 ms.
        traffic = Traffic("/api/v1/plans/usage", self.key, connections=8, per_second=8)
        self.stack.signal_postgres(signal.SIGSTOP)
        yield
        self.stack.signal_postgres(signal.SIGCONT)
        traffic.stop()
        # The shares of bad requests go down as others succeed.
        Traffic("/api/v1/market/selic/current", self.key, connections=4, per_second=1200, max_seconds=420)

    def postgres_is_read_only(self):
        """VintemPostgresReadOnly VintemUsageNotStored"""
        traffic = Traffic("/api/v1/market/selic/current", self.key)
        self.stack.sql("alter system set default_transaction_read_only = on", "select pg_reload_conf()")
        yield
        self.stack.sql(
            "set default_transaction_read_only = off",
            "alter system reset default_transaction_read_only",
            "select pg_reload_conf()",
        )
        traffic.stop()

    def a_table_is_locked(self):
        """VintemPostgresBusy"""
        traffic = Traffic("/api/v1/webhooks", self.key, connections=40, per_second=200)
        lock = subprocess.Popen(
            ["psql", self.stack.environment["VINTEM_DATABASE_URL"], "-q"], stdin=subprocess.PIPE, text=True
        )
        lock.stdin.write("begin; lock table webhook in access exclusive mode;\n")
        lock.stdin.flush()
        yield
        lock.communicate("rollback;\n")
        traffic.stop()
        # Waits are judged over two minutes of statements.
        Traffic("/api/v1/webhooks", self.key, connections=4, per_second=200, max_seconds=240)

    def redis_is_down(self):
        """VintemRedisDown"""
        traffic = Traffic("/api/v1/market/selic/current", self.key)
        self.stack.stop("redis")
        yield
        self.stack.start_redis()
        traffic.stop()

    def redis_loses_its_last_writes(self):
        """VintemUsageLost"""
        traffic = Traffic("/api/v1/market/selic/current", self.key, per_second=100)
        files, saved = self.stack.directory / "redis/appendonlydir", self.stack.directory / "saved"
        time.sleep(2)
        shutil.copytree(files, saved)
        time.sleep(2)
        self.stack.stop("redis")
        shutil.rmtree(files)
        saved.rename(files)
        self.stack.start_redis()
        yield
        traffic.stop()

    def redis_is_put_back_to_a_stored_batch(self):
        """VintemUsageConflict"""
        traffic = Traffic("/api/v1/market/selic/current", self.key)
        wait_for("usage is stored", lambda: self.stack.sql("select count(*) from usage_chunk") != "0")
        chunk = self.stack.sql("select id from usage_chunk order by stored_at desc limit 1")
        self.stack.redis("set", "vintem:usage:open", chunk.rsplit(":", 1)[0])
        yield
        traffic.stop()

    def the_worker_is_down(self):
        """VintemDown VintemEventsLate VintemDeliveriesLate"""
        receiver = f"http://127.0.0.1:{RECEIVER_PORT}/"
        webhook = self.post("/api/v1/webhooks", {"url": receiver, "types": ["rate.published"]})
        self.stack.stop("work")
        self.post(f"/api/v1/webhooks/{webhook['id']}/test", None)
        # A value that is new to us.
        self.stack.restart_publishers(TODAY)
        self.stack.vintem("ingest", "sgs")
        yield
        self.stack.spawn("receiver", [sys.executable, "-m", "http.server", str(RECEIVER_PORT), "--bind", "127.0.0.1"])
        self.stack.start_worker()

    def a_background_task_panics(self):
        """VintemTaskFailed"""
        # Before 1970 there is no time to be had, which panics whatever asks for it.
        clock = self.stack.directory / "clock"
        clock.write_text("+0")
        self.restart_worker_with_clock(clock)
        time.sleep(20)
        clock.write_text("@1960-01-01 00:00:00")
        time.sleep(3)
        clock.write_text("+0")
        yield
        self.restart_worker()

    def exports_cannot_be_built(self):
        """VintemExportsLate"""
        # The worker's clock shows that the last export was complete hours ago, and then the disk is unusable.
        clock, export = self.stack.directory / "clock", self.stack.directory / "export"
        clock.write_text("-130m")
        self.restart_worker_with_clock(clock)
        timestamp = "vintem_export_complete_timestamp_seconds "
        wait_for("the export is complete", lambda: timestamp in self.metrics("9081"), 180)
        export.rename(export.with_name("export-away"))
        export.write_text("no directory")
        clock.write_text("+0")
        # New data, which the export lacks.
        self.stack.restart_publishers(DAY_BEFORE, companies=101)
        self.stack.vintem("ingest", "companies")
        yield
        export.unlink()
        export.with_name("export-away").rename(export)
        self.restart_worker()

    def a_publisher_is_down(self):
        """VintemUpstreamDown"""
        self.stack.stop("upstreams")
        self.stack.stop("ingest")
        self.stack.make_everything_due()
        self.stack.start_ingestion()
        yield
        self.stack.start_publishers()
        self.stack.stop("ingest")
        self.stack.make_everything_due()
        self.stack.start_ingestion()

    def a_publisher_sends_pages_and_bad_rows(self):
        """VintemSourceFailing VintemQuarantine"""
        self.stack.restart_publishers(
            TODAY, "--fault", "bcdata.sgs.432=html-with-200", "--fault", "bcdata.sgs.433=bad-value"
        )
        self.stack.vintem("ingest", "selic", "ipca", "--since", "2026-01-01", check=False)
        yield
        self.stack.restart_publishers(TODAY)
        self.stack.make_everything_due()
        self.stack.vintem("ingest", "selic", "ipca")

    def data_is_missing(self):
        """VintemDataMissing"""
        self.use_database_without_data()
        yield
        self.stack.restart_publishers(TODAY - datetime.timedelta(days=40))
        self.stack.vintem("ingest")

    def data_is_old(self):
        """VintemDataStale"""
        # That is how the drill before left it.
        yield
        self.stack.restart_publishers(TODAY)
        self.stack.make_everything_due()
        self.stack.vintem("ingest")

    def the_pepper_is_wrong(self):
        """VintemWrongPepper"""
        # This database has no key yet, so the replica starts.
        self.use_database_without_data(VINTEM_KEY_PEPPER="another pepper, which nobody should use")
        self.stack.create_key("gold")
        yield
        self.stack.stop("serve")
        self.stack.use_database("vintem")
        self.stack.start_replica()

    def the_database_is_restored(self):
        """VintemDatabaseReplaced"""
        dump, url = self.stack.directory / "dump.sql", self.stack.environment["VINTEM_DATABASE_URL"]
        subprocess.run(["pg_dump", f"--file={dump}", url], check=True)
        self.stack.create_key("gold")
        time.sleep(3)
        # As docs/operations.md says.
        command = ["psql", url, "--single-transaction", "-v", "ON_ERROR_STOP=1"]
        command += ["-c", "drop schema public cascade; create schema public", "-f", str(dump)]
        subprocess.run(command, check=True, capture_output=True)
        yield

    def uploads_fill_the_capacity(self):
        """VintemOverloaded"""
        uploads = SlowUploads(addresses=10, connections_each=8, seconds_each=9)
        yield
        uploads.stop()

    def connections_run_out(self):
        """VintemConnectionsFull"""
        self.stack.stop("serve")
        self.stack.spawn("serve", ["prlimit", "--nofile=256:256", VINTEM, "serve"])
        wait_for("the replica answers", lambda: answers(f"http://127.0.0.1:{PUBLIC_PORT}/health"))
        uploads = SlowUploads(addresses=8, connections_each=30, seconds_each=9)
        yield
        uploads.stop()
        self.stack.stop("serve")
        self.stack.start_replica()

    def the_limit_of_open_files_is_too_low(self):
        """VintemFilesNearLimit"""
        process = self.stack.processes["serve"].pid
        in_use = len(os.listdir(f"/proc/{process}/fd"))
        subprocess.run(["prlimit", f"--pid={process}", f"--nofile={in_use * 100 // 85}:"], check=True)
        yield
        subprocess.run(["prlimit", f"--pid={process}", "--nofile=4096:"], check=True)

    # Helpers

    def use_database_without_data(self, **environment):
        self.stack.stop("serve")
        self.stack.use_database("vintem")
        if self.stack.sql("select count(*) from pg_database where datname = 'second'") == "0":
            self.stack.sql("create database second")
        self.stack.use_database("second")
        self.stack.vintem("migrate")
        self.stack.start_replica(**environment)

    def post(self, path, body):
        headers = {"X-API-Key": self.key, "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body is not None else b""
        return fetch_json(f"http://127.0.0.1:{PUBLIC_PORT}{path}", data=data, headers=headers, method="POST")

    def metrics(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
            return response.read().decode()

    def restart_worker(self):
        self.stack.stop("work")
        self.stack.start_worker()

    def restart_worker_with_clock(self, clock):
        self.stack.stop("work")
        self.stack.start_worker(
            LD_PRELOAD=FAKETIME, FAKETIME_TIMESTAMP_FILE=str(clock), FAKETIME_NO_CACHE="1",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
        )


# In this order: what comes later may use what a drill left behind.
DRILLS = [
    "exports_cannot_be_built", "postgres_hangs", "the_worker_is_down", "redis_is_put_back_to_a_stored_batch",
    "redis_loses_its_last_writes", "a_background_task_panics", "a_publisher_sends_pages_and_bad_rows", "redis_is_down",
    "postgres_is_read_only", "a_table_is_locked", "a_publisher_is_down", "uploads_fill_the_capacity",
    "connections_run_out", "the_limit_of_open_files_is_too_low", "the_database_is_restored", "data_is_missing",
    "data_is_old", "the_pepper_is_wrong",
]


def main():
    chosen = sys.argv[1:] or DRILLS
    rules = set(re.findall(r"alert: (\S+)", RULES.read_text()))
    covered = {alert for name in DRILLS for alert in getattr(Drills, name).__doc__.split()}
    problems = [f"no drill causes {alert}" for alert in sorted(rules - covered)]
    problems += [f"a drill expects {alert}, which has no rule" for alert in sorted(covered - rules)]

    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    stack = Stack(directory)
    waiting = {}
    try:
        stack.start_postgres()
        stack.as_postgres("createdb", "-h", "127.0.0.1", "-p", POSTGRES_PORT, "vintem")
        stack.start_redis()
        stack.vintem("migrate")
        stack.start_publishers(DAY_BEFORE)
        stack.vintem("ingest")
        stack.start_replica()
        stack.start_worker()
        stack.start_ingestion()
        stack.start_prometheus()
        drills = Drills(stack)
        wait_for("all processes are scraped", lambda: len(up_processes()) == 3, 90)

        for name in chosen:
            drill = getattr(drills, name)
            alerts = set(drill.__doc__.split())
            clear(stack, waiting, alerts, problems)
            began = time.monotonic()
            steps = drill()
            next(steps)
            missing = set(alerts)
            while missing and time.monotonic() - began < MAX_FIRE_SECONDS + 30:
                for alert in sorted(missing & stack.firing_alerts()):
                    seconds = time.monotonic() - began
                    print(f"{name}.{alert}.fired_after_seconds: {seconds:.0f}", flush=True)
                    if seconds > MAX_FIRE_SECONDS:
                        problems.append(f"{name}: {alert} fired after {seconds:.0f} seconds")
                    missing.remove(alert)
                time.sleep(1)
            problems += [f"{name}: {alert} did not fire" for alert in sorted(missing)]
            if missing:
                print(f"{name}: {sorted(missing)} did not fire", flush=True)
            next(steps, None)
            waiting |= {alert: (name, time.monotonic()) for alert in alerts - missing}
        clear(stack, waiting, set(waiting), problems)
    finally:
        stack.close()
        if problems or sys.exc_info()[0]:
            print(f"logs: {directory}")
        else:
            shutil.rmtree(directory)

    for problem in problems:
        print(problem)
    print(f"alerts: {len(rules)}")
    print(f"problems: {len(problems)}")
    return 1 if problems else 0


def up_processes():
    found = fetch_json("http://127.0.0.1:9090/api/v1/query?query=up==1")["data"]["result"]
    return [result["metric"]["job"] for result in found]


def clear(stack, waiting, alerts, problems):
    """Waits until these alerts, which fired in an earlier drill, are clear. Notes when others became so."""
    while True:
        firing = stack.firing_alerts()
        for alert in [alert for alert in waiting if alert not in firing]:
            name, repaired = waiting.pop(alert)
            print(f"{name}.{alert}.cleared_after_seconds: {time.monotonic() - repaired:.0f}", flush=True)
        due = [alert for alert in waiting if alert in alerts]
        if not due:
            return
        for alert in due:
            name, repaired = waiting[alert]
            if time.monotonic() - repaired > MAX_CLEAR_SECONDS:
                problems.append(f"{name}: {alert} did not clear")
                del waiting[alert]
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
