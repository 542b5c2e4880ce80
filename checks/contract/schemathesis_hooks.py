"""Hooks that Schemathesis loads in checks/contract/schemathesis, so that requests do not destroy what later ones need.

A request that changes or revokes its own key is sent with a fresh key, registered just before. With the run's key, the
first DELETE /api/v1/keys/me or the second rotation would turn every later response into 401, and label changes would
reach their daily limit. Likewise, the webhook that other operations need is not deleted: a new one is deleted instead.
The stateful phase checks afterwards that what it deleted is gone, so there the request names a webhook that does not
exist. Nothing else in a request changes, and the key is replaced only in requests that carry the run's key.
"""

import os
from urllib.parse import urlsplit

import requests
import schemathesis

RUN_KEY = os.environ["SCHEMATHESIS_RUN_KEY"]
RUN_WEBHOOK = os.environ["SCHEMATHESIS_WEBHOOK"]
MISSING_WEBHOOK = "whk_" + "0" * 32
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
        if (request.method, address.path) in KEY_CHANGING_REQUESTS and request.headers.get("X-API-Key") == RUN_KEY:
            key = register_key(f"{address.scheme}://{address.netloc}")
            request.headers.update({"X-API-Key": key, "Authorization": f"Bearer {key}"})
        if request.method == "DELETE" and address.path == f"/api/v1/webhooks/{RUN_WEBHOOK}":
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


@schemathesis.hook
def before_call(context, case, kwargs):
    kwargs["auth"] = FreshKeyAuth(is_stateful=case.meta is not None and case.meta.phase.name == "stateful")
