"""Runs the blocks of the guides one after the other and holds what they come to against the API.

usage: guides.py GUIDES DIRECTORY URL GOLD_KEY PLATINUM_KEY, with VINTEM_DATABASE_URL set. The blocks write to
DIRECTORY, which has the packages of JavaScript.

Each block that can be run has a step here that runs it; a block without one is a failure.
"""

import base64, contextlib, csv, hashlib, http.client, http.server, io, json, os, re, runpy, shutil, socket, sqlite3
import subprocess, sys, threading, time, traceback, urllib.error, urllib.request
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow
import pyarrow.parquet

guides, home = Path(sys.argv[1]), Path(sys.argv[2])
url, gold, platinum = sys.argv[3:]
RUN, ILLUSTRATIONS, DOCTESTS = ("sh", "python", "js"), ("json", "text"), ("rust",)
SECONDS_TO_WAIT = 60
compared = 0


class Block:
    def __init__(self, guide, line, language, text):
        self.guide, self.language, self.text = guide, language, text
        self.place = f"{guide}.md:{line}"

    def file_name(self):
        """As its first line says."""
        name = re.match(r"(?:#|//) ([a-z_]+\.(?:py|mjs))\n", self.text)
        assert name, "the first line does not name the file"
        return name[1]


class Reader:
    """Who follows a guide: a directory, and the variables that are set in the terminal."""

    def __init__(self, guide, key):
        self.directory = home / guide
        self.directory.mkdir()
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "VINTEM_URL": url,
            "VINTEM_API_KEY": key,
        }

    def path(self, name):
        return self.directory / name

    def run(self, block, *arguments):
        """What the block printed. Variables that it exports are there for the next ones."""
        if block.language == "python":
            return self.run_python(block, arguments)
        if block.language == "js":
            done = self.start(["node", self.save(block)])
            said = done.communicate(timeout=SECONDS_TO_WAIT)
        else:
            # `bash -e` as a whole, and no state of one block but its variables goes to the next.
            script = block.text + "\nenv -0 >.variables\n"
            done = self.start(["bash", "-euo", "pipefail", "-c", script])
            said = done.communicate(timeout=SECONDS_TO_WAIT)
            if done.returncode == 0:
                exported = self.path(".variables").read_text().split("\0")
                self.variables |= dict(one.split("=", 1) for one in exported if one)
        if done.returncode != 0:
            raise Ended(done.returncode, said[0] + said[1])
        return said[0]

    def run_python(self, block, arguments):
        self.globals, said = None, io.StringIO()
        before, directory, given = dict(os.environ), os.getcwd(), sys.argv[1:]
        os.environ.clear()
        os.environ.update(self.variables)
        os.chdir(self.directory)
        sys.argv[1:] = arguments
        try:
            with contextlib.redirect_stdout(said):
                self.globals = runpy.run_path(self.save(block), run_name="__main__")
        finally:
            sys.argv[1:] = given
            os.chdir(directory)
            os.environ.clear()
            os.environ.update(before)
        return said.getvalue()

    def save(self, block):
        self.path(block.file_name()).write_text(block.text)
        return block.file_name()

    def start(self, command, **variables):
        environment = self.variables | variables
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.directory, env=environment, stdout=pipe, stderr=pipe, text=True)


class Ended(Exception):
    def __init__(self, code, said):
        super().__init__(f"ended with {code}: {said.strip()}")
        self.code = code


def call(path, key=platinum, method="GET", body=None, **headers):
    """Status, headers and body of an answer of the API."""
    request = urllib.request.Request(url + path, method=method, headers={"X-API-Key": key, **headers})
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
    """As JSON, with the characters that numbers have."""
    rows, total = [], 1
    while len(rows) < total:
        page = api(f"{path}&numbers=string&offset={len(rows)}")
        total = page["total"]
        rows += page["data"]
    return rows


def same(ours, theirs, columns):
    """Rows of a guide against those of the API, cell by cell."""
    global compared
    assert len(ours) == len(theirs) > 0, f"{len(ours)} rows and not {len(theirs)}"
    for our, their in zip(ours, theirs):
        for column in columns:
            assert our[column] == their[column], f"{column} is {our[column]!r} and not {their[column]!r}"
            compared += 1


def wait(what, condition):
    until = time.monotonic() + SECONDS_TO_WAIT
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {what}")


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# csv.md

