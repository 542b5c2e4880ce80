"""Opens the files of the bulk export by pyarrow, pandas and DuckDB, and resumes downloads of them.

usage: exports.py URL GOLD_KEY REBUILD, where the shell command REBUILD makes the files anew from other data
"""

import csv, gzip, hashlib, io, json, os, random, socket, subprocess, sys, tempfile, time, urllib.error, urllib.request
from datetime import date
from decimal import Decimal

import duckdb
import pandas
import pyarrow
import pyarrow.parquet

url, key, rebuild = sys.argv[1:]
faults = []


def fault(text):
    faults.append(text)
    print("fault:", text)


def get(path, **headers):
    request = urllib.request.Request(url + path, headers={"X-API-Key": key, **headers})
    try:
        return urllib.request.urlopen(request)
    except urllib.error.HTTPError as answer:
        return answer


def api(path):
    with get(path) as answer:
        return json.load(answer, parse_float=Decimal)


def all_pages(path):
    rows, total = [], 1
    while len(rows) < total:
        page = api(f"{path}&offset={len(rows)}")
        total = page["total"]
        rows += page["data"]
        if not page["data"]:
            break
    return rows


def download(file):
    with get("/api/v1/export/" + file["name"]) as answer:
        body = answer.read()
        if answer.headers["ETag"] != f'"{file["sha256"]}"' or answer.headers["Content-Type"] != file["media_type"]:
            fault(f'{file["name"]}: {answer.headers}')
    if hashlib.sha256(body).hexdigest() != file["sha256"] or len(body) != file["bytes"]:
        fault(f'{file["name"]} has not the bytes of the list')
    return body


def cell(value, kind):
    """As the type of the column says, whatever the file calls it."""
    if kind == "list of text":
        return [] if value in ("", None) else value.split(" | ") if isinstance(value, str) else list(value)
    if value is None or (value == "" and kind != "text"):
        return None
    if kind == "date":
        return value if isinstance(value, date) else date.fromisoformat(value[:10])
    if kind.startswith("decimal"):
        return Decimal(value)
    if kind == "integer":
        return int(value)
    if kind == "boolean":
        return value if isinstance(value, bool) else {"true": True, "false": False}[value]
    # What would be a formula in a spreadsheet has an apostrophe before it.
    return value[1:] if value[:1] == "'" and value[1:2] in tuple("=+-@\t\r") else value


def arrow_type(kind):
    if kind.startswith("decimal"):
        precision, scale = kind[8:-1].split(",")
        return pyarrow.decimal128(int(precision), int(scale))
    return {
        "text": pyarrow.string(),
        # How the elements are called and whether they may be missing is no matter.
        "list of text": None,
        "date": pyarrow.date32(),
        "integer": pyarrow.int64(),
        "boolean": pyarrow.bool_(),
    }[kind]


def look_at(entry, home):
    sidecar = json.loads(download(entry["sidecar"]))
    columns = [(column["name"], column["type"]) for column in sidecar["columns"]]
    files = {file["format"]: (file, download(file)) for file in entry["files"]}
    paths = {}
    for form, (file, body) in files.items():
        paths[form] = os.path.join(home, file["name"])
        with open(paths[form], "wb") as out:
            out.write(body)

    def rows_of(dictionaries):
        return [tuple(cell(row[name], kind) for name, kind in columns) for row in dictionaries]

    text = gzip.decompress(files["csv.gz"][1]).decode()
    by_csv = rows_of(csv.DictReader(io.StringIO(text, newline="")))
    lines = gzip.decompress(files["ndjson.gz"][1]).decode().splitlines()
    by_ndjson = rows_of(json.loads(line, parse_float=Decimal) for line in lines)
    table = pyarrow.parquet.read_table(paths["parquet"])
    by_parquet = rows_of(table.to_pylist())
    name = entry["name"]
    if not by_csv == by_ndjson == by_parquet:
        fault(f"{name}: the formats have other rows than each other")
    if not len(by_csv) == entry["rows"] == sidecar["rows"]:
        fault(f'{name} has {len(by_csv)} rows and not {entry["rows"]}')
    for field, (column, kind) in zip(table.schema, columns, strict=True):
        is_of_kind = field.type == arrow_type(kind) or (pyarrow.types.is_list(field.type) and kind == "list of text")
        if field.name != column or not is_of_kind:
            fault(f"{name}: column {field} is not {column} {kind}")
    for key_, value in (("licence", "ODbL-1.0"), ("dataset", name)):
        if table.schema.metadata.get(key_.encode()) != value.encode():
            fault(f"{name}: the file does not tell its {key_}")
    if sidecar["licence"] != "ODbL-1.0" or not sidecar["sources"] or not sidecar["synthetic"]:
        fault(f"{name}: the sidecar tells no licence or no sources")

    frame = pandas.read_parquet(paths["parquet"])
    counts = [len(frame), len(pandas.read_csv(paths["csv.gz"], dtype=str, keep_default_na=False))]
    if by_csv:
        counts.append(len(pandas.read_json(paths["ndjson.gz"], lines=True, dtype=False)))
    database = duckdb.connect()
    counts += [
        database.sql(f"select count(*) from read_parquet('{paths['parquet']}')").fetchall()[0][0],
        database.sql(f"select count(*) from read_csv('{paths['csv.gz']}', header=true, all_varchar=true)").fetchall()[0][0],
    ]
    if by_csv:
        counts.append(database.sql(f"select count(*) from read_json('{paths['ndjson.gz']}')").fetchall()[0][0])
    if set(counts) != {entry["rows"]}:
        fault(f"{name}: readers count {counts}")
    for at, (column, kind) in enumerate(columns):
        if kind.startswith("decimal") and by_csv:
            total = sum(row[at] for row in by_csv if row[at] is not None)
            kinds = database.sql(f"select sum({column}), any_value(typeof({column})) from read_parquet('{paths['parquet']}')")
            if kinds.fetchall()[0] != (total, kind.upper()):
                fault(f"{name}: DuckDB adds {column} up to something else than {total}")
    return columns, by_csv


