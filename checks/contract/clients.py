"""A program that uses the client that openapi-python-client makes of openapi.yaml, as a stranger would write it.

usage: clients.py BASE_URL BRONZE_KEY, where `vintem_client` can be imported (see checks/contract/clients)
Reads the market overview, then pages through all companies. Prints figures; stops at the first thing that is wrong.
"""
import datetime
import sys
from decimal import Decimal

from vintem_client import AuthenticatedClient
from vintem_client.api.companies import list_companies
from vintem_client.api.market import get_overview
from vintem_client.models import Company, CompanyList, CurrentFXRate, CurrentRate, GetOverviewNumbers, Overview

PAGE = 100  # the most that one call gives


def main() -> None:
    base_url, bronze_key = sys.argv[1:]
    # The generator lets every operation that can take a key be called only with one, so the overview gets it too.
    with AuthenticatedClient(base_url=base_url, token=bronze_key, raise_on_unexpected_status=True) as client:
        print(f"overview_values: {read_overview(client)}")
        read_companies(client)


def read_overview(client: AuthenticatedClient) -> int:
    """How many values it holds, after a look at each: as numbers, and with the same digits as strings."""
    numbers = values_of(overview(client, GetOverviewNumbers.NUMBER))
    strings = values_of(overview(client, GetOverviewNumbers.STRING))
    for name, number in numbers.items():
        string = strings[name]
        assert isinstance(number, (int, float)), f"{name} is {number!r}, not a number"
        assert isinstance(string, str), f"{name} is {string!r}, not a string"
        # What is published has few enough digits for a float to give them back.
        assert Decimal(str(number)) == Decimal(string) > 0, f"{name} is {number!r} or {string!r}"
    return len(numbers)


def overview(client: AuthenticatedClient, numbers: GetOverviewNumbers) -> Overview:
    answer = get_overview.sync(client=client, numbers=numbers)
    assert isinstance(answer, Overview), answer
    return answer


def values_of(answer: Overview) -> dict[str, float | str]:
    currents: dict[str, CurrentRate | CurrentFXRate] = {
        "selic": answer.selic, "cdi": answer.cdi, "ipca": answer.ipca, "fx": answer.fx,
    }
    for name, current in currents.items():
        assert isinstance(current.date, datetime.date), f"{name} is of {current.date!r}"
        assert current.unit and current.series.name and isinstance(current.stale, bool), f"{name}: {current}"
    assert answer.fx.pair == "USD/BRL", answer.fx.pair
    return {
        "selic": answer.selic.value, "cdi": answer.cdi.value, "ipca": answer.ipca.value,
        "buy": answer.fx.buy, "sell": answer.fx.sell,
    }


def read_companies(client: AuthenticatedClient) -> None:
    companies: list[Company] = []
    pages = 0
    while True:
        page = list_companies.sync(client=client, limit=PAGE, offset=len(companies))
        assert isinstance(page, CompanyList), page
        assert (page.limit, page.offset) == (PAGE, len(companies)), (page.limit, page.offset)
        pages += 1
        companies += page.data
        # A page with nothing on it ends the walk too: the figures below then tell that something is missing.
        if len(companies) >= page.total or not page.data:
            break
    distinct = len({company.id for company in companies})
    print(f"pages: {pages}\ncompanies_total: {page.total}\ncompanies_read: {len(companies)}\ncompanies_distinct: {distinct}")
    assert distinct == len(companies) == page.total > PAGE, "not every company was read exactly once"
    assert all(company.name and isinstance(company.registered, bool) for company in companies), "a company without a name"


main()
