"""Runs the code blocks of the guides in order and compares the results with the API.

usage: guides.py GUIDES DIRECTORY URL GOLD_KEY PLATINUM_KEY, with VINTEM_DATABASE_URL set. The blocks write to
DIRECTORY, which contains the JavaScript packages.

Each runnable block has a step here that runs it; a block without a step is a failure. Prints failures, figures, and last
how many blocks failed.
"""

import base64, contextlib, csv, hashlib, http.client, http.server, io, itertools, json, os, re, runpy, shutil, socket
import sqlite3, subprocess, sys, threading, time, traceback, urllib.error, urllib.request
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow
import pyarrow.parquet

checks = Path(__file__).parent
guides = Path(sys.argv[1])
workdir = Path(sys.argv[2])
url, gold, platinum = sys.argv[3:]
RUNNABLE = ("sh", "python", "js", "r", "gs", "powerquery")
ILLUSTRATIONS = ("json", "text")
DOCTESTS = ("rust",)
SECONDS_TO_WAIT = 60
compared = 0


class Block:
    def __init__(self, guide, line, language, text):
        self.guide = guide
        self.language = language
        self.text = text
        self.place = f"{guide}.md:{line}"

    def file_name(self):
        """The file name in the first line."""
        name = re.match(r"(?:#|//) ([a-z_]+\.(?:py|mjs|R|gs))\n", self.text)
        assert name, "the first line does not name the file"
        return name[1]


class Reader:
    """A reader who follows a guide: a directory and the environment of the terminal. The key may be None."""

    def __init__(self, guide, key):
        self.directory = workdir / guide
        self.directory.mkdir()
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "VINTEM_URL": url,
        }
        if key:
            self.variables["VINTEM_API_KEY"] = key

    def path(self, name):
        return self.directory / name

    def run(self, block, *arguments):
        """Runs the block and returns its output. Variables that it exports are set for the next blocks."""
        if block.language == "python":
            return self.run_python(block, arguments)
        programs = {"js": ["node"], "r": ["Rscript", "--vanilla"], "gs": ["node", str(checks / "apps-script.mjs")]}
        if block.language in programs:
            process = self.start([*programs[block.language], self.save(block), *arguments])
            output = process.communicate(timeout=SECONDS_TO_WAIT)
        else:
            # The whole block runs under `bash -e`; only its variables carry over to the next block.
            script = block.text + "\nenv -0 >.variables\n"
            process = self.start(["bash", "-euo", "pipefail", "-c", script])
            output = process.communicate(timeout=SECONDS_TO_WAIT)
            if process.returncode == 0:
                exported = self.path(".variables").read_text().split("\0")
                self.variables |= dict(one.split("=", 1) for one in exported if one)
        if process.returncode != 0:
            raise BlockFailed(process.returncode, output[0] + output[1])
        return output[0]

    def run_python(self, block, arguments):
        self.globals = None
        output = io.StringIO()
        before = dict(os.environ)
        directory = os.getcwd()
        given = sys.argv[1:]
        os.environ.clear()
        os.environ.update(self.variables)
        os.chdir(self.directory)
        sys.argv[1:] = arguments
        try:
            with contextlib.redirect_stdout(output):
                self.globals = runpy.run_path(self.save(block), run_name="__main__")
        finally:
            sys.argv[1:] = given
            os.chdir(directory)
            os.environ.clear()
            os.environ.update(before)
        return output.getvalue()

    def save(self, block):
        self.path(block.file_name()).write_text(block.text)
        return block.file_name()

    def start(self, command, **variables):
        environment = self.variables | variables
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.directory, env=environment, stdout=pipe, stderr=pipe, text=True)


class BlockFailed(Exception):
    def __init__(self, code, output):
        super().__init__(f"ended with {code}: {output.strip()}")
        self.code = code


def call(path, key=platinum, method="GET", body=None, **headers):
    """Calls the API, without a key if `key` is None. Returns status, headers and body."""
    request = urllib.request.Request(url + path, method=method, headers=headers)
    if key is not None:
        request.add_header("X-API-Key", key)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    try:
        answer = urllib.request.urlopen(request, timeout=SECONDS_TO_WAIT)
    except urllib.error.HTTPError as refusal:
        answer = refusal
    with answer:
        return answer.status, answer.headers, answer.read()


def api(path, **more):
    status, _, body = call(path, **more)
    assert status < 300, f"{path}: {status} {body.decode()}"
    return json.loads(body)


def all_rows(path):
    """All rows of a list as JSON, with numbers as strings to keep every digit."""
    rows = []
    total = 1
    while len(rows) < total:
        numbers = "&numbers=string" if path.startswith("/api/v1/market/") else ""
        page = api(f"{path}{numbers}&offset={len(rows)}")
        total = page["total"]
        rows += page["data"]
    return rows


def assert_rows_equal(actual, expected, columns):
    """Compares rows of a guide with those of the API, cell by cell."""
    global compared
    assert len(actual) == len(expected) > 0, f"{len(actual)} rows and not {len(expected)}"
    for actual_row, expected_row in zip(actual, expected):
        for column in columns:
            actual_cell = actual_row[column]
            expected_cell = expected_row[column]
            assert actual_cell == expected_cell, f"{column} is {actual_cell!r} and not {expected_cell!r}"
            compared += 1


def register_free_key():
    """Registers a new key on the Free plan."""
    asked = {"name": "check", "email": "guides@example.com"}
    return api("/api/v1/plans/register", method="POST", body=asked)["api_key"]


def parse_exact(text):
    """Parses JSON with decimals."""
    return json.loads(text, parse_float=Decimal)


def assert_equal(actual, expected):
    """Compares a value of a guide with that of the API."""
    global compared
    assert actual == expected, f"{actual!r} and not {expected!r}"
    compared += 1


def wait(what, condition):
    deadline = time.monotonic() + SECONDS_TO_WAIT
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {what}")


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# csv.md

MARKET = ("date", "value")
COMPANY = ("id", "name", "cnpj", "status", "sector", "trade_name", "city", "state", "auditor")


def read_csv(path, separator=","):
    content = path.read_bytes()
    assert content.endswith(b"\r\n")
    return list(csv.DictReader(io.StringIO(content.decode(), newline=""), delimiter=separator, strict=True))


def csv_of_a_series(reader, block):
    reader.run(block)
    rows = read_csv(reader.path("ipca.csv"))
    assert list(rows[0]) == ["date", "value", "derived", "unit", "series", "series_id", "unit_code"], list(rows[0])
    assert_rows_equal(rows, api("/api/v1/market/ipca?limit=12&numbers=string")["data"], MARKET)
    for headers in ({}, {"Accept": "text/csv"}):
        query = "" if headers else "?format=csv"
        status, response_headers, body = call("/api/v1/market/ipca" + query, key=gold, **headers)
        assert status == 403 and json.loads(body)["required_plan"] == "platinum", "a refusal is JSON"
    for path in ("search?q=a", "companies/facets?", "market/ipca/current?"):
        assert_equal(call(f"/api/v1/{path}&format=csv")[0], 400)


def csv_by_accept(reader, block):
    reader.run(block)
    query = "/api/v1/market/fx?pair=EUR/BRL&from=2026-01-01&limit=20000"
    assert_rows_equal(read_csv(reader.path("fx.csv")), all_rows(query), ("date", "pair", "buy", "sell"))
    answer = call(query + "&format=json", Accept="text/csv")
    assert answer[1]["Content-Type"] == "application/json", "format decides"


def csv_for_brazil(reader, block):
    reader.run(block)
    (path,) = reader.directory.glob("vintem-ipca-????-??-??.csv")
    content = path.read_bytes()
    assert content.startswith(b"\xef\xbb\xbfdate;value;"), content[:20]
    path.write_bytes(content[3:])
    rows = read_csv(path, ";")
    assert all("," in row["value"] for row in rows)
    rows = [row | {"value": row["value"].replace(",", ".")} for row in rows]
    assert_rows_equal(rows, api("/api/v1/market/ipca?limit=12&numbers=string")["data"], MARKET)