MARKET = ("date", "value")
COMPANY = ("id", "name", "cnpj", "status", "sector", "trade_name", "city", "state", "auditor")


def table(path, separator=","):
    content = path.read_bytes()
    assert content.endswith(b"\r\n")
    return list(csv.DictReader(io.StringIO(content.decode(), newline=""), delimiter=separator, strict=True))


def csv_of_a_series(reader, block):
    reader.run(block)
    rows = table(reader.path("ipca.csv"))
    assert list(rows[0]) == ["date", "value", "derived", "unit", "series"], list(rows[0])
    same(rows, api("/api/v1/market/ipca?limit=12&numbers=string")["data"], MARKET)
    for headers in ({}, {"Accept": "text/csv"}):
        query = "" if headers else "?format=csv"
        status, answered, body = call("/api/v1/market/ipca" + query, key=gold, **headers)
        assert status == 403 and json.loads(body)["required_plan"] == "platinum", "a refusal is JSON"
    for path in ("search?q=a", "companies/facets?", "market/ipca/current?"):
        assert call(f"/api/v1/{path}&format=csv")[1]["Content-Type"] == "application/json", path


def csv_by_accept(reader, block):
    reader.run(block)
    query = "/api/v1/market/fx?pair=EUR/BRL&from=2026-01-01&limit=20000"
    same(table(reader.path("fx.csv")), all_rows(query), ("date", "pair", "buy", "sell"))
    answer = call(query + "&format=json", Accept="text/csv")
    assert answer[1]["Content-Type"] == "application/json", "format decides"


def csv_for_brazil(reader, block):
    reader.run(block)
    (path,) = reader.directory.glob("vintem-ipca-????-??-??.csv")
    content = path.read_bytes()
    assert content.startswith(b"\xef\xbb\xbfdate;value;"), content[:20]
    path.write_bytes(content[3:])
    rows = table(path, ";")
    assert all("," in row["value"] for row in rows)
    rows = [row | {"value": row["value"].replace(",", ".")} for row in rows]
    same(rows, api("/api/v1/market/ipca?limit=12&numbers=string")["data"], MARKET)


def csv_of_all_filings(reader, block):
    reader.run(block)
    columns = ("id", "company_id", "company_name", "category", "date", "description", "type", "kind", "protocol")
    same(table(reader.path("filings.csv")), all_rows("/api/v1/filings?limit=100"), columns)
    query = "/api/v1/filings?limit=1000000&format=csv"
    assert call(query, **{"Accept-Encoding": "gzip"})[1]["Content-Encoding"] == "gzip"
    assert 'rel="next"' in call("/api/v1/filings?limit=1000&format=csv")[1]["Link"]


def csv_by_pandas(reader, block):
    reader.run(block)
    rates = reader.globals["rates"]
    assert all(type(value) is Decimal for column in ("buy", "sell") for value in rates[column])
    ours = [
        {"date": str(day.date()), "buy": str(buy), "sell": str(sell)}
        for day, buy, sell in zip(rates["date"], rates["buy"], rates["sell"])
    ]
    same(ours, all_rows("/api/v1/market/fx?pair=EUR/BRL&limit=20000"), ("date", "buy", "sell"))
    companies = reader.globals["companies"].to_dict("records")
    same(companies, all_rows("/api/v1/companies?limit=100"), COMPANY)
    assert any(row["name"] == "=1+1" and row["auditor"] == "\t=2" for row in companies)
    written = call("/api/v1/companies?limit=100000&format=csv")[2].decode()
    for cell in (""",'=1+1,""", ''',"'+55;11, ""so""",''', ",'@home,", ",'\t=2,"):
        assert cell in written, cell


def csv_by_node(reader, block):
    said = reader.run(block)
    companies = json.loads(reader.path("companies.json").read_text())
    same(companies, all_rows("/api/v1/companies?limit=100"), COMPANY)
    assert any(row["trade_name"] == '+55;11, "so"' for row in companies)
    assert said.startswith(f"{len(companies)} companies, the first"), said


# exports.md


def export_list(reader, block):
    said = reader.run(block).splitlines()
    listed = api("/api/v1/export", key=gold)["data"]
    assert len(said) == len(listed) > 12, said
    for line, entry in zip(said, listed):
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
    path, file = reader.path("selic.csv.gz"), listed_file("selic.csv.gz")
    assert first.splitlines()[0] == "date,value,derived,unit,series" and sha256(path) == file["sha256"], first
    assert reader.path("selic.etag").read_text().strip() == f'"{file["sha256"]}"'
    assert call("/api/v1/export/selic.csv.gz", key=gold, **{"If-None-Match": f'"{file["sha256"]}"'})[0] == 304
    kept = path.stat()
    assert reader.run(block) == first
    again = path.stat()
    assert (kept.st_mtime_ns, kept.st_size) == (again.st_mtime_ns, again.st_size), "it was downloaded again"


