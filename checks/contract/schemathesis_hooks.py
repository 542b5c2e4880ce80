"""Hooks that Schemathesis loads in checks/contract/schemathesis, so that requests do not destroy what later ones need.

A request that changes or revokes its own key is sent with a fresh key, registered just before. With the run's key, the
first DELETE /api/v1/keys/me or the second rotation would turn every later response into 401, and label changes would
reach their daily limit. Likewise, the webhook that other operations need is not deleted: a new one is deleted instead.
The stateful phase checks afterwards that what it deleted is gone, so there the request names a webhook that does not
exist. The key is replaced only in requests that carry the run's key.

Some parameters exclude each other, which a schema cannot express: `locale` needs CSV, `year` replaces `from` and `to`,
`from` must not be after `to`. Of requests that are meant to be valid, most would be refused for such a pair alone, so one
of the two is left out. Requests that are meant to be invalid stay as they are.
"""

import datetime
import os
from urllib.parse import urlsplit

import requests
import schemathesis

RUN_KEY = os.environ["SCHEMATHESIS_RUN_KEY"]
RUN_WEBHOOK = os.environ["SCHEMATHESIS_WEBHOOK"]
MISSING_WEBHOOK = "whk_" + "0" * 32
# Random text names no company and no filing, so nearly all generated requests for one would end with 404.
IDS_THAT_EXIST = {
    os.environ["SCHEMATHESIS_COMPANY"]: {
        "get_company", "list_company_filings", "list_statements", "list_statement_periods", "list_shares",
    },
    os.environ["SCHEMATHESIS_FILING"]: {"get_filing", "list_filing_versions", "get_filing_statements"},
}
KEY_CHANGING_REQUESTS = {
    ("PATCH", "/api/v1/keys/me"),
    ("DELETE", "/api/v1/keys/me"),
    ("POST", "/api/v1/keys/rotate"),
}


class FreshKeyAuth(requests.auth.AuthBase):
    def __init__(self, is_stateful):
        self.is_stateful = is_stateful

    def __call__(self, request):
        address = urlsplit(request.url)
        has_run_key = request.headers.get("X-API-Key") == RUN_KEY
        if has_run_key and (request.method, address.path) in KEY_CHANGING_REQUESTS:
            key = register_key(f"{address.scheme}://{address.netloc}")
            request.headers.update({"X-API-Key": key, "Authorization": f"Bearer {key}"})
        if has_run_key and request.method == "DELETE" and address.path == f"/api/v1/webhooks/{RUN_WEBHOOK}":
            other = MISSING_WEBHOOK if self.is_stateful else create_webhook(f"{address.scheme}://{address.netloc}")
            request.url = request.url.replace(RUN_WEBHOOK, other)
        return request


def create_webhook(url):
    """A webhook that may be deleted, or an id that does not exist if the key has the maximum number already."""
    response = requests.post(
        f"{url}/api/v1/webhooks", headers={"X-API-Key": RUN_KEY}, json={"url": "http://127.0.0.1:9/"}, timeout=30
    )
    return response.json().get("id", MISSING_WEBHOOK)


def register_key(url):
    body = {"name": "check", "email": "check@example.com"}
    response = requests.post(f"{url}/api/v1/plans/register", json=body, timeout=10)
    response.raise_for_status()
    return response.json()["api_key"]


def is_period(query):
    """Whether `from` is a date, and `to` is none or not an earlier one."""
    try:
        start = datetime.date.fromisoformat(str(query["from"]))
        return "to" not in query or start <= datetime.date.fromisoformat(str(query["to"]))
    except (KeyError, ValueError):
        return False


def leave_out_conflicts(operation, query):
    if query.get("format") != "csv":
        query.pop("locale", None)
        query.pop("download", None)
    if "from" in query and "to" in query and not is_period(query):
        query.pop("to")
    if query.get("layout") == "table":
        # A table is one statement, and has no pages.
        query.setdefault("statement", "income")
        query.pop("limit", None)
        query.pop("offset", None)
    if operation == "list_filings":
        # Random text names no company.
        query.pop("company_id", None)
        query.pop("ticker", None)
    if operation.startswith("accumulate_") and "year" not in query and not is_period(query):
        query["year"] = 2024
    if "year" in query:
        query.pop("from", None)
        query.pop("to", None)
    if operation.startswith("accumulate_") and str(query.get("year", query.get("from"))) < "1995":
        query.pop("amount", None)


def name_what_exists(operation, case):
    """In the phase of random values. The others also name what does not exist."""
    if case.meta.phase.name == "fuzzing" and "id" in (case.path_parameters or {}):
        for existing, operations in IDS_THAT_EXIST.items():
            if operation in operations:
                case.path_parameters["id"] = existing


@schemathesis.hook
def before_call(context, case, kwargs):
    is_valid = case.meta is not None and case.meta.generation.mode.is_positive
    if is_valid:
        operation = (case.operation.definition.raw or {}).get("operationId", "")
        name_what_exists(operation, case)
        if isinstance(case.query, dict):
            leave_out_conflicts(operation, case.query)
    kwargs["auth"] = FreshKeyAuth(is_stateful=case.meta is not None and case.meta.phase.name == "stateful")
