"""Asks a served replica for pages and searches, and prints what they cost and what memory it then takes.

usage: checks/scale/page-latency.py URL KEY FILINGS PROCESS
Pages of each kind are asked for in turns over one connection, so that whatever else the machine does meets all of them;
the figures are medians.
"""

import http.client
import json
import random
import statistics
import sys
import time
import urllib.parse

url, key, filings, process = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
ROUNDS = 400
WORDS = "dividendos assembleia conselho aviso fato relevante resultado reunião ata acionistas capital debêntures".split()

connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)


def ask(path):
    began = time.perf_counter()
    connection.request("GET", path, headers={"X-API-Key": key})
    answer = connection.getresponse()
    body = answer.read()
    spent = time.perf_counter() - began
    if answer.status != 200:
        sys.exit(f"{path} answered {answer.status}: {body[:200]!r}")
    return spent, json.loads(body)


def memory():
    lines = open(f"/proc/{process}/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


if filings:
    newest = ask("/api/v1/filings?limit=20")[1]["data"]
    category, company = newest[0]["category"], newest[0]["company_id"]
    quoted = urllib.parse.quote(category)
    total = ask(f"/api/v1/filings?category={quoted}")[1]["total"]
    paths = {
        "plain": "/api/v1/filings?limit=20&offset=0",
        "deep": f"/api/v1/filings?limit=20&offset={filings * 98 // 100}",
        "category": f"/api/v1/filings?limit=20&category={quoted}&offset={total // 2}",
        "dates": "/api/v1/filings?limit=20&from=2015-01-01&to=2018-12-31",
        "company": f"/api/v1/filings?limit=20&category={quoted}&from=2010-01-01&to=2024-12-31&offset=100",
        "both": f"/api/v1/companies/{company}/filings?limit=20&category={quoted}&from=2005-01-01",
    }
    times = {name: [] for name in paths}
    for _ in range(ROUNDS):
        for name, path in paths.items():
            times[name].append(ask(path)[0])
    median = {name: statistics.median(of) for name, of in times.items()}
    filtered = max(median[name] for name in ("category", "dates", "company", "both"))
    print(f"page_microseconds: {median['plain'] * 1e6}")
    print(f"deep_page_ratio: {median['deep'] / median['plain']}")
    print(f"filtered_page_ratio: {filtered / median['plain']}")

seed = random.Random(7)
for _ in range(200):
    words = urllib.parse.quote(" ".join(seed.sample(WORDS, seed.choice([1, 2]))))
    ask(f"/api/v1/filings/search?q={words}&limit=20")
print(f"memory_bytes: {memory()}")
