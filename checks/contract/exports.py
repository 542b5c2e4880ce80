"""Reads the bulk export files with pyarrow, pandas, Polars and DuckDB, and resumes interrupted downloads of them.

usage: exports.py URL GOLD_KEY REBUILD, where the shell command REBUILD rebuilds the files from other data
Prints faults, if any, then figures, and last the number of files opened.
"""

import concurrent.futures
import csv, gzip, hashlib, io, json, os, random, socket, subprocess, sys, tempfile, time, urllib.error, urllib.request
from datetime import date
from decimal import Decimal

import duckdb
import pandas
import polars
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
    rows = []
    total = 1
    while len(rows) < total:
        page = api(f"{path}&offset={len(rows)}")
        total = page["total"]
        rows += page["data"]
        if not page["data"]:
            break
    return rows


# As the catalog states them.
catalog = {series["id"]: series for series in api("/api/v1/market/series")["data"]}


def download(file):
    with get("/api/v1/export/" + file["name"]) as answer:
        body = answer.read()
        if answer.headers["ETag"] != f'"{file["sha256"]}"' or answer.headers["Content-Type"] != file["media_type"]:
            fault(f'{file["name"]}: {answer.headers}')
    if hashlib.sha256(body).hexdigest() != file["sha256"] or len(body) != file["bytes"]:
        fault(f'{file["name"]} has not the bytes of the list')
    return body


def cell(value, kind):
    """Converts a value of any format to the Python type of its column."""
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
    # A text that a spreadsheet would run as a formula has an apostrophe in front.
    return value[1:] if value[:1] == "'" and value[1:2] in tuple("=+-@\t\r") else value


def arrow_type(kind):
    if kind.startswith("decimal"):
        precision, scale = kind[8:-1].split(",")
        return pyarrow.decimal128(int(precision), int(scale))
    return {
        "text": pyarrow.string(),
        # The name and the nullability of the elements do not matter.
        "list of text": None,
        "date": pyarrow.date32(),
        "integer": pyarrow.int64(),
        "boolean": pyarrow.bool_(),
    }[kind]


def polars_decimal(kind):
    precision, scale = kind[8:-1].split(",")
    return polars.Decimal(int(precision), int(scale))


