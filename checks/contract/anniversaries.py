#!/usr/bin/env python3
"""Compares accumulated rates of the month ahead (TR, TBF, savings accounts) with a second implementation.

usage: checks/contract/anniversaries.py URL KEY REQUESTS
A deposit earns the rates that begin on its day of each month; one of the 29th, 30th or 31st counts from the 1st of the
next month. Only whole months within the period count. Requests random ranges, days and percentages, and compares every
factor to the last digit. The last figure is the number of differences.
"""
import calendar
import datetime
import http.client
import json
import random
import sys
import urllib.parse
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal, getcontext

getcontext().prec = 110
SERIES = ["tr", "tbf", "savings", "savings-old"]
REAL = datetime.date(1994, 7, 1)
url, key, requests = sys.argv[1], sys.argv[2], int(sys.argv[3])
connection = http.client.HTTPConnection(urllib.parse.urlparse(url).netloc)


def get(path):
    connection.request("GET", "/api/v1" + path, headers={"X-API-Key": key})
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, (path, response.status, body[:300])
    return json.loads(body)


def add_month(day):
    """Only for days up to the 28th, which every month has."""
    return day.replace(year=day.year + day.month // 12, month=day.month % 12 + 1)


def month_later(day):
    """The end of a rate of the month ahead, as the publisher gives it."""
    last = calendar.monthrange(day.year + day.month // 12, day.month % 12 + 1)[1]
    first_of_next = add_month(day.replace(day=1))
    return first_of_next.replace(day=day.day) if day.day <= last else add_month(first_of_next)


def months_of_deposit(start, end, day):
    """The first days of the whole months between two dates."""
    day = day if day <= 28 else 1
    begin = start.replace(day=day)
    if begin < start:
        begin = add_month(begin)
    months = []
    while add_month(begin) <= end:
        months.append(begin)
        begin = add_month(begin)
    return months


values = {}
wrong_ends = 0
for name in SERIES:
    rows = get(f"/market/series/{name}?order=asc&limit=20000&numbers=string")["data"]
    values[name] = {datetime.date.fromisoformat(row["date"]): Decimal(row["value"]) for row in rows}
    dates = [(datetime.date.fromisoformat(row["date"]), row["period_end"]) for row in rows]
    wrong_ends += sum(month_later(date).isoformat() != end for date, end in dates)

rng = random.Random(28)
differences = []
open_ended = without_months = 0
for _ in range(requests):
    name = rng.choice(SERIES)
    newest = max(values[name])
    low, high = sorted(rng.randint(REAL.toordinal(), newest.toordinal() + 90) for _ in range(2))
    start = max(datetime.date.fromordinal(low), min(values[name]))
    end = max(datetime.date.fromordinal(high), start)
    if rng.random() < 0.2:
        end = min(end, start + datetime.timedelta(rng.randint(0, 70)))
    percent = Decimal(rng.randint(0, 2_000_000)).scaleb(-4) if rng.random() < 0.5 else Decimal(100)
    amount = Decimal(rng.randint(1, 10**8)).scaleb(-2)
    query = f"percent={percent}&amount={amount}&numbers=string"
    form = rng.choice(["days", "days", "months", "year"])
    if form == "year":
        # An amount is refused for a period that begins before the real.
        start = datetime.date(max(start.year, min(values[name]).year + 1, REAL.year + 1), 1, 1)
        end = datetime.date(start.year + 1, 1, 1)
        query += f"&year={start.year}"
    elif form == "months":
        start = add_month(start.replace(day=1))
        end = max(end, start)
        query += f"&from={start:%Y-%m}&to={end:%Y-%m}"
        end = add_month(end.replace(day=1))
    else:
        query += f"&from={start}&to={end}"
    day = start.day
    if rng.random() < 0.5:
        day = rng.randint(1, 31)
        query += f"&day={day}"

    response = get(f"/market/series/{name}/accumulated?{query}")
    months = months_of_deposit(start, end, day)
    counted = [month for month in months if month <= newest]
    assert all(month in values[name] for month in counted), (name, query)
    factor = Decimal(1)
    for month in counted:
        rate = (1 + values[name][month] / 100 * percent / 100).quantize(Decimal("1e-16"), ROUND_DOWN)
        factor = (factor * rate).quantize(Decimal("1e-16"), ROUND_DOWN)
    factor = factor.quantize(Decimal("1e-8"), ROUND_HALF_UP)
    complete = len(counted) == len(months)
    has_factor = complete or counted
    expected = {
        "factor": f"{factor:f}" if has_factor else None,
        "result": f"{(amount * factor).quantize(Decimal('0.01'), ROUND_HALF_UP):f}" if has_factor else None,
        "months": len(counted),
        "first_counted": counted[0].isoformat() if counted else None,
        "last_counted": counted[-1].isoformat() if counted else None,
        "complete": complete,
        "missing_total": 0,
    }
    served = {field: response.get(field) for field in expected}
    open_ended += not complete
    without_months += not months
    if served != expected:
        differences.append((name, query, served, expected))

for difference in differences[:5]:
    print(*difference, file=sys.stderr)
print(f"anniversaries_compared: {requests}")
print(f"anniversaries_open_ended: {open_ended}")
print(f"anniversaries_without_a_whole_month: {without_months}")
print(f"wrong_period_ends: {wrong_ends}")
print(f"anniversary_differences: {len(differences)}")
sys.exit(bool(differences or wrong_ends or not open_ended or not without_months))