def csv_of_all_filings(reader, block):
    reader.run(block)
    columns = ("id", "company_id", "company_name", "category", "date", "description", "type", "kind", "protocol")
    assert_rows_equal(read_csv(reader.path("filings.csv")), all_rows("/api/v1/filings?limit=100"), columns)
    query = "/api/v1/filings?limit=1000000&format=csv"
    assert call(query, **{"Accept-Encoding": "gzip"})[1]["Content-Encoding"] == "gzip"
    assert 'rel="next"' in call("/api/v1/filings?limit=1000&format=csv")[1]["Link"]


def csv_by_pandas(reader, block):
    reader.run(block)
    rates = reader.globals["rates"]
    assert all(type(value) is Decimal for column in ("buy", "sell") for value in rates[column])
    actual = [
        {"date": str(day.date()), "buy": str(buy), "sell": str(sell)}
        for day, buy, sell in zip(rates["date"], rates["buy"], rates["sell"])
    ]
    assert_rows_equal(actual, all_rows("/api/v1/market/fx?pair=EUR/BRL&limit=20000"), ("date", "buy", "sell"))
    companies = reader.globals["companies"].to_dict("records")
    assert_rows_equal(companies, all_rows("/api/v1/companies?limit=100"), COMPANY)
    assert any(row["name"] == "=1+1" and row["auditor"] == "\t=2" for row in companies)
    written = call("/api/v1/companies?limit=100000&format=csv")[2].decode()
    for cell in (""",'=1+1,""", ''',"'+55;11, ""so""",''', ",'@home,", ",'\t=2,"):
        assert cell in written, cell


def csv_by_node(reader, block):
    output = reader.run(block)
    companies = json.loads(reader.path("companies.json").read_text())
    assert_rows_equal(companies, all_rows("/api/v1/companies?limit=100"), COMPANY)
    assert any(row["trade_name"] == '+55;11, "so"' for row in companies)
    assert output.startswith(f"{len(companies)} companies, the first"), output


# exports.md


def export_list(reader, block):
    output = reader.run(block).splitlines()
    listed = api("/api/v1/export", key=gold)["data"]
    assert len(output) == len(listed) > 12, output
    for line, entry in zip(output, listed):
        assert line == f"{entry['name']}: {entry['rows']} rows, made at {entry['generated_at']}", line
        assert [file["format"] for file in entry["files"]] == ["csv.gz", "ndjson.gz", "parquet"]
    names = [entry["name"] for entry in listed]
    assert {"selic", "cdi", "ipca", "fx", "companies", "filings-2026", "filings"} <= set(names), names


def listed_file(name):
    listed = api("/api/v1/export", key=gold)["data"]
    return next(file for entry in listed for file in [*entry["files"], entry["sidecar"]] if file["name"] == name)


def export_download(reader, block):
    assert reader.run(block) == "fx.parquet: OK\n"
    assert reader.path("fx.parquet").stat().st_size == listed_file("fx.parquet")["bytes"]


def export_once(reader, block):
    first = reader.run(block)
    path = reader.path("selic.csv.gz")
    file = listed_file("selic.csv.gz")
    assert first.splitlines()[0] == "date,value,derived,unit,series,series_id,unit_code" and sha256(path) == file["sha256"], first
    assert reader.path("selic.etag").read_text().strip() == f'"{file["sha256"]}"'
    assert call("/api/v1/export/selic.csv.gz", key=gold, **{"If-None-Match": f'"{file["sha256"]}"'})[0] == 304
    kept = path.stat()
    assert reader.run(block) == first
    again = path.stat()
    assert (kept.st_mtime_ns, kept.st_size) == (again.st_mtime_ns, again.st_size), "it was downloaded again"


def export_resume(reader, block):
    file = listed_file("filings.csv.gz")
    path = reader.path("filings.csv.gz")
    name = "/api/v1/export/filings.csv.gz"
    whole = call(name, key=gold)[2]
    # From nothing, and from what an interrupted download left.
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        path.unlink(missing_ok=True)
        if size:
            path.write_bytes(whole[:size])
        assert reader.run(block) == "filings.csv.gz: OK\n", size
        assert path.read_bytes() == whole, size
    assert exit_code(reader, block) in (0, 22) and path.read_bytes() == whole, "nothing is left to do"
    # The list describes another file than the one that is served now.
    listed = reader.path("export.json")
    shutil.copy(listed, reader.path("kept.json"))
    listed.write_text(listed.read_text().replace(file["sha256"], "0" * 64))
    path.write_bytes(whole[:1000])
    assert exit_code(reader, block) == 33 and path.read_bytes() == whole[:1000], "another file was gone on with"
    shutil.move(reader.path("kept.json"), listed)
    assert call(name, key=gold, Range="bytes=0-1,5-6")[0] == 200
    assert call(name, key=gold, Range=f"bytes={len(whole)}-")[0] == 416


def exit_code(reader, block):
    try:
        reader.run(block)
        return 0
    except BlockFailed as failure:
        return failure.code


def export_sidecar(reader, block):
    output = json.loads(reader.run(block))
    assert output["licence"] == "ODbL-1.0" and "ODbL" in output["attribution"] and output["synthetic"] is True, output
    assert {"name": "date", "type": "date"} in output["columns"], output["columns"]
    assert output["sources"] and set(output["sources"][0]) == {"fetched_at", "address", "sha256"}, output["sources"]
    sidecar = json.loads(reader.path("fx.json").read_text())
    checksums = {file["name"]: file["sha256"] for file in sidecar["files"]}
    assert all(checksum == listed_file(name)["sha256"] for name, checksum in checksums.items()) and len(checksums) == 3
    metadata = pyarrow.parquet.read_schema(reader.path("fx.parquet")).metadata
    assert metadata[b"dataset"] == b"fx" and metadata[b"licence"] == b"ODbL-1.0"


def export_by_python(reader, block):
    global compared
    reader.run(block)
    read = reader.globals["table"]
    frame = reader.globals["frame"]
    assert read.schema.field("date").type == pyarrow.date32()
    assert pyarrow.types.is_decimal(read.schema.field("sell").type)
    entry = next(entry for entry in api("/api/v1/export", key=gold)["data"] if entry["name"] == "fx")
    assert read.num_rows == len(frame) == entry["rows"]
    served = all_rows("/api/v1/market/fx?pair=EUR/BRL&order=asc&limit=20000")
    euro = reader.globals["euro"]
    actual = [dict(zip(("date", "buy", "sell"), row)) for row in zip(euro["date"], euro["buy"], euro["sell"])]
    expected = [
        {"date": date.fromisoformat(row["date"]), "buy": Decimal(row["buy"]), "sell": Decimal(row["sell"])}
        for row in served
    ]
    assert all(type(row["date"]) is date and type(row["sell"]) is Decimal for row in actual)
    assert_rows_equal(actual, expected, ("date", "buy", "sell"))
    highest = max(Decimal(row["sell"]) for row in served)
    assert type(reader.globals["highest"]) is Decimal and reader.globals["highest"] == highest
    by_year = {}
    for row in served:
        year = int(row["date"][:4])
        by_year[year] = max(by_year.get(year, Decimal(0)), Decimal(row["sell"]))
    assert dict(reader.globals["by_year"]) == by_year
    compared += len(by_year)


# webhooks.md


class RecordedRequest:
    def __init__(self, headers, body, status):
        self.headers = headers
        self.body = body
        self.status = status
        self.event = json.loads(body)


class RecordingProxy:
    """A reverse proxy in front of a receiver: records each request and forwards it. Answers 500 without a receiver."""

    def __init__(self):
        self.requests = []
        self.receiver_port = None
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = post(proxy.receiver_port, headers, body) if proxy.receiver_port else 500
                proxy.requests.append(RecordedRequest(headers, body, status))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def for_event(self, event_id):
        return [one for one in self.requests if one.headers["webhook-id"] == event_id]