def check_dataset(entry, workdir):
    sidecar = json.loads(download(entry["sidecar"]))
    columns = [(column["name"], column["type"]) for column in sidecar["columns"]]
    files = {file["format"]: (file, download(file)) for file in entry["files"]}
    paths = {}
    for format_name, (file, body) in files.items():
        paths[format_name] = os.path.join(workdir, file["name"])
        with open(paths[format_name], "wb") as out:
            out.write(body)

    def rows_of(dictionaries):
        return [tuple(cell(row[name], kind) for name, kind in columns) for row in dictionaries]

    text = gzip.decompress(files["csv.gz"][1]).decode()
    csv_rows = rows_of(csv.DictReader(io.StringIO(text, newline="")))
    lines = gzip.decompress(files["ndjson.gz"][1]).decode().splitlines()
    ndjson_rows = rows_of(json.loads(line, parse_float=Decimal) for line in lines)
    table = pyarrow.parquet.read_table(paths["parquet"])
    parquet_rows = rows_of(table.to_pylist())
    name = entry["name"]
    if not csv_rows == ndjson_rows == parquet_rows:
        fault(f"{name}: the formats have other rows than each other")
    if not len(csv_rows) == entry["rows"] == sidecar["rows"]:
        fault(f'{name} has {len(csv_rows)} rows and not {entry["rows"]}')
    for field, (column, kind) in zip(table.schema, columns, strict=True):
        matches_kind = field.type == arrow_type(kind) or (pyarrow.types.is_list(field.type) and kind == "list of text")
        if field.name != column or not matches_kind:
            fault(f"{name}: column {field} is not {column} {kind}")
    # Files of other data than series are under the open license.
    licence = catalog[name]["licence"] if name in catalog else "ODbL-1.0"
    for metadata_key, value in (("licence", licence), ("dataset", name)):
        if table.schema.metadata.get(metadata_key.encode()) != value.encode():
            fault(f"{name}: the file does not tell its {metadata_key}")
    if name in catalog and sidecar["title"] != catalog[name]["name"]:
        fault(f"{name}: the sidecar has the title {sidecar['title']}")
    if ("Open Database License" in sidecar["attribution"]) != (licence == "ODbL-1.0"):
        fault(f"{name}: the attribution names another license: {sidecar['attribution']}")
    if sidecar["licence"] != licence or not sidecar["sources"] or not sidecar["synthetic"]:
        fault(f"{name}: the sidecar tells no licence or no sources")

    frame = pandas.read_parquet(paths["parquet"])
    polars_frame = polars.read_parquet(paths["parquet"])
    counts = [len(frame), len(polars_frame), len(pandas.read_csv(paths["csv.gz"], dtype=str, keep_default_na=False))]
    if csv_rows:
        counts.append(len(pandas.read_json(paths["ndjson.gz"], lines=True, dtype=False)))
    database = duckdb.connect()
    counts += [
        database.sql(f"select count(*) from read_parquet('{paths['parquet']}')").fetchall()[0][0],
        database.sql(f"select count(*) from read_csv('{paths['csv.gz']}', header=true, all_varchar=true)").fetchall()[0][0],
    ]
    if csv_rows:
        counts.append(database.sql(f"select count(*) from read_json('{paths['ndjson.gz']}')").fetchall()[0][0])
    if set(counts) != {entry["rows"]}:
        fault(f"{name}: readers count {counts}")
    for index, (column, kind) in enumerate(columns):
        if kind.startswith("decimal") and csv_rows:
            total = sum(row[index] for row in csv_rows if row[index] is not None)
            query = database.sql(f"select sum({column}), any_value(typeof({column})) from read_parquet('{paths['parquet']}')")
            if query.fetchall()[0] != (total, kind.upper()):
                fault(f"{name}: DuckDB adds {column} up to something else than {total}")
            if polars_frame[column].sum() != total or polars_frame.schema[column] != polars_decimal(kind):
                fault(f"{name}: Polars adds {column} up to something else than {total}")
    return columns, csv_rows


def resume(file, body):
    """Downloads the file in eleven pieces, cut at random positions, each resumed where the last one ended."""
    cuts = sorted(random.sample(range(1, len(body)), min(10, len(body) - 1))) + [len(body)]
    received = b""
    for cut in cuts:
        headers = {"Range": f"bytes={len(received)}-", "If-Range": f'"{file["sha256"]}"'} if received else {}
        with get("/api/v1/export/" + file["name"], **headers) as answer:
            if answer.status != (206 if received else 200):
                fault(f"resumed at {len(received)}: {answer.status}")
            received += answer.read(cut - len(received))
    if received != body:
        fault(f'{file["name"]} is another one after it was resumed')
    with get("/api/v1/export/" + file["name"], Range=f"bytes={len(body)}-") as answer:
        if answer.status != 416 or answer.headers["Content-Range"] != f"bytes */{len(body)}":
            fault(f"behind the end: {answer.status}")
    return len(cuts) - 1


def rebuild_files(file):
    subprocess.run(rebuild, shell=True, check=True, stdout=subprocess.DEVNULL)
    return wait_for_rebuild(file)


def read_across_rebuild(file, body):
    """Reads a little, waits until the files have been rebuilt, and reads the rest."""
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as connection:
        # A small receive buffer, so that the server reads most of the file from disk after the rebuild.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
        request = f'GET /api/v1/export/{file["name"]} HTTP/1.1\r\nHost: {host}\r\nX-API-Key: {key}\r\nConnection: close\r\n\r\n'
        connection.sendall(request.encode())
        answer = connection.recv(1024)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            rebuilt = pool.submit(rebuild_files, file)
            # 16 KiB a second: slower readers are disconnected, faster ones have the file before it is rebuilt.
            while not rebuilt.done():
                answer += connection.recv(4096)
                time.sleep(0.25)
            newer = rebuilt.result()
        while chunk := connection.recv(65536):
            answer += chunk
    if answer.split(b"\r\n\r\n", 1)[1] != body:
        fault("a client that started before a rebuild did not get the old bytes")
    with get("/api/v1/export/" + file["name"], Range="bytes=100-", **{"If-Range": f'"{file["sha256"]}"'}) as answer:
        new_body = answer.read()
        if answer.status != 200 or hashlib.sha256(new_body).hexdigest() != newer["sha256"]:
            fault("who resumes the old file is not given the whole new one")