def export_resume(reader, block):
    file = listed_file("filings.csv.gz")
    path, name = reader.path("filings.csv.gz"), "/api/v1/export/filings.csv.gz"
    whole = call(name, key=gold)[2]
    # From nothing, and from parts that a broken download left.
    for have in (0, 1, len(whole) // 2, len(whole) - 1):
        path.unlink(missing_ok=True)
        if have:
            path.write_bytes(whole[:have])
        assert reader.run(block) == "filings.csv.gz: OK\n", have
        assert path.read_bytes() == whole, have
    assert ends_with(reader, block) in (0, 22) and path.read_bytes() == whole, "nothing is left to do"
    # The list is of another file than the one that is there now.
    listed = reader.path("export.json")
    shutil.copy(listed, reader.path("kept.json"))
    listed.write_text(listed.read_text().replace(file["sha256"], "0" * 64))
    path.write_bytes(whole[:1000])
    assert ends_with(reader, block) == 33 and path.read_bytes() == whole[:1000], "another file was gone on with"
    shutil.move(reader.path("kept.json"), listed)
    assert call(name, key=gold, Range="bytes=0-1,5-6")[0] == 200
    assert call(name, key=gold, Range=f"bytes={len(whole)}-")[0] == 416


def ends_with(reader, block):
    try:
        reader.run(block)
        return 0
    except Ended as ended:
        return ended.code


def export_sidecar(reader, block):
    said = json.loads(reader.run(block))
    assert said["licence"] == "ODbL-1.0" and "ODbL" in said["attribution"] and said["synthetic"] is True, said
    assert {"name": "date", "type": "date"} in said["columns"], said["columns"]
    assert said["sources"] and set(said["sources"][0]) == {"fetched_at", "address", "sha256"}, said["sources"]
    sidecar = json.loads(reader.path("fx.json").read_text())
    checksums = {file["name"]: file["sha256"] for file in sidecar["files"]}
    assert all(checksum == listed_file(name)["sha256"] for name, checksum in checksums.items()) and len(checksums) == 3
    metadata = pyarrow.parquet.read_schema(reader.path("fx.parquet")).metadata
    assert metadata[b"dataset"] == b"fx" and metadata[b"licence"] == b"ODbL-1.0"


def export_by_python(reader, block):
    global compared
    reader.run(block)
    read, frame = reader.globals["table"], reader.globals["frame"]
    assert read.schema.field("date").type == pyarrow.date32()
    assert pyarrow.types.is_decimal(read.schema.field("sell").type)
    entry = next(entry for entry in api("/api/v1/export", key=gold)["data"] if entry["name"] == "fx")
    assert read.num_rows == len(frame) == entry["rows"]
    served = all_rows("/api/v1/market/fx?pair=EUR/BRL&order=asc&limit=20000")
    euro = reader.globals["euro"]
    ours = [dict(zip(("date", "buy", "sell"), row)) for row in zip(euro["date"], euro["buy"], euro["sell"])]
    theirs = [
        {"date": date.fromisoformat(row["date"]), "buy": Decimal(row["buy"]), "sell": Decimal(row["sell"])}
        for row in served
    ]
    assert all(type(row["date"]) is date and type(row["sell"]) is Decimal for row in ours)
    same(ours, theirs, ("date", "buy", "sell"))
    highest = max(Decimal(row["sell"]) for row in served)
    assert type(reader.globals["highest"]) is Decimal and reader.globals["highest"] == highest
    by_year = {}
    for row in served:
        year = int(row["date"][:4])
        by_year[year] = max(by_year.get(year, Decimal(0)), Decimal(row["sell"]))
    assert dict(reader.globals["by_year"]) == by_year
    compared += len(by_year)


# webhooks.md


class Arrived:
    def __init__(self, headers, body, status):
        self.headers, self.body, self.status = headers, body, status
        self.event = json.loads(body)


class Doorway:
    """Before a receiver, as a web server is: notes what arrives and hands it on. Where nothing is behind it, 500."""

    def __init__(self):
        self.arrived, self.behind = [], None
        doorway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = post(doorway.behind, headers, body) if doorway.behind else 500
                doorway.arrived.append(Arrived(headers, body, status))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, event_id):
        return [one for one in self.arrived if one.headers["webhook-id"] == event_id]