class Receiver:
    """A running receiver program of a guide."""

    def __init__(self, reader, block, secret, directory=None):
        self.directory = directory or reader.directory
        self.directory.mkdir(exist_ok=True)
        (self.directory / block.file_name()).write_text(block.text)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        program = {"python": sys.executable, "js": "node"}[block.language]
        variables = reader.variables | {"VINTEM_WEBHOOK_SECRET": secret, "PORT": str(self.port)}
        self.log = open(self.directory / f"{self.port}.log", "w+")
        command = [program, block.file_name()]
        self.process = subprocess.Popen(command, cwd=self.directory, env=variables, stdout=self.log, stderr=self.log)
        running.append(self.process)
        wait(f"{block.place} to listen", self.is_listening)

    def is_listening(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the receiver ended: {Path(self.log.name).read_text()}")
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    def accepts(self, one, body=None, **changed):
        headers = one.headers | {name.replace("_", "-"): value for name, value in changed.items()}
        return post(self.port, headers, one.body if body is None else body) == 204

    def stored(self):
        """The events that the receiver stored, as (id, body)."""
        if (self.directory / "inbox.db").exists():
            with sqlite3.connect(self.directory / "inbox.db") as inbox:
                return inbox.execute("select id, body from inbox").fetchall()
        lines = (self.directory / "inbox.ndjson").read_text().splitlines()
        return [(json.loads(line)["id"], line) for line in lines]

    def stop(self):
        self.process.kill()
        self.process.wait()


def post(port, headers, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_TO_WAIT)
    headers = {name: value for name, value in headers.items() if value and name not in ("host", "content-length")}
    try:
        connection.request("POST", "/", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def create_event(kind, **subject):
    """Inserts an event, as an ingest would, and returns its id."""
    row = f"'{kind}', now(), '{json.dumps(subject)}'"
    statement = f"insert into event (type, occurred_at, subject) values ({row}) returning id"
    command = ["psql", os.environ["VINTEM_DATABASE_URL"], "-AtqXc", statement]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def feed(query=""):
    """The event feed, as text and as parsed JSON."""
    text = call("/api/v1/events?limit=1000" + query)[2].decode()
    return text, json.loads(text)


def wait_until_published(event_id):
    return wait(f"{event_id} in the feed", lambda: any(one["id"] == event_id for one in feed()[1]["data"]))


def wait_for_arrival(event_id, times=1):
    wait(f"{event_id} to arrive", lambda: len(proxy.for_event(event_id)) >= times)
    return proxy.for_event(event_id)[-1]


def webhook_path(reader, path=""):
    return f"/api/v1/webhooks/{reader.variables['WEBHOOK_ID']}{path}"


def send_test_event(reader):
    return api(webhook_path(reader, "/test"), method="POST")["event_id"]


def find_delivery(reader, event_id):
    return next(one for one in api(webhook_path(reader, "/deliveries?limit=100"))["data"] if one["event_id"] == event_id)


def wait_for_state(reader, event_id, state):
    wait(f"{event_id} to be {state}", lambda: find_delivery(reader, event_id)["state"] == state)
    return find_delivery(reader, event_id)


def random_secret():
    return "whsec_" + base64.b64encode(os.urandom(32)).decode()


def webhook_create(reader, block):
    reader.run(block)
    created = json.loads(reader.path("webhook.json").read_text())
    fields = "id url types filters status disabled_reason created_at last_success_at secret".split()
    assert list(created) == fields and created["status"] == "active", created
    assert created["filters"] == {"companies": [], "categories": [], "series": ["selic"], "pairs": []}, created
    assert reader.variables["VINTEM_WEBHOOK_SECRET"] == created["secret"] and created["secret"].startswith("whsec_")
    assert "secret" not in api(webhook_path(reader)), "it is shown only once"
    address = created["url"]
    refused = [
        {"url": "http://example.com/"},
        {"url": "https://10.0.0.1/"},
        {"url": "https://[::1]/"},
        {"url": "https://example.com:22/"},
        {"url": "https://ana:word@example.com/"},
        {"url": "example.com"},
        {"url": address, "types": ["filing.published", "rate.published"], "filters": {"series": ["selic"]}},
        {"url": address, "filters": {"series": ["selic"], "categories": ["Fato Relevante"]}},
    ]
    for body in refused:
        assert call("/api/v1/webhooks", method="POST", body=body)[0] == 400, body
    another = {"url": address, "types": ["fx.published"]}
    more = [api("/api/v1/webhooks", method="POST", body=another) for _ in range(19)]
    assert call("/api/v1/webhooks", method="POST", body=another)[0] == 400, "a key has at most 20"
    for one in more:
        assert call(f"/api/v1/webhooks/{one['id']}", method="DELETE")[0] == 204


def check_receiver(reader, block, receiver):
    """The receiver accepts our events, stores each of them once, and accepts nothing else."""
    proxy.receiver_port = receiver.port
    test = wait_for_arrival(send_test_event(reader))
    assert test.event["type"] == "webhook.test" and "vintem-sequence" not in test.headers
    assert test.event["data"] == {"webhook_id": reader.variables["WEBHOOK_ID"]}
    newest = api("/api/v1/market/selic/current")["date"]
    events = [
        create_event("series.revised", series="selic", date=newest, old="13.00", new="13.25"),
        create_event("rate.published", series="selic", date=newest),
    ]
    left_out = create_event("series.revised", series="ipca", date="2026-10-01", old="0.10", new="0.18")
    wait_until_published(left_out)
    arrivals = [test] + [wait_for_arrival(event) for event in events]
    text, _ = feed()
    for one in arrivals[1:]:
        assert one.body.decode() in text, "the body is not that of the feed"
        sequence = int(one.headers["vintem-sequence"])
        _, page = feed(f"&after={sequence - 1}")
        assert page["data"][0]["id"] == one.event["id"], "vintem-sequence is not where it stands in the feed"
        _, page = feed(f"&after={sequence}")
        assert one.event["id"] not in [other["id"] for other in page["data"]]
    assert arrivals[1].event["data"]["new"] == 13.25 and b'"new":13.25' in arrivals[1].body
    assert arrivals[2].event["data"]["series"]["id"] == "selic"
    for one in arrivals:
        assert one.status == 204, f"{one.status}: the receiver did not take {one.body}"
        assert one.headers["content-type"] == "application/json" and one.headers["webhook-id"] == one.event["id"]
        assert receiver.accepts(one), "not a second time"
        for at in (0, len(one.body) // 2, len(one.body) - 1):
            for flip in (1, 0x80):
                changed = bytearray(one.body)
                changed[at] ^= flip
                assert not receiver.accepts(one, bytes(changed)), f"taken with another byte {at}"
        assert not receiver.accepts(one, b"") and not receiver.accepts(one, one.body + b" ")
        for name, value in (
            ("webhook_id", "evt_00000000000000000000000000000000"),
            ("webhook_timestamp", str(int(one.headers["webhook-timestamp"]) + 1)),
            ("webhook_timestamp", str(int(one.headers["webhook-timestamp"]) - 600)),
            ("webhook_timestamp", "yesterday"),
            ("webhook_signature", "v1," + base64.b64encode(bytes(32)).decode()),
            ("webhook_signature", "v1"),
            ("webhook_signature", ""),
        ):
            assert not receiver.accepts(one, **{name: value}), f"taken with {name} {value}"
    stranger = Receiver(reader, block, random_secret(), reader.path(f"stranger-{block.language}"))
    assert not any(stranger.accepts(one) for one in arrivals), "taken with another secret"
    stranger.stop()
    kept = receiver.stored()
    for one in arrivals:
        assert kept.count((one.event["id"], one.body.decode())) == 1, f"{one.event['id']} was not kept once"
    assert not proxy.for_event(left_out) and len(kept) == len({event_id for event_id, _ in kept}) == 3, kept
    attempts = wait_for_state(reader, events[0], "delivered")["attempts"]
    assert len(attempts) == 1 and attempts[0]["status"] == 204 and attempts[0]["error"] is None, attempts


def webhook_by_python(reader, block):
    reader.receiver_blocks = {"python": block}
    receiver = Receiver(reader, block, reader.variables["VINTEM_WEBHOOK_SECRET"])
    reader.receiver = receiver
    check_receiver(reader, block, receiver)
    # The function by itself, as a reader would copy it.
    verified = runpy.run_path(str(reader.path("receiver.py")))["verified"]
    one = proxy.requests[-1]
    os.environ["VINTEM_WEBHOOK_SECRET"] = reader.variables["VINTEM_WEBHOOK_SECRET"]
    assert verified(one.body, one.headers)["id"] == one.headers["webhook-id"]
    for secret, body in ((None, one.body.replace(b"2", b"3", 1)), (random_secret(), one.body)):
        os.environ["VINTEM_WEBHOOK_SECRET"] = secret or reader.variables["VINTEM_WEBHOOK_SECRET"]
        try:
            verified(body, one.headers)
        except Exception as error:
            assert type(error).__name__ == "WebhookVerificationError", error
        else:
            raise AssertionError("verified() takes what is not ours")


def webhook_by_node(reader, block):
    reader.receiver_blocks["js"] = block
    receiver = Receiver(reader, block, reader.variables["VINTEM_WEBHOOK_SECRET"], reader.path("node"))
    check_receiver(reader, block, receiver)
    # After a restart it still knows which events it has stored.
    one = proxy.requests[-1]
    receiver.stop()
    receiver = Receiver(reader, block, reader.variables["VINTEM_WEBHOOK_SECRET"], reader.path("node"))
    assert receiver.accepts(one) and len(receiver.stored()) == 3
    receiver.stop()
    proxy.receiver_port = reader.receiver.port


def webhook_test(reader, block):
    output = json.loads(reader.run(block))
    assert output["type"] == "webhook.test", output
    reader.test_event = output["event_id"]


def webhook_deliveries(reader, block):
    output = json.loads(reader.run(block))
    (one,) = output["data"]
    assert one["event_id"] == reader.test_event and one["type"] == "webhook.test" and output["limit"] == 1, output
    attempts = wait_for_state(reader, reader.test_event, "delivered")["attempts"]
    assert [attempt["status"] for attempt in attempts] == [204], attempts


def webhook_replay(reader, block):
    proxy.receiver_port = None
    event = send_test_event(reader)
    attempts = wait_for_state(reader, event, "dead")["attempts"]
    assert [(attempt["status"], attempt["error"]) for attempt in attempts] == [(500, "status")], "a test is sent once"
    proxy.receiver_port = reader.receiver.port
    reader.run(block)
    attempts = wait_for_state(reader, event, "delivered")["attempts"]
    assert [attempt["status"] for attempt in attempts] == [500, 204], attempts
    first, second = proxy.for_event(event)
    assert first.body == second.body and first.headers["webhook-signature"]
    assert json.loads(reader.path("replayed.json").read_text())["event_id"] == event
    # Events other than tests are retried automatically, the first time after 5 seconds ± 10 %.
    proxy.receiver_port = None
    event = create_event("series.revised", series="selic", date="2026-01-02", old="1", new="2")
    wait_for_arrival(event)
    proxy.receiver_port = reader.receiver.port
    wait_for_arrival(event, times=2)
    first, second = wait_for_state(reader, event, "delivered")["attempts"]
    waited = seconds(second["at"]) - seconds(first["at"])
    assert 4.5 <= waited < 15, f"sent again after {waited} seconds"
    print(f"sent_again_seconds: {waited:.1f}")


def seconds(instant):
    return time.mktime(time.strptime(instant[:19], "%Y-%m-%dT%H:%M:%S")) + float("0" + instant[19:-1])


def webhook_pause(reader, block):
    assert json.loads(reader.run(block))["status"] == "paused"
    assert call(webhook_path(reader, "/test"), method="POST")[0] == 400


def webhook_catch_up(reader, block):
    missed = [
        create_event("series.revised", series="selic", date="2026-01-05", old="1.10", new="2.20"),
        create_event("series.revised", series="selic", date="2026-01-06", old="1.10", new="2.30"),
    ]
    for event in missed:
        wait_until_published(event)
    reader.run(block)
    assert api(webhook_path(reader))["status"] == "active"
    text, _ = feed()
    kept = dict(reader.receiver.stored())
    for event in missed:
        assert kept[event] in text and '"old":1.10' in kept[event], kept[event]
    again = create_event("series.revised", series="selic", date="2026-01-07", old="1", new="2")
    assert wait_for_arrival(again).status == 204
    assert not any(proxy.for_event(event) for event in missed), "it was sent after all"
    assert reader.run(block) == "0 events read\n" and len(reader.receiver.stored()) == len(kept) + 1
    # Resume from before a gap when the later events are there already.
    with sqlite3.connect(reader.path("inbox.db")) as inbox:
        inbox.execute("delete from inbox where id = ?", missed[:1])
    published = [event["id"] for event in feed()[1]["data"]]
    cursor_before_gap = api(f"/api/v1/events?limit={published.index(missed[0])}")["cursor"]
    assert reader.run(block, cursor_before_gap) == "3 events read\n"
    assert len(reader.receiver.stored()) == len(kept) + 1 and dict(reader.receiver.stored())[missed[0]] == kept[missed[0]]


def webhook_rotate(reader, block):
    secrets = [reader.variables["VINTEM_WEBHOOK_SECRET"]]
    reader.run(block)
    secrets.append(reader.variables["VINTEM_WEBHOOK_SECRET"])
    assert len(set(secrets)) == 2
    one = wait_for_arrival(send_test_event(reader))
    assert one.status == 204 and len(one.headers["webhook-signature"].split(" ")) == 2, one.headers
    for language, program in reader.receiver_blocks.items():
        for secret, is_accepted in ((secrets[0], True), (secrets[1], True), (random_secret(), False)):
            receiver = Receiver(reader, program, secret, reader.path(f"rotated-{language}"))
            assert receiver.accepts(one) is is_accepted, f"{language}: {is_accepted}"
            receiver.stop()
    # Another rotation revokes the oldest secret at once.
    secrets.append(api(webhook_path(reader, "/rotate"), method="POST", body={"grace_seconds": 0})["secret"])
    last = Receiver(reader, reader.receiver_blocks["python"], secrets[2], reader.path("last"))
    proxy.receiver_port = last.port
    one = wait_for_arrival(send_test_event(reader))
    assert one.status == 204 and " " not in one.headers["webhook-signature"]
    last.stop()


def webhook_delete(reader, block):
    output = reader.run(block)
    assert reader.variables["WEBHOOK_ID"] in output and '"status": "active"' in output, output
    assert call(webhook_path(reader))[0] == 404


# quickstart.md


def quick_first(reader, block):
    assert "VINTEM_API_KEY" not in reader.variables
    assert_equal(parse_exact(reader.run(block)), parse_exact(call("/api/v1/market/selic/current")[2]))


def quick_register(reader, block):
    reader.run(block)
    key = reader.variables["VINTEM_API_KEY"]
    assert re.fullmatch("vtm_[0-9A-Za-z]{43}", key), key
    assert_equal(api("/api/v1/keys/me", key=key)["plan"], "free")
    assert reader.path("key.json").stat().st_mode & 0o777 == 0o600


MONTHS = "/api/v1/market/ipca?limit=12&numbers=string"


def quick_with_key(reader, block):
    assert_equal(parse_exact(reader.run(block)), parse_exact(call("/api/v1/market/ipca?limit=12")[2]))
    key = reader.variables["VINTEM_API_KEY"]
    assert_equal(call("/api/v1/keys/me", key=None, Authorization=f"Bearer {key}")[0], 200)
    assert_equal(call("/api/v1/keys/me?api_key=" + key, key=None)[0], 400)


def quick_program(reader, block):
    """The program in Python or JavaScript: every digit must match."""
    months = api(MONTHS)
    assert_equal(reader.run(block).splitlines(), [f"{row['date']} {row['value']} % per month" for row in months["data"]])
    kept = reader.variables["VINTEM_API_KEY"]
    reader.variables["VINTEM_API_KEY"] = "vtm_nonsense"
    try:
        reader.run(block)
    except Exception as error:
        assert "Invalid API key" in str(error) or "401" in str(error), error
    else:
        raise AssertionError("it goes on where it is refused")
    reader.variables["VINTEM_API_KEY"] = kept


def quick_r(reader, block):
    rows = re.findall(r"^\d+ +(\d{4}-\d\d-\d\d) +(-?[\d.]+)$", reader.run(block), re.MULTILINE)
    actual = [(day, Decimal(value)) for day, value in rows]
    assert_equal(actual, [(row["date"], Decimal(row["value"])) for row in api(MONTHS)["data"]])


def quick_sheet(reader, block):
    def cell(formula):
        return json.loads(reader.run(block, formula))

    assert_equal(cell('VINTEM("selic")'), api("/api/v1/market/selic/current")["value"])
    assert_equal(cell('VINTEM("ipca-12m", "")'), api("/api/v1/market/series/ipca-12m/current")["value"])
    # Midnight in the sheet's time zone is the day before elsewhere. Pick a day whose value differs from the day before.
    year = itertools.pairwise(api("/api/v1/market/cdi?from=2024-01-02&to=2024-12-30&limit=300")["data"])
    day, value = next((row["date"], row["value"]) for row, before in year if row["value"] != before["value"])
    assert_equal(cell(f'VINTEM("cdi", new Date("{day}T00:00:00-03:00"))'), value)
    assert_equal(cell(f'VINTEM("cdi", "{day}")'), value)
    refusal = 'try { VINTEM("nonsense") } catch (error) { error.message }'
    assert_equal(cell(refusal), json.loads(call("/api/v1/market/series/nonsense/current")[2])["message"])


def parse_power_query(*documents):
    command = ["node", str(checks / "powerquery.mjs")]
    return subprocess.run(command, input=json.dumps(documents), capture_output=True, text=True, timeout=SECONDS_TO_WAIT)


def quick_excel(reader, block):
    process = parse_power_query(block.text)
    assert process.returncode == 0 and not process.stdout, process.stdout + process.stderr
    wrong = [block.text.replace("\nin\n", "\n"), block.text.replace("Json.Document(", "Json.Document((")]
    process = parse_power_query(block.text, *wrong)
    assert process.returncode == 1 and re.findall(r"^\d", process.stdout, re.MULTILINE) == ["1", "2"], process.stdout
    # The endpoint that it requests exists, and has the columns that it names.
    path = re.search(r'RelativePath = "([^"]+)"', block.text)[1]
    query = re.findall(r'(\w+) = "(\w+)"', re.search(r"Parameters = \[(.+)\]", block.text)[1])
    answer = api(f"/{path}?" + "&".join("=".join(pair) for pair in query))
    columns = set(re.findall(r'\{"(\w+)", type', block.text))
    assert len(answer["data"]) == answer["total"] > 500 and all(set(row) == columns for row in answer["data"]), columns


def quick_left(reader, block):
    output = dict(line.strip().split(": ") for line in reader.run(block).splitlines())
    assert set(output) == {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}, output
    assert_equal(output["x-ratelimit-limit"], "30")
    assert 0 < int(output["x-ratelimit-remaining"]) < 30 and abs(int(output["x-ratelimit-reset"]) - time.time()) < 61, output


# series.md


def series_find(reader, block):
    by_word = [row for row in api("/api/v1/market/series?q=aluguel")["data"]]
    by_group = [row for row in api("/api/v1/market/series")["data"] if row["group"] == "fiscal"]
    output = reader.run(block)
    lines = [f"{row['id']}: {row['name']}, {row['publisher']}" for row in by_word]
    assert_equal(output.splitlines(), lines + [row["id"] for row in by_group])
    assert_equal(output, next_illustration(block))


def series_cdb(reader, block):
    output = json.loads(reader.run(block))
    query = "from=2024-01-02&to=2025-01-02&percent=110&amount=10000&detail=true&numbers=string"
    answer = api("/api/v1/market/cdi/accumulated?" + query)
    assert_equal(output.pop("series"), answer["series"]["id"])
    assert_equal(output.pop("first"), answer["detail"][0])
    for name, value in output.items():
        assert_equal(value, answer[name])
    assert answer["missing"] == [] and answer["business_days"] == len(answer["detail"]) > 250, output


def series_by_python(reader, block):
    lines = reader.run(block).splitlines()
    answer = json.loads(reader.path("cdb.json").read_text())
    assert_equal(lines[0], f"as the API says: {answer['factor']} True")
    right, on_annual, divided, target = (Decimal(line.split()[-1]) for line in [answer["factor"], *lines[1:]])
    assert on_annual < right < divided < target, lines
    # The guide's example of a daily and an annual rate.
    daily = reader.globals["of_a_day"](Decimal("13.65"))
    annual = Decimal("13.65") / 252
    assert_equal((str(daily), str(round(annual, 6))), ("0.050788", "0.054167"))


def series_derived(reader, block):
    assert_equal(reader.run(block), "2024-05-02\n")
    of_day = api("/api/v1/market/cdi/current?on=2024-05-02")
    assert of_day["date"] == "2024-05-02" and of_day["derived"] is True, of_day


def series_catalogue(reader, block):
    catalogue = api("/api/v1/market/series")["data"]
    newest = [f"until {row['last_date']}, next on {row['next_expected_on']}, stale: false" for row in catalogue]
    assert_equal(reader.run(block).splitlines(), [f"{row['id']}: {newest}" for row, newest in zip(catalogue, newest)])
    # The guide's table. It has no exchange rates, which the text names.
    catalogue = [row for row in catalogue if row["source"] != "BCB PTAX"]
    table = re.findall(r"^\| `([a-z0-9-]+)` \| (\d+|–) \| ([^|]+) \|", guide_text("series"), re.MULTILINE)
    codes = [row["code"] if row["source"] == "BCB SGS" else "–" for row in catalogue]
    assert_equal(sorted(table), sorted((row["id"], code, row["unit"]) for row, code in zip(catalogue, codes)))


# contracts.md


def next_illustration(block):
    """What the guide shows below a block. Demo values of past days never change."""
    following = itertools.dropwhile(lambda other: other.place != block.place, code_blocks(block.guide))
    return next(other.text for other in following if other.language in ILLUSTRATIONS)


def shown_and_served(reader, block):
    """The output of a block, which must be what the guide shows below it."""
    output = parse_exact(reader.run(block))
    assert_equal(output, parse_exact(next_illustration(block)))
    return output


def rows_of(series, query):
    return api(f"/api/v1/market/series/{series}?{query}&order=asc&limit=20000&numbers=string")["data"]


def growth(rows):
    factor = Decimal(1)
    for row in rows:
        factor *= 1 + Decimal(row["value"]) / 100
    return factor


def assert_close(actual, expected, digits):
    """Compares a served number with one that was computed here, at the number of decimals that is served."""
    assert_equal(abs(actual - expected) <= Decimal(1).scaleb(-digits), True)


def contract_rent(reader, block):
    output = shown_and_served(reader, block)
    months = rows_of("igp-m", "from=2024-09-01&to=2025-08-31")
    assert_equal((len(months), output["months"]), (12, 12))
    assert_equal((output["first_counted"], output["last_counted"]), (months[0]["date"], months[-1]["date"]))
    assert_close(output["change_percent"], (growth(months) - 1) * 100, 6)
    assert_close(output["result"], 2500 * growth(months), 2)


def contract_property(reader, block):
    output = shown_and_served(reader, block)
    months = rows_of("incc-m", "from=2025-01-01&to=2025-06-30")
    assert_equal((len(months), output["months"]), (6, 6))
    assert_close(output["result"], 80000 * growth(months), 2)


def contract_court(reader, block):
    output = shown_and_served(reader, block)
    inflation = growth(rows_of("ipca", "from=2025-01-01&to=2025-06-30"))
    interest = sum(Decimal(row["value"]) for row in rows_of("legal-rate", "from=2025-01-01&to=2025-06-30"))
    assert_close(output["corrected"], 10000 * inflation, 2)
    assert_equal(output["interest_percent"], interest)
    assert_close(output["total"], output["corrected"] * (1 + interest / 100), 2)


def contract_savings(reader, block):
    output = shown_and_served(reader, block)
    rows = rows_of("savings", "from=2024-01-15&to=2024-12-31")
    months = [row for row in rows if row["date"].endswith("-15")]
    assert_equal((len(months), output["months"]), (12, 12))
    assert_equal((output["first_counted"], output["last_counted"]), (months[0]["date"], months[-1]["date"]))
    assert_close(output["result"], 1000 * growth(months), 2)


def contract_tr(reader, block):
    output = shown_and_served(reader, block)
    months = [row for row in rows_of("tr", "from=2024-01-01&to=2024-12-31") if row["date"].endswith("-01")]
    assert_equal((len(months), output["months"]), (12, 12))
    assert_close(output["change_percent"], (growth(months) - 1) * 100, 6)


# limits.md


def limit_headers(reader, block):
    output = dict(line.strip().split(": ") for line in reader.run(block).splitlines())
    seconds = output.pop("x-ratelimit-reset")
    assert 0 <= int(seconds) - time.time() <= 61, seconds
    assert output.pop("x-request-id") and re.fullmatch(r'"free";r=29;t=\d+', output.pop("ratelimit")), output
    expected = {"x-ratelimit-limit": "30", "x-ratelimit-remaining": "29", "x-plan": "free"}
    assert_equal(output, expected | {"ratelimit-policy": '"free";q=30;w=60'})
    # The whole limit and no more. Requests refused with 429 are not counted, and pages use up nothing.
    key = register_free_key()
    statuses = []
    for path in ("/health", "/pricing", "/docs") * 2:
        assert call(path, key=key)[1]["X-RateLimit-Remaining"] == "30", path
    for path in ["/api/v1/market/selic/current", "/api/v1/nothing", "/api/v1/filings"] * 10 + ["/api/v1/plans"] * 5:
        status, headers, body = call(path, key=key)
        statuses.append(status)
    assert_equal(statuses, [200, 404, 403] * 10 + [429] * 5)
    assert headers["Retry-After"] == str(json.loads(body)["retry_after"]) and 1 <= int(headers["Retry-After"]) <= 60
    assert headers["X-RateLimit-Remaining"] == "0" and headers["RateLimit"].endswith(f"t={headers['Retry-After']}")
    assert_equal(call("/pricing", key=key)[0], 200)
    # The guide's list is the same as in api-design.md.
    listed = r"^\| (\d+) \| `([a-z_]+)` \|"
    design = (guides / ".." / "api-design.md").read_text()
    assert_equal(re.findall(listed, guide_text("limits"), re.MULTILINE), re.findall(listed, design, re.MULTILINE))


def limit_order(reader, block):
    assert_equal(json.loads(reader.run(block)), {"error": "upgrade_required", "required_plan": "gold"})
    free = reader.variables["VINTEM_API_KEY"]
    verdicts = [
        (call("/api/v1/nothing", "vtm_nonsense"), 401, "invalid_api_key"),
        (call("/api/v1/nothing", Authorization="Bearer vtm_other"), 400, "bad_request"),
        (call("/api/v1/plans/usage", None), 401, "unauthorized"),
        (call("/api/v1/nothing"), 404, "not_found"),
        (call("/api/v1/filings", free, method="POST"), 405, "method_not_allowed"),
        (call("/api/v1/filings/nothing?as_of=x", free), 403, "upgrade_required"),
        (call("/api/v1/filings/nothing?as_of=x"), 400, "bad_request"),
        (call("/api/v1/filings/nothing"), 404, "not_found"),
    ]
    for (status, headers, body), expected, code in verdicts:
        problem = json.loads(body)
        assert_equal((status, problem["error"]), (expected, code))
        assert problem["message"] and problem["request_id"] == headers["X-Request-Id"], problem
    assert_equal(verdicts[4][0][1]["Allow"], "GET, HEAD")


class RefusingProxy:
    """A proxy in front of the API: answers with each of `refusals` (status, Retry-After), then forwards requests."""

    def __init__(self, reader, refusals):
        self.request_times = []
        self.reader = reader
        refusing_proxy = self
        refusals = list(refusals)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                refusing_proxy.request_times.append(time.monotonic())
                if refusals:
                    status, wait = refusals.pop(0)
                    headers = {"Retry-After": wait}
                    body = json.dumps({"error": f"code_{status}"}).encode()
                else:
                    status, headers, body = call(self.path, key=self.headers["X-API-Key"])
                    headers = {"Content-Type": headers["Content-Type"]}
                self.send_response(status)
                for name, value in (headers | {"Content-Length": len(body)}).items():
                    if value is not None:
                        self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        self.reader.variables["VINTEM_URL"] = f"http://127.0.0.1:{self.server.server_address[1]}"
        return self

    def __exit__(self, *_):
        self.reader.variables["VINTEM_URL"] = url
        self.server.shutdown()

    def waits(self):
        return [later - earlier for earlier, later in itertools.pairwise(self.request_times)]


def limit_retries(reader, block):
    """The program waits for Retry-After, and gives up where waiting does not help."""
    value = api("/api/v1/market/selic/current?on=2024-06-28&numbers=string")["value"]
    with RefusingProxy(reader, []) as refusing_proxy:
        assert_equal(reader.run(block).strip(), value)
    with RefusingProxy(reader, [(429, 2), (503, 1)]) as refusing_proxy:
        assert_equal(reader.run(block).strip(), value)
    first, second = refusing_proxy.waits()
    assert 2 <= first < 5 and 1 <= second < 4, (first, second)
    for status, wait, times in ((503, 1, 5), (429, 86400, 1), (400, None, 1), (500, None, 1)):
        with RefusingProxy(reader, [(status, wait)] * 9) as refusing_proxy:
            try:
                reader.run(block)
            except Exception as error:
                assert f"code_{status}" in str(error), error
            else:
                raise AssertionError(f"it does not say that it was refused with {status}")
        assert_equal(len(refusing_proxy.request_times), times)


def limit_etag(reader, block):
    assert_equal(reader.run(block), "200\n304\n")
    assert_equal(parse_exact(reader.path("ipca.json").read_text()), parse_exact(call("/api/v1/market/ipca?limit=12")[2]))


def limit_usage(reader, block):
    output = json.loads(reader.run(block))
    usage = api("/api/v1/plans/usage", key=reader.variables["VINTEM_API_KEY"])
    assert_equal((output["plan"], output["rate_limit"]), (usage["plan"], usage["rate_limit"]))
    actual = output["last_day"]
    expected = usage["data"][0]
    # The check itself has sent one request since. At midnight another day begins.
    if actual["date"] == expected["date"]:
        assert_equal((actual["requests"] + 1, actual["client_errors"]), (expected["requests"], expected["client_errors"]))
    assert actual["client_errors"] > 0 and len(usage["data"]) == 30, actual


# point-in-time.md


def known_as_of(path, day):
    """The newest row that was known on a day."""
    rows = api(f"/api/v1/{path}{'&' if '?' in path else '?'}as_of={day}&limit=1&numbers=string", key=gold)["data"]
    return rows[0] if rows else None


def time_as_of(reader, block):
    rows = [parse_exact(line) for line in reader.run(block).splitlines()]
    dated = {row["date"]: Decimal(row["value"]) for row in all_rows("/api/v1/market/ipca?limit=20000")}
    for row, day in zip(rows, ("2024-05-01", "2024-06-01"), strict=True):
        assert_equal(row, {"date": day, "value": dated[day], "known": "estimated"})
    # The guide's table, on the Friday before a Monday.
    for series, day, newest in (
        ("selic", "2024-06-28", "2024-06-28"),
        ("cdi", "2024-06-28", "2024-06-27"),
        ("selic-daily", "2024-06-30", "2024-06-27"),
        ("selic-daily", "2024-07-01", "2024-06-28"),
        ("ipca-12m", "2024-07-15", "2024-06-01"),
    ):
        assert_equal(known_as_of(f"market/series/{series}", day)["date"], newest)
    assert_equal(known_as_of("market/fx", "2024-06-28")["date"], "2024-06-28")
    filing = api("/api/v1/filings?limit=1&to=2025-06-30", key=gold)["data"][0]
    day = date.fromisoformat(filing["date"][:10])
    for as_of, status in ((day, 200), (day - timedelta(days=1), 404)):
        assert_equal(call(f"/api/v1/filings/{filing['id']}?as_of={as_of}", key=gold)[0], status)
    for path in ("market/ipca?", "companies?", "filings?"):
        row = api(f"/api/v1/{path}as_of=2024-06-28&limit=1", key=gold)["data"][0]
        assert row["known"] in ("observed", "estimated"), row
        assert call(f"/api/v1/{path}as_of=2024-06-28", key=register_free_key())[0] == 403, path
    # Endpoints without the parameter refuse it.
    market = ("cdi/accumulated?from=2024-01-02", "fx/latest?", "compare?ids=cdi")
    for path in ["filings/search?q=a", *("market/" + path for path in market)]:
        status, _, body = call(f"/api/v1/{path}&as_of=2024-06-28", key=gold)
        assert_equal((status, json.loads(body)["param"]), (400, "as_of"))


def time_hindsight(reader, block):
    lines = []
    free = register_free_key()
    for month in range(2, 13):
        day = date(2024, month, 1) - timedelta(days=1)
        known = api(f"/api/v1/market/series/ipca-12m/current?as_of={day}&numbers=string", key=gold)
        dated = api(f"/api/v1/market/series/ipca-12m/current?on={day}&numbers=string", key=free)
        assert known["date"] < dated["date"] == str(day.replace(day=1)), (known, dated)
        known, dated = (f"{row['value']} for {row['date']}" for row in (known, dated))
        lines.append(f"{day}: as_of returns {known}, on returns {dated}")
    assert_equal(reader.run(block).splitlines(), lines)


def time_revisions(reader, block):
    (output,) = reader.run(block).splitlines()
    (revised,) = api("/api/v1/market/series/ipca/revisions?numbers=string", key=gold)["data"]
    assert revised["date"] == "2024-03-01" and Decimal(revised["new"]) - Decimal(revised["old"]) == Decimal("0.01")
    pattern = r"(.+): (.+) became (.+), known at (.+)"
    day, old, new, known_at = re.fullmatch(pattern, output).groups()
    expected = (revised["date"], Decimal(revised["old"]), Decimal(revised["new"]), revised["known_at"])
    assert_equal((day, Decimal(old), Decimal(new), known_at), expected)
    for as_of, value, known in (("2024-04-15", "old", "estimated"), ("2199-12-31", "new", "observed")):
        row = known_as_of("market/ipca?to=2024-03-01", as_of)
        assert_equal((row["date"], row["value"], row["known"]), ("2024-03-01", revised[value], known))
    assert api("/api/v1/market/series/ipca-ytd/revisions", key=gold)["total"] == 0


def time_versions(reader, block):
    rows = [json.loads(line) for line in reader.run(block).splitlines()]
    filings = [row for row in all_rows("/api/v1/filings?limit=100")[:1000] if row["version"] > 1]
    assert_equal(reader.path("later.txt").read_text().split(), [row["id"] for row in filings])
    versions = api(f"/api/v1/filings/{filings[0]['id']}/versions", key=gold)["data"]
    assert_rows_equal(rows, versions, ("id", "version", "is_latest", "date"))
    assert [row["is_latest"] for row in rows] == [True] + [False] * (len(rows) - 1) and len(rows) > 1, rows
    later, earlier = versions[:2]
    day = date.fromisoformat(later["date"][:10]) - timedelta(days=1)
    assert_equal(call(f"/api/v1/filings/{later['id']}?as_of={day}", key=gold)[0], 404)
    if earlier["date"] < later["date"]:
        assert api(f"/api/v1/filings/{earlier['id']}?as_of={day}", key=gold)["is_latest"], earlier


def time_updated(reader, block):
    output = reader.run(block)
    answer = parse_exact(reader.path("new.json").read_text())
    assert_equal(answer, parse_exact(call("/api/v1/market/ipca?updated_since=2026-01-01T00:00:00Z&order=asc&limit=20000")[2]))
    assert_equal(output, f"{answer['total']} new values; next time, use updated_since={answer['as_of']}\n")
    # The latest change is not missed, and earlier ones are not repeated.
    revised = api("/api/v1/market/series/ipca/revisions", key=gold)["data"][0]
    again = [row["date"] for row in api(f"/api/v1/market/ipca?updated_since={answer['as_of']}&limit=20000")["data"]]
    assert "2024-03-01" in again, again
    newer = api(f"/api/v1/market/ipca?updated_since={revised['known_at'][:19]}Z")["data"]
    assert_equal([row["date"] for row in newer], ["2024-03-01"])


def time_provenance(reader, block):
    output = parse_exact(reader.run(block))
    expected = parse_exact(call("/api/v1/market/series/real-selic/current?provenance=true")[2])
    assert_equal(output, {name: expected[name] for name in ("date", "value", "provenance")})
    assert len(output["provenance"]) == 2, output
    for row in output["provenance"]:
        assert list(row) == ["source", "address", "fetched_at", "known_at", "sha256"], row


# versioning.md


def version_decimals(reader, block):
    rows = api("/api/v1/market/fx?from=2024-01-02&to=2024-12-30&limit=300&numbers=string")["data"]
    total = sum(Decimal(row["sell"]) for row in rows)
    assert len(rows) > 240 and reader.run(block).startswith(f"decimal: {total}, binary: "), total


def version_strings(reader, block):
    text = call("/api/v1/market/cdi/current?on=2024-10-03")[2].decode()
    value = re.search(r'"value":([\d.]+)', text)[1]
    assert_equal(reader.run(block).splitlines(), [f"string {value}", f"number {json.loads(value)}"])
    assert value.endswith("0"), "the example shows no digit that is lost"


def version_deprecated(reader, block):
    assert_equal(reader.run(block), "nothing is deprecated\n")


def version_of_software(reader, block):
    version = api("/health")["version"]
    assert_equal(reader.run(block), f"{version}\n{version}\n")
    assert_equal(api("/api/v1/status")["version"], version)
    assert f"\n  version: {version}\n" in call("/docs/openapi.yaml", None)[2].decode()
    assert json.loads(reader.path("openapi.json").read_text())["openapi"].startswith("3.0.")


# statements.md


def statements_of(reader, query):
    return api(f"/api/v1/companies/{reader.variables['COMPANY']}/statements?{query}")


def commercial_company():
    """A company with consolidated statements in the commercial chart of accounts, as the program for margins needs it."""
    for company in {row["company_id"] for row in api("/api/v1/filings?category=DFP&limit=100")["data"]}:
        income = api(f"/api/v1/companies/{company}/statements?statement=income&period=annual&limit=1000")["data"]
        if any(row["name"].startswith("Custo dos Bens") and row["scope"] == "consolidated" for row in income):
            return company
    raise AssertionError("the demo has no commercial company with statements")


def statement_documents(reader, block):
    reader.variables["COMPANY"] = commercial_company()
    output = reader.run(block).splitlines()
    documents = api(f"/api/v1/companies/{reader.variables['COMPANY']}/statements/periods?limit=4")["data"]
    expected = [
        f"{row['set']} {row['reference_date']} version {row['version']}: {', '.join(row['scopes'])}" for row in documents
    ]
    assert_equal(output, expected)
    # The guide's table names every statement.
    named = set(re.findall(r"`([a-z-]+)`", guide_text("statements").split("| `statement` |")[1].split("## ")[0]))
    accounts = api("/api/v1/statements/accounts?limit=20000")["data"]
    assert {row["statement"] for row in accounts} == named - {"direct", "indirect", "column"}, named


def statement_table(reader, block):
    heading, *lines = (line.split("\t") for line in reader.run(block).splitlines())
    table = statements_of(reader, "statement=income&period=annual&layout=table")
    assert_equal(heading, ["account"] + [period["label"] for period in table["periods"]])
    fixed = [row for row in table["data"] if row["fixed"]]
    assert len(lines) == len(fixed) > 20, lines
    for line, row in zip(lines, fixed):
        assert_equal(line[0], row["name_en"] or row["name"])
        values = [Decimal(value) if value else None for value in line[1:]]
        assert_equal(values, [None if value is None else Decimal(str(value)) for value in row["values"]])


def statement_quarters(reader, block):
    output = reader.run(block).splitlines()
    rows = statements_of(reader, "statement=income&period=quarter&from=2025-01-01&limit=1000")["data"]
    revenue = [row for row in rows if row["account"] == "3.01"]
    assert_equal(output, [f"{row['period_start']} to {row['period_end']}: {row['value']}" for row in revenue])
    days = [date.fromisoformat(row["period_end"]) - date.fromisoformat(row["period_start"]) for row in revenue]
    assert len(days) > 2 and all(length < timedelta(days=93) for length in days), days
    year_to_date = statements_of(reader, "statement=cash-flow&period=quarter&from=2025-01-01&limit=1000")["data"]
    assert year_to_date, "the first quarter's cash flow is a quarter, too"
    assert all(row["period_start"].endswith("-01-01") for row in year_to_date), "only the first quarter's cash flow"


def statement_versions(reader, block):
    output = reader.run(block).splitlines()
    rows = statements_of(reader, "statement=income&period=annual&as_of=2025-01-31&limit=1000")["data"]
    revenue = [row for row in rows if row["account"] == "3.01"]
    expected = [
        f"{row['period_end']}: {row['value']}, version {row['version']}, filed on {row['filed_on']}" for row in revenue
    ]
    assert_equal(output, expected)
    assert all(row["filed_on"] <= "2025-01-31" for row in revenue) and len(revenue) > 2, revenue


def statement_by_pandas(reader, block):
    output = reader.run(block).splitlines()
    rows = statements_of(reader, "statement=income&period=annual&limit=10000&numbers=string")["data"]
    values = {(row["period_end"], row["account"]): Decimal(row["value"]) for row in rows}
    ends = sorted({end for end, _ in values})
    margins = [values[end, "3.07"] / values[end, "3.01"] * 100 for end in ends]
    assert_equal(output, [f"{end}: {margin:.1f}%" for end, margin in zip(ends, margins)])


def statement_download(reader, block):
    reader.run(block)
    assert_equal(sha256(reader.path("dfp-2024.parquet")), listed_file("statements-dfp-2024.parquet")["sha256"])


def statement_by_sql(reader, block):
    reader.run(block)
    table = pyarrow.parquet.read_table(reader.path("dfp-2024.parquet")).to_pylist()
    rows = [row for row in table if row["is_latest"] and not row["comparative"]]
    revenue = [row for row in rows if row["scope"] == "consolidated" and row["account"] == "3.01"]
    largest = sorted((row["value"] for row in revenue), reverse=True)[:5]
    # DuckDB reads the file whenever the result is used.
    with contextlib.chdir(reader.directory):
        found = reader.globals["largest"].fetchall()
    assert_equal([value for _, value in found], largest)
    assets = sorted((row["company_id"], row["scope"], row["value"]) for row in rows if row["account"] == "1")
    assert_equal(sorted(reader.globals["assets"].rows()), assets)
    assert len(largest) > 1 and str(reader.globals["assets"].schema["value"]) == "Decimal(precision=38, scale=10)"


def statement_csv(reader, block):
    reader.run(block)
    path = reader.path("balance.csv")
    content = path.read_bytes()
    assert content.startswith(b"\xef\xbb\xbfstatement;"), content[:20]
    path.write_bytes(content[3:])
    rows = read_csv(path, ";")
    table = statements_of(reader, "statement=balance-sheet-assets&period=annual&layout=table")
    assert_equal([row["account"] for row in rows], [row["account"] for row in table["data"]])
    newest = table["periods"][0]["label"]
    for row, served in zip(rows, table["data"]):
        assert_equal(Decimal(row[newest].replace(",", ".")), Decimal(str(served["values"][0])))


STEPS = {
    "quickstart": [
        quick_first,
        quick_register,
        quick_with_key,
        quick_program,
        quick_program,
        quick_r,
        quick_sheet,
        quick_excel,
        quick_left,
    ],
    "series": [series_find, series_cdb, series_by_python, series_derived, series_catalogue],
    "contracts": [contract_rent, contract_property, contract_court, contract_savings, contract_tr],
    "limits": [limit_headers, limit_order, limit_retries, limit_retries, limit_etag, limit_usage],
    "point-in-time": [time_as_of, time_hindsight, time_revisions, time_versions, time_updated, time_provenance],
    "versioning": [version_decimals, version_strings, version_deprecated, version_of_software],
    "csv": [csv_of_a_series, csv_by_accept, csv_for_brazil, csv_of_all_filings, csv_by_pandas, csv_by_node],
    "exports": [export_list, export_download, export_once, export_resume, export_sidecar, export_by_python],
    "statements": [
        statement_documents,
        statement_table,
        statement_quarters,
        statement_versions,
        statement_by_pandas,
        statement_download,
        statement_by_sql,
        statement_csv,
    ],
    "webhooks": [
        webhook_create,
        webhook_by_python,
        webhook_by_node,
        webhook_test,
        webhook_deliveries,
        webhook_replay,
        webhook_pause,
        webhook_catch_up,
        webhook_rotate,
        webhook_delete,
    ],
}


# The key that the reader of a guide has: a new one on the Free plan, or none yet. The other guides use Platinum.
KEYS = {
    "quickstart": lambda: None,
    "series": lambda: None,
    "contracts": lambda: None,
    "limits": register_free_key,
    "versioning": register_free_key,
    "exports": lambda: gold,
    "point-in-time": lambda: gold,
}


def guide_text(guide):
    return (guides / f"{guide}.md").read_text()


def code_blocks(guide):
    language = None
    for number, line in enumerate(guide_text(guide).splitlines(), 1):
        if language is None and line.startswith("```"):
            language = line[3:]
            first_line = number
            lines = []
        elif line == "```":
            yield Block(guide, first_line, language, "\n".join(lines) + "\n")
            language = None
        elif language is not None:
            lines.append(line)


running = []
proxy = RecordingProxy()
run = failed = doctests = 0
try:
    assert sorted(STEPS) == sorted(path.stem for path in guides.glob("*.md")), "a guide without steps"
    for guide, steps in STEPS.items():
        reader = Reader(guide, KEYS.get(guide, lambda: platinum)())
        reader.variables["RECEIVER_URL"] = f"http://127.0.0.1:{proxy.port}/hooks/vintem"
        blocks = list(code_blocks(guide))
        for name in re.findall(r"\]\(([^)#:]+\.md)[)#]", guide_text(guide)):
            if not (guides / name).exists():
                failed += 1
                print(f"fails: {guide}.md: there is no {name}")
        for block in blocks:
            if block.language not in RUNNABLE + ILLUSTRATIONS + DOCTESTS:
                failed += 1
                print(f"fails: {block.place}: nobody knows what {block.language!r} is")
        doctests += sum(block.language in DOCTESTS for block in blocks)
        blocks = [block for block in blocks if block.language in RUNNABLE]
        if len(blocks) != len(steps):
            failed += 1
            print(f"fails: {guide}.md: {len(blocks)} blocks to run, and steps for {len(steps)}")
        for block, step in zip(blocks, steps):
            try:
                step(reader, block)
                run += 1
            except BaseException as error:
                failed += 1
                print(f"fails: {block.place}, {step.__name__}: {error!r}")
                traceback.print_exc(limit=-2)
finally:
    for process in running:
        process.kill()
print(f"guides: {len(STEPS)}")
print(f"cells_compared: {compared}")
print(f"requests_arrived: {len(proxy.requests)}")
print(f"left_to_rustdoc: {doctests}")
print(f"blocks_run: {run}")
print(f"blocks_failed: {failed}")
sys.exit(failed > 0)