def wait_for_rebuild(file):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        listed = api("/api/v1/export")["data"]
        newer = next(candidate for entry in listed for candidate in entry["files"] if candidate["name"] == file["name"])
        if newer["sha256"] != file["sha256"]:
            return newer
        time.sleep(0.2)
    sys.exit("the files were not rebuilt")


STATEMENT_FIELDS = [
    "statement", "method", "scope", "column", "account", "name", "value", "raw_value", "period_start", "period_end",
    "reference_date", "version", "comparative", "filing_id",
]
served_statements = {}


def statements_of_company(company):
    """All rows that the API has for a company, in the newest version of each document."""
    if company not in served_statements:
        query = "scope=all&comparatives=true&limit=10000"
        served_statements[company] = all_pages(f"/api/v1/companies/{company}/statements?{query}")
    return served_statements[company]


def check_statements(entry, names, exported):
    """Compares a file of statements, apart from earlier versions, with what the API has for its companies."""
    _, set_id, year = entry["name"].split("-")
    comparable = lambda row: tuple("" if row[name] is None else str(row[name]) for name in STATEMENT_FIELDS)
    latest = [row for row in (dict(zip(names, row)) for row in exported) if row["is_latest"]]
    served = [
        comparable(row)
        for company in sorted({row["company_id"] for row in latest})
        for row in statements_of_company(company)
        if row["reference_date"].startswith(year) and (row["filing_id"] or "").startswith(set_id)
    ]
    if sorted(map(comparable, latest)) != sorted(served):
        fault(f'{entry["name"]}: other statements than the API has')
    if sum(row["value"] for row in latest) != sum(Decimal(row[STATEMENT_FIELDS.index("value")]) for row in served):
        fault(f'{entry["name"]}: the values add up to something else than those of the API')


listed = api("/api/v1/export")
files = rows = size = 0
with tempfile.TemporaryDirectory() as workdir:
    for entry in listed["data"]:
        columns, exported = check_dataset(entry, workdir)
        names = [name for name, _ in columns]
        files += len(entry["files"]) + 1
        rows += len(exported)
        size += sum(file["bytes"] for file in entry["files"])
        # Compare with what the API lists.
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
            exported_values = [tuple(row[names.index(name)] for name in ("pair", "date", "buy", "sell")) for row in exported]
            if sorted((pair, str(day), buy, sell) for pair, day, buy, sell in exported_values) != sorted(served):
                fault("other exchange rates than the API lists")
        elif entry["dataset"] == "filings":
            year = entry["name"].removeprefix("filings").removeprefix("-")
            days = f"&from={year}-01-01&to={year}-12-31" if year else ""
            page = api(f"/api/v1/filings?limit=100{days}")
            if page["total"] != len(exported) or [row["id"] for row in page["data"]] != [row[0] for row in exported[:100]]:
                fault(f'{entry["name"]}: other filings than the API lists')
        elif entry["dataset"] == "statements":
            check_statements(entry, names, exported)
        else:
            served = api(f'/api/v1/market/series/{entry["name"]}?order=asc&limit=20000')["data"]
            exported_values = [(str(row[0]), row[1]) for row in exported]
            if exported_values != [(row["date"], row["value"]) for row in served]:
                fault(f'{entry["name"]}: other values than the API lists')
    largest = max((file for entry in listed["data"] for file in entry["files"]), key=lambda file: file["bytes"])
    body = download(largest)
    cuts = resume(largest, body)
    read_across_rebuild(largest, body)

if not any(entry["dataset"] == "statements" for entry in listed["data"]):
    fault("no financial statements are listed")

print(f"datasets: {listed['total']}")
print(f"rows: {rows}")
print(f"bytes: {size}")
print(f"cuts: {cuts}")
print(f"faults: {len(faults)}")
print(f"files_opened: {files}")
sys.exit(bool(faults) or listed["total"] < 12)