def resume(file, body):
    """Reads the file in eleven pieces, cut at random places, each begun where the last one ended."""
    cuts = sorted(random.sample(range(1, len(body)), min(10, len(body) - 1))) + [len(body)]
    have = b""
    for cut in cuts:
        headers = {"Range": f"bytes={len(have)}-", "If-Range": f'"{file["sha256"]}"'} if have else {}
        with get("/api/v1/export/" + file["name"], **headers) as answer:
            if answer.status != (206 if have else 200):
                fault(f"resumed at {len(have)}: {answer.status}")
            have += answer.read(cut - len(have))
    if have != body:
        fault(f'{file["name"]} is another one after it was resumed')
    with get("/api/v1/export/" + file["name"], Range=f"bytes={len(body)}-") as answer:
        if answer.status != 416 or answer.headers["Content-Range"] != f"bytes */{len(body)}":
            fault(f"behind the end: {answer.status}")
    return len(cuts) - 1


def read_over_a_rebuild(file, body):
    """Reads a little, waits until the files are made anew, and reads on."""
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as connection:
        # Little is under way, so that most of it is read from the disk later.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
        head = f'GET /api/v1/export/{file["name"]} HTTP/1.1\r\nHost: {host}\r\nX-API-Key: {key}\r\nConnection: close\r\n\r\n'
        connection.sendall(head.encode())
        answer = connection.recv(1024)
        subprocess.run(rebuild, shell=True, check=True, stdout=subprocess.DEVNULL)
        newer = wait_for_another(file)
        while piece := connection.recv(65536):
            answer += piece
    if answer.split(b"\r\n\r\n", 1)[1] != body:
        fault("who began before the files were made anew did not get the old bytes")
    with get("/api/v1/export/" + file["name"], Range="bytes=100-", **{"If-Range": f'"{file["sha256"]}"'}) as answer:
        whole = answer.read()
        if answer.status != 200 or hashlib.sha256(whole).hexdigest() != newer["sha256"]:
            fault("who resumes the old file is not given the whole new one")


def wait_for_another(file):
    until = time.monotonic() + 30
    while time.monotonic() < until:
        listed = api("/api/v1/export")["data"]
        newer = next(one for entry in listed for one in entry["files"] if one["name"] == file["name"])
        if newer["sha256"] != file["sha256"]:
            return newer
        time.sleep(0.2)
    sys.exit("the files were not made anew")


listed = api("/api/v1/export")
files = rows = size = 0
with tempfile.TemporaryDirectory() as home:
    for entry in listed["data"]:
        columns, exported = look_at(entry, home)
        names = [name for name, _ in columns]
        files += len(entry["files"]) + 1
        rows += len(exported)
        size += sum(file["bytes"] for file in entry["files"])
        # As the API itself lists them.
        if entry["name"] == "companies":
            served = [row["id"] for row in all_pages("/api/v1/companies?limit=100")]
            if [row[names.index("id")] for row in exported] != served:
                fault("other companies than the API lists")
        elif entry["name"] == "fx":
            served = [
                (row["pair"], row["date"], row["buy"], row["sell"])
                for pair in sorted({row[names.index("pair")] for row in exported})
                for row in api(f"/api/v1/market/fx?pair={pair}&order=asc&limit=20000")["data"]
            ]
            ours = [tuple(row[names.index(name)] for name in ("pair", "date", "buy", "sell")) for row in exported]
            if sorted((pair, str(day), buy, sell) for pair, day, buy, sell in ours) != sorted(served):
                fault("other exchange rates than the API lists")
        elif entry["dataset"] == "filings":
            year = entry["name"].removeprefix("filings").removeprefix("-")
            days = f"&from={year}-01-01&to={year}-12-31" if year else ""
            page = api(f"/api/v1/filings?limit=100{days}")
            if page["total"] != len(exported) or [row["id"] for row in page["data"]] != [row[0] for row in exported[:100]]:
                fault(f'{entry["name"]}: other filings than the API lists')
        else:
            served = api(f'/api/v1/market/series/{entry["name"]}?order=asc&limit=20000')["data"]
            ours = [(str(row[0]), row[1]) for row in exported]
            if ours != [(row["date"], row["value"]) for row in served]:
                fault(f'{entry["name"]}: other values than the API lists')
    largest = max((file for entry in listed["data"] for file in entry["files"]), key=lambda file: file["bytes"])
    body = download(largest)
    cuts = resume(largest, body)
    read_over_a_rebuild(largest, body)

print(f"datasets: {listed['total']}")
print(f"rows: {rows}")
print(f"bytes: {size}")
print(f"cuts: {cuts}")
print(f"faults: {len(faults)}")
print(f"files_opened: {files}")
sys.exit(bool(faults) or listed["total"] < 12)
