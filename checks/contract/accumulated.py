#!/usr/bin/env python3
"""Compares accumulated rates with a second implementation of the rule, in Python decimals.

usage: checks/contract/accumulated.py URL KEY REQUESTS [MAX_MILLISECONDS]
Reads the series and the business days from the service, then requests random ranges, percentages and spreads and
compares every factor to the last digit. Also prints how much longer the server takes for a range of forty years than for
a single value, and fails if that is more than MAX_MILLISECONDS. The last figure is the number of differences.
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
SIXTEEN = Decimal("1e-16")
NINE = Decimal("1e-9")
EIGHT = Decimal("1e-8")
CENT = Decimal("0.01")
REAL = datetime.date(1994, 7, 1)
url = sys.argv[1]
key = sys.argv[2]
requests = int(sys.argv[3])
max_milliseconds = float(sys.argv[4]) if len(sys.argv) > 4 else float("inf")
connection = http.client.HTTPConnection(urllib.parse.urlparse(url).netloc)


def get(path):
    connection.request("GET", "/api/v1" + path, headers={"X-API-Key": key})
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, (path, response.status, body[:300])
    return json.loads(body)


def business_days_between(first, last):
    days = []
    while first <= last:
        until = min(last, first.replace(year=first.year + 39))
        days += get(f"/calendar/business-days?from={first}&to={until}")["data"]
        first = until + datetime.timedelta(1)
    return days


def series_values(series):
    rows = get(f"/market/series/{series}?order=asc&limit=20000&numbers=string")["data"]
    return {row["date"]: Decimal(row["value"]) for row in rows}


def accumulate(rates, percent):
    result = Decimal(1)
    for rate in rates:
        factor = (1 + rate / 100 * percent / 100).quantize(SIXTEEN, ROUND_DOWN)
        result = (result * factor).quantize(SIXTEEN, ROUND_DOWN)
    return result.quantize(EIGHT, ROUND_HALF_UP)


def spread_factor(spread, count):
    power = (1 + spread / 100) ** (Decimal(count) / 252)
    # Rounding to 40 digits first makes a power that is a hair off a rounding boundary exact.
    return power.quantize(Decimal("1e-40"), ROUND_HALF_EVEN).quantize(NINE, ROUND_HALF_UP)


def first_of_month(day):
    return day.replace(day=1)


series = {"selic": series_values("selic-daily"), "cdi": series_values("cdi-daily"), "ipca": series_values("ipca")}
business_days = business_days_between(datetime.date(1975, 1, 1), datetime.date(2030, 12, 31))
rng = random.Random(252)
compared = 0
differences = []
with_missing_days = 0
open_ended = 0
largest_factor = Decimal(0)
for number in range(requests):
    name = rng.choice(["selic", "cdi", "ipca"])
    values = series[name]
    dates = sorted(values)
    first = datetime.date.fromisoformat(dates[0])
    last = datetime.date.fromisoformat(dates[-1])
    # Sometimes beyond the ends of the series: days before it are missing, days after it are still to come.
    start = first.toordinal() - (400 if rng.random() < 0.05 else 0)
    end = last.toordinal() + (60 if rng.random() < 0.05 else 1)
    low, high = sorted(rng.randint(start, end) for _ in range(2))
    since = datetime.date.fromordinal(low)
    until = datetime.date.fromordinal(high)
    if rng.random() < 0.1:
        since = first
    percent = Decimal(rng.choice([100, 100, 110, 95])) if rng.random() < 0.5 else Decimal(rng.randint(0, 1_300_000)).scaleb(-4)
    spread = None if rng.random() < 0.3 else Decimal(rng.randint(-20_000, 150_000)).scaleb(-4)
    # No amount means the same before and after a currency reform, so the service refuses one there.
    amount = Decimal(rng.randint(1, 10**9)).scaleb(-2) if since >= REAL else None
    query = f"percent={percent}&numbers=string" + ("" if amount is None else f"&amount={amount}")
    form = rng.choice(["days", "days", "months", "year"])
    if form == "year":
        since = datetime.date(since.year, 1, 1)
        until = datetime.date(since.year + 1, 1, 1)
        query += f"&year={since.year}"
    elif form == "months":
        query += f"&from={since:%Y-%m}&to={until:%Y-%m}"
        since = first_of_month(since)
        until = first_of_month(first_of_month(until) + datetime.timedelta(32))
    else:
        query += f"&from={since}&to={until}"
    if since < REAL and amount is not None:
        query = query.replace(f"&amount={amount}", "")
        amount = None
    if spread is not None:
        query += f"&spread={spread}"
    path = rng.choice([f"/market/{name}/accumulated", f"/market/series/{name}/accumulated"])
    response = get(f"{path}?{query}")
    if name == "ipca":
        since = first_of_month(since)
        until = max(since, first_of_month(until + datetime.timedelta(1)))
        end = min(until, first_of_month(last + datetime.timedelta(32)))
        complete = end == until
        until = max(since, end)
        months = []
        month_start = since
        while month_start < until:
            months.append(month_start.isoformat())
            month_start = first_of_month(month_start + datetime.timedelta(32))
        expected_days = months
    else:
        end = min(until, last + datetime.timedelta(1))
        complete = not any(end.isoformat() <= day < until.isoformat() for day in business_days)
        until = max(since, end)
        expected_days = [day for day in business_days if since.isoformat() <= day < until.isoformat()]
    missing = [day for day in expected_days if day not in values]
    count = sum(since.isoformat() <= day < until.isoformat() for day in business_days)
    served = {field: response.get(field) for field in ("index_factor", "spread_factor", "factor", "result")}
    expected = {"index_factor": None, "spread_factor": None, "factor": None, "result": None}
    if spread is not None:
        expected["spread_factor"] = spread_factor(spread, count)
    counted = [day for day in values if since.isoformat() <= day < until.isoformat()]
    if not missing and (complete or counted):
        index = accumulate([rate for day, rate in values.items() if since.isoformat() <= day < until.isoformat()], percent)
        factor = index if spread is None else (index * expected["spread_factor"]).quantize(NINE, ROUND_HALF_UP)
        result = None if amount is None else (amount * factor).quantize(CENT, ROUND_HALF_UP)
        expected.update(index_factor=index, factor=factor, result=result)
        largest_factor = max(largest_factor, factor)
    expected = {field: None if value is None else format(value, "f") for field, value in expected.items()}
    with_missing_days += bool(missing)
    compared += 1
    open_ended += not complete
    same_days = (
        response.get("first_counted") == (min(counted) if counted else None)
        and response.get("last_counted") == (max(counted) if counted else None)
        and response["complete"] == (complete and not missing)
        and response.get("days", response.get("months")) == len(counted)
    )
    if (
        served != expected
        or not same_days
        or response["missing_total"] != len(missing)
        or response["missing"] != missing[:100]
    ):
        differences.append((name, query, served, expected, response["missing_total"], len(missing)))


def median_milliseconds(path, times=200):
    samples = []
    for _ in range(times):
        start = time.perf_counter()
        get(path)
        samples.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples)


dates = sorted(series["cdi"])
since = max(dates[0], f"{int(dates[-1][:4]) - 40}{dates[-1][4:]}")
single = median_milliseconds("/market/cdi/current")
forty_years = median_milliseconds(f"/market/cdi/accumulated?from={since}")
for difference in differences[:5]:
    print(*difference, file=sys.stderr)
print(f"compared: {compared}")
print(f"with_missing_days: {with_missing_days}")
print(f"open_ended: {open_ended}")
print(f"largest_factor: {largest_factor:f}")
print(f"round_trip_milliseconds: {single:.2f} of a single value, {forty_years:.2f} of the days since {since}")
print(f"server_milliseconds: {forty_years - single:.2f}")
print(f"differences: {len(differences)}")
slow = forty_years - single > max_milliseconds
if slow:
    print(f"more than {max_milliseconds} ms", file=sys.stderr)
sys.exit(bool(differences or slow or not with_missing_days or not open_ended))