class Receiver:
    """The program of a guide, running."""

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
        wait(f"{block.place} to listen", self.listens)

    def listens(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the receiver ended: {Path(self.log.name).read_text()}")
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    def takes(self, one, body=None, **changed):
        headers = one.headers | {name.replace("_", "-"): value for name, value in changed.items()}
        return post(self.port, headers, one.body if body is None else body) == 204

    def kept(self):
        """What it wrote down: ids and bodies."""
        if (self.directory / "inbox.db").exists():
            with sqlite3.connect(self.directory / "inbox.db") as inbox:
                return inbox.execute("select id, body from inbox").fetchall()
        lines = (self.directory / "inbox.ndjson").read_text().splitlines()
        return [(json.loads(line)["id"], line) for line in lines]

    def end(self):
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


def happen(kind, **subject):
    """Something new, as a load would write it down; its id."""
    row = f"'{kind}', now(), '{json.dumps(subject)}'"
    statement = f"insert into event (type, occurred_at, subject) values ({row}) returning id"
    command = ["psql", os.environ["VINTEM_DATABASE_URL"], "-AtqXc", statement]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def feed(query=""):
    """The answer as it is written, and read."""
    text = call("/api/v1/events?limit=1000" + query)[2].decode()
    return text, json.loads(text)


def published(event_id):
    return wait(f"{event_id} in the feed", lambda: any(one["id"] == event_id for one in feed()[1]["data"]))


def arrival(event_id, times=1):
    wait(f"{event_id} to arrive", lambda: len(doorway.of(event_id)) >= times)
    return doorway.of(event_id)[-1]


def of_webhook(reader, path=""):
    return f"/api/v1/webhooks/{reader.variables['WEBHOOK_ID']}{path}"


def try_webhook(reader):
    return api(of_webhook(reader, "/test"), method="POST")["event_id"]


def delivery(reader, event_id):
    return next(one for one in api(of_webhook(reader, "/deliveries?limit=100"))["data"] if one["event_id"] == event_id)


def wait_for_state(reader, event_id, state):
    wait(f"{event_id} to be {state}", lambda: delivery(reader, event_id)["state"] == state)
    return delivery(reader, event_id)


def another_secret():
    return "whsec_" + base64.b64encode(os.urandom(32)).decode()


def webhook_create(reader, block):
    reader.run(block)
    created = json.loads(reader.path("webhook.json").read_text())
    fields = "id url types filters status disabled_reason created_at last_success_at secret".split()
    assert list(created) == fields and created["status"] == "active", created
    assert created["filters"] == {"companies": [], "categories": [], "series": ["selic"], "pairs": []}, created
    assert reader.variables["VINTEM_WEBHOOK_SECRET"] == created["secret"] and created["secret"].startswith("whsec_")
    assert "secret" not in api(of_webhook(reader)), "it is shown only once"
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


def hold_receiver(reader, block, receiver):
    """It takes what is ours, keeps it once, and takes nothing else."""
    doorway.behind = receiver.port
    test = arrival(try_webhook(reader))
    assert test.event["type"] == "webhook.test" and "vintem-sequence" not in test.headers
    assert test.event["data"] == {"webhook_id": reader.variables["WEBHOOK_ID"]}
    newest = api("/api/v1/market/selic/current")["date"]
    events = [
        happen("series.revised", series="selic", date=newest, old="13.00", new="13.25"),
        happen("rate.published", series="selic", date=newest),
    ]
    left_out = happen("series.revised", series="ipca", date="2026-10-01", old="0.10", new="0.18")
    published(left_out)
    arrivals = [test] + [arrival(event) for event in events]
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
        assert receiver.takes(one), "not a second time"
        for at in (0, len(one.body) // 2, len(one.body) - 1):
            for flip in (1, 0x80):
                changed = bytearray(one.body)
                changed[at] ^= flip
                assert not receiver.takes(one, bytes(changed)), f"taken with another byte {at}"
        assert not receiver.takes(one, b"") and not receiver.takes(one, one.body + b" ")
        for name, value in (
            ("webhook_id", "evt_00000000000000000000000000000000"),
            ("webhook_timestamp", str(int(one.headers["webhook-timestamp"]) + 1)),
            ("webhook_timestamp", str(int(one.headers["webhook-timestamp"]) - 600)),
            ("webhook_timestamp", "yesterday"),
            ("webhook_signature", "v1," + base64.b64encode(bytes(32)).decode()),
            ("webhook_signature", "v1"),
            ("webhook_signature", ""),
        ):
            assert not receiver.takes(one, **{name: value}), f"taken with {name} {value}"
    stranger = Receiver(reader, block, another_secret(), reader.path(f"stranger-{block.language}"))
    assert not any(stranger.takes(one) for one in arrivals), "taken with another secret"
    stranger.end()
    kept = receiver.kept()
    for one in arrivals:
        assert kept.count((one.event["id"], one.body.decode())) == 1, f"{one.event['id']} was not kept once"
    assert not doorway.of(left_out) and len(kept) == len({event_id for event_id, _ in kept}) == 3, kept
    attempts = wait_for_state(reader, events[0], "delivered")["attempts"]
    assert len(attempts) == 1 and attempts[0]["status"] == 204 and attempts[0]["error"] is None, attempts


def webhook_by_python(reader, block):
    reader.receiver_blocks = {"python": block}
    receiver = Receiver(reader, block, reader.variables["VINTEM_WEBHOOK_SECRET"])
    reader.receiver = receiver
    hold_receiver(reader, block, receiver)
    # The function by itself, as somebody takes it over.
    verified = runpy.run_path(str(reader.path("receiver.py")))["verified"]
    one = doorway.arrived[-1]
    os.environ["VINTEM_WEBHOOK_SECRET"] = reader.variables["VINTEM_WEBHOOK_SECRET"]
    assert verified(one.body, one.headers)["id"] == one.headers["webhook-id"]
    for secret, body in ((None, one.body.replace(b"2", b"3", 1)), (another_secret(), one.body)):
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
    hold_receiver(reader, block, receiver)
    # It remembers over a restart what it has kept.
    one = doorway.arrived[-1]
    receiver.end()
    receiver = Receiver(reader, block, reader.variables["VINTEM_WEBHOOK_SECRET"], reader.path("node"))
    assert receiver.takes(one) and len(receiver.kept()) == 3
    receiver.end()
    doorway.behind = reader.receiver.port


def webhook_test(reader, block):
    said = json.loads(reader.run(block))
    assert said["type"] == "webhook.test", said
    reader.tried = said["event_id"]


def webhook_deliveries(reader, block):
    said = json.loads(reader.run(block))
    (one,) = said["data"]
    assert one["event_id"] == reader.tried and one["type"] == "webhook.test" and said["limit"] == 1, said
    attempts = wait_for_state(reader, reader.tried, "delivered")["attempts"]
    assert [attempt["status"] for attempt in attempts] == [204], attempts


def webhook_replay(reader, block):
    doorway.behind = None
    event = try_webhook(reader)
    attempts = wait_for_state(reader, event, "dead")["attempts"]
    assert [(attempt["status"], attempt["error"]) for attempt in attempts] == [(500, "status")], "a test is sent once"
    doorway.behind = reader.receiver.port
    reader.run(block)
    attempts = wait_for_state(reader, event, "delivered")["attempts"]
    assert [attempt["status"] for attempt in attempts] == [500, 204], attempts
    first, second = doorway.of(event)
    assert first.body == second.body and first.headers["webhook-signature"]
    assert json.loads(reader.path("replayed.json").read_text())["event_id"] == event
    # What is no test is tried again by itself, the first time after 5 seconds, or a tenth less or more.
    doorway.behind = None
    event = happen("series.revised", series="selic", date="2026-01-02", old="1", new="2")
    arrival(event)
    doorway.behind = reader.receiver.port
    arrival(event, times=2)
    first, second = wait_for_state(reader, event, "delivered")["attempts"]
    waited = seconds(second["at"]) - seconds(first["at"])
    assert 4.5 <= waited < 15, f"sent again after {waited} seconds"
    print(f"sent_again_seconds: {waited:.1f}")


def seconds(instant):
    return time.mktime(time.strptime(instant[:19], "%Y-%m-%dT%H:%M:%S")) + float("0" + instant[19:-1])


def webhook_pause(reader, block):
    assert json.loads(reader.run(block))["status"] == "paused"
    assert call(of_webhook(reader, "/test"), method="POST")[0] == 400


def webhook_catch_up(reader, block):
    missed = [
        happen("series.revised", series="selic", date="2026-01-05", old="1.10", new="2.20"),
        happen("series.revised", series="selic", date="2026-01-06", old="1.10", new="2.30"),
    ]
    for event in missed:
        published(event)
    reader.run(block)
    assert api(of_webhook(reader))["status"] == "active"
    text, _ = feed()
    kept = dict(reader.receiver.kept())
    for event in missed:
        assert kept[event] in text and '"old":1.10' in kept[event], kept[event]
    again = happen("series.revised", series="selic", date="2026-01-07", old="1", new="2")
    assert arrival(again).status == 204
    assert not any(doorway.of(event) for event in missed), "it was sent after all"
    assert reader.run(block) == "0 events read\n" and len(reader.receiver.kept()) == len(kept) + 1
    # From before a gap, with what came after it there already.
    with sqlite3.connect(reader.path("inbox.db")) as inbox:
        inbox.execute("delete from inbox where id = ?", missed[:1])
    place = next(one for one in range(1000) if feed(f"&after={one}")[1]["data"][0]["id"] == missed[0])
    assert reader.run(block, str(place)) == "3 events read\n"
    assert len(reader.receiver.kept()) == len(kept) + 1 and dict(reader.receiver.kept())[missed[0]] == kept[missed[0]]


def webhook_rotate(reader, block):
    secrets = [reader.variables["VINTEM_WEBHOOK_SECRET"]]
    reader.run(block)
    secrets.append(reader.variables["VINTEM_WEBHOOK_SECRET"])
    assert len(set(secrets)) == 2
    one = arrival(try_webhook(reader))
    assert one.status == 204 and len(one.headers["webhook-signature"].split(" ")) == 2, one.headers
    for language, program in reader.receiver_blocks.items():
        for secret, is_taken in ((secrets[0], True), (secrets[1], True), (another_secret(), False)):
            receiver = Receiver(reader, program, secret, reader.path(f"rotated-{language}"))
            assert receiver.takes(one) is is_taken, f"{language}: {is_taken}"
            receiver.end()
    # A further rotation ends the oldest at once.
    secrets.append(api(of_webhook(reader, "/rotate"), method="POST", body={"grace_seconds": 0})["secret"])
    last = Receiver(reader, reader.receiver_blocks["python"], secrets[2], reader.path("last"))
    doorway.behind = last.port
    one = arrival(try_webhook(reader))
    assert one.status == 204 and " " not in one.headers["webhook-signature"]
    last.end()


def webhook_delete(reader, block):
    said = reader.run(block)
    assert reader.variables["WEBHOOK_ID"] in said and '"status": "active"' in said, said
    assert call(of_webhook(reader))[0] == 404


STEPS = {
    "csv": [csv_of_a_series, csv_by_accept, csv_for_brazil, csv_of_all_filings, csv_by_pandas, csv_by_node],
    "exports": [export_list, export_download, export_once, export_resume, export_sidecar, export_by_python],
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


def blocks_of(guide):
    language = None
    for number, line in enumerate((guides / f"{guide}.md").read_text().splitlines(), 1):
        if language is None and line.startswith("```"):
            language, begins, lines = line[3:], number, []
        elif line == "```":
            yield Block(guide, begins, language, "\n".join(lines) + "\n")
            language = None
        elif language is not None:
            lines.append(line)


running, doorway = [], Doorway()
run = failed = doctests = 0
try:
    assert sorted(STEPS) == sorted(path.stem for path in guides.glob("*.md")), "a guide without steps"
    for guide, steps in STEPS.items():
        reader = Reader(guide, gold if guide == "exports" else platinum)
        reader.variables["RECEIVER_URL"] = f"http://127.0.0.1:{doorway.port}/hooks/vintem"
        blocks = list(blocks_of(guide))
        for block in blocks:
            if block.language not in RUN + ILLUSTRATIONS + DOCTESTS:
                failed += 1
                print(f"fails: {block.place}: nobody knows what {block.language!r} is")
        doctests += sum(block.language in DOCTESTS for block in blocks)
        blocks = [block for block in blocks if block.language in RUN]
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
print(f"requests_arrived: {len(doorway.arrived)}")
print(f"left_to_rustdoc: {doctests}")
print(f"blocks_run: {run}")
print(f"blocks_failed: {failed}")
sys.exit(failed > 0)
