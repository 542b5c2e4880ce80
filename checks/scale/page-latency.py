"""Requests pages and searches from a replica, and prints their latency and the memory of the replica afterwards.

usage: checks/scale/page-latency.py URL KEY FILINGS PROCESS
The kinds of pages take turns over one connection, so that other load on the machine affects all of them alike.
The figures are medians.
"""

import http.client
import json
import random
import statistics
import sys
import time
import urllib.parse

url = sys.argv[1]
key = sys.argv[2]
filings = int(sys.argv[3])
process = sys.argv[4]
ROUNDS = 400
WORDS = "dividendos assembleia conselho aviso fato relevante resultado reunião ata acionistas capital debêntures".split()

connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)


def timed_get(path):
    start = time.perf_counter()
    connection.request("GET", path, headers={"X-API-Key": key})
    response = connection.getresponse()
    body = response.read()
    seconds = time.perf_counter() - start
    if response.status != 200:
        sys.exit(f"{path} answered {response.status}: {body[:200]!r}")
    return seconds, json.loads(body)


def memory():
    lines = open(f"/proc/{process}/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


if filings:
    newest = timed_get("/api/v1/filings?limit=20")[1]["data"]
    category = newest[0]["category"]
    company = newest[0]["company_id"]
    quoted_category = urllib.parse.quote(category)
    total = timed_get(f"/api/v1/filings?category={quoted_category}")[1]["total"]
    paths = {
        "plain": "/api/v1/filings?limit=20&offset=0",
        "deep": f"/api/v1/filings?limit=20&offset={filings * 98 // 100}",
        "category": f"/api/v1/filings?limit=20&category={quoted_category}&offset={total // 2}",
        "dates": "/api/v1/filings?limit=20&from=2015-01-01&to=2018-12-31",
        "company": f"/api/v1/filings?limit=20&category={quoted_category}&from=2010-01-01&to=2024-12-31&offset=100",
        "both": f"/api/v1/companies/{company}/filings?limit=20&category={quoted_category}&from=2005-01-01",
    }
    times = {name: [] for name in paths}
    for _ in range(ROUNDS):
        for name, path in paths.items():
            times[name].append(timed_get(path)[0])
    medians = {name: statistics.median(samples) for name, samples in times.items()}
    filtered = max(medians[name] for name in ("category", "dates", "company", "both"))
    print(f"page_microseconds: {medians['plain'] * 1e6}")
    print(f"deep_page_ratio: {medians['deep'] / medians['plain']}")
    print(f"filtered_page_ratio: {filtered / medians['plain']}")

rng = random.Random(7)
for _ in range(200):
    words = urllib.parse.quote(" ".join(rng.sample(WORDS, rng.choice([1, 2]))))
    timed_get(f"/api/v1/filings/search?q={words}&limit=20")
print(f"memory_bytes: {memory()}")
