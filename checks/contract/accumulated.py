#!/usr/bin/env python3
"""Holds what is accumulated to a second implementation of the rule, in decimals of Python.

usage: checks/contract/accumulated.py URL KEY REQUESTS [MAX_MILLISECONDS]
Reads the series and the business days from the service itself, then asks for random ranges, percentages and spreads and
compares every factor to the last digit. Prints also what a range of forty years costs the server beyond a single value,
and fails where that is more than MAX_MILLISECONDS.
"""
import datetime
import http.client
import json
import random
import statistics
import sys
import time
import urllib.parse
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, getcontext

getcontext().prec = 110
SIXTEEN, NINE, EIGHT, CENT = Decimal("1e-16"), Decimal("1e-9"), Decimal("1e-8"), Decimal("0.01")
url, key, requests = sys.argv[1], sys.argv[2], int(sys.argv[3])
max_milliseconds = float(sys.argv[4]) if len(sys.argv) > 4 else float("inf")
connection = http.client.HTTPConnection(urllib.parse.urlparse(url).netloc)


def get(path):
    connection.request("GET", "/api/v1" + path, headers={"X-API-Key": key})
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, (path, answer.status, body[:300])
    return json.loads(body)


def days_of(first, last):
    days = []
    while first <= last:
        until = min(last, first.replace(year=first.year + 39))
        days += get(f"/calendar/business-days?from={first}&to={until}")["data"]
        first = until + datetime.timedelta(1)
    return days


def values_of(series):
    rows = get(f"/market/series/{series}?order=asc&limit=20000&numbers=string")["data"]
    return {row["date"]: Decimal(row["value"]) for row in rows}


def product(rates, percent):
    result = Decimal(1)
    for rate in rates:
        factor = (1 + rate / 100 * percent / 100).quantize(SIXTEEN, ROUND_DOWN)
        result = (result * factor).quantize(SIXTEEN, ROUND_DOWN)
    return result.quantize(EIGHT, ROUND_HALF_UP)


def spread_factor(spread, count):
    power = (1 + spread / 100) ** (Decimal(count) / 252)
    # What is a hair from a whole number of tenths of the last digit is one.
    return power.quantize(Decimal("1e-40"), ROUND_HALF_EVEN).quantize(NINE, ROUND_HALF_UP)


def month(day):
    return day.replace(day=1)


series = {"selic": values_of("selic-daily"), "cdi": values_of("cdi-daily"), "ipca": values_of("ipca")}
business_days = days_of(datetime.date(1979, 1, 1), datetime.date(2030, 12, 31))
draw = random.Random(252)
compared, differences, missing_seen, largest = 0, [], 0, Decimal(0)
for number in range(requests):
    name = draw.choice(["selic", "cdi", "ipca"])
    values = series[name]
    held = sorted(values)
    first, last = (datetime.date.fromisoformat(day) for day in (held[0], held[-1]))
    # Now and then beyond both ends, where days are missing.
    start = first.toordinal() - (400 if draw.random() < 0.05 else 0)
    one, other = sorted(draw.randint(start, last.toordinal() + 1) for _ in range(2))
    since, until = datetime.date.fromordinal(one), datetime.date.fromordinal(other)
    if draw.random() < 0.1:
        since = first
    percent = Decimal(draw.choice([100, 100, 110, 95])) if draw.random() < 0.5 else Decimal(draw.randint(0, 1_300_000)).scaleb(-4)
    spread = None if draw.random() < 0.3 else Decimal(draw.randint(-20_000, 150_000)).scaleb(-4)
    amount = Decimal(draw.randint(1, 10**9)).scaleb(-2)
    query = f"from={since}&to={until}&percent={percent}&amount={amount}&numbers=string"
    if spread is not None:
        query += f"&spread={spread}"
    answer = get(f"/market/{name}/accumulated?{query}")
    if name == "ipca":
        since, until = month(since), month(until)
        months, at = [], since
        while at < until:
            months.append(at.isoformat())
            at = month(at + datetime.timedelta(32))
        expected_days = months
    else:
        expected_days = [day for day in business_days if since.isoformat() <= day < until.isoformat()]
    missing = [day for day in expected_days if day not in values]
    count = sum(since.isoformat() <= day < until.isoformat() for day in business_days)
    ours = {field: answer.get(field) for field in ("index_factor", "spread_factor", "factor", "result")}
    theirs = {"index_factor": None, "spread_factor": None, "factor": None, "result": None}
    if spread is not None:
        theirs["spread_factor"] = spread_factor(spread, count)
    if not missing:
        index = product([rate for day, rate in values.items() if since.isoformat() <= day < until.isoformat()], percent)
        factor = index if spread is None else (index * theirs["spread_factor"]).quantize(NINE, ROUND_HALF_UP)
        theirs.update(index_factor=index, factor=factor, result=(amount * factor).quantize(CENT, ROUND_HALF_UP))
        largest = max(largest, factor)
    theirs = {field: None if value is None else format(value, "f") for field, value in theirs.items()}
    missing_seen += bool(missing)
    compared += 1
    if ours != theirs or answer["missing_total"] != len(missing) or answer["missing"] != missing[:100]:
        differences.append((name, query, ours, theirs, answer["missing_total"], len(missing)))


def median_milliseconds(path, times=200):
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        get(path)
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


held = sorted(series["cdi"])
since = max(held[0], f"{int(held[-1][:4]) - 40}{held[-1][4:]}")
single = median_milliseconds("/market/cdi/current")
whole = median_milliseconds(f"/market/cdi/accumulated?from={since}")
for difference in differences[:5]:
    print(*difference, file=sys.stderr)
print(f"compared: {compared}")
print(f"with_missing_days: {missing_seen}")
print(f"largest_factor: {largest:f}")
print(f"round_trip_milliseconds: {single:.2f} of a single value, {whole:.2f} of the days since {since}")
print(f"server_milliseconds: {whole - single:.2f}")
print(f"differences: {len(differences)}")
slow = whole - single > max_milliseconds
if slow:
    print(f"more than {max_milliseconds} ms", file=sys.stderr)
sys.exit(bool(differences or slow or not missing_seen))
