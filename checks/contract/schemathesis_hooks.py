"""What checks/contract/schemathesis has Schemathesis load: a request that changes or ends the key it is sent with is sent with a
key of its own, registered for it a moment before. With the key of the run, the first DELETE /api/v1/keys/me would make
401 of everything that comes after it, and the second rotation too; and labels would meet their cap of a day. Likewise the
webhook that other operations need is not deleted: another one is in its place. A walk from one operation to the next
looks afterwards whether what it deleted is gone, so there it is one that does not exist. All else of the request stays as
it was made up, and a request that does not carry the run's key is left alone."""

import os
from urllib.parse import urlsplit

import requests
import schemathesis

RUN_KEY, RUN_WEBHOOK = os.environ["SCHEMATHESIS_RUN_KEY"], os.environ["SCHEMATHESIS_WEBHOOK"]
NO_WEBHOOK = "whk_" + "0" * 32
CHANGE_THEIR_KEY = {
    ("PATCH", "/api/v1/keys/me"),
    ("DELETE", "/api/v1/keys/me"),
    ("POST", "/api/v1/keys/rotate"),
}


class OwnKey(requests.auth.AuthBase):
    def __init__(self, is_of_walk):
        self.is_of_walk = is_of_walk

    def __call__(self, request):
        address = urlsplit(request.url)
        if (request.method, address.path) in CHANGE_THEIR_KEY and request.headers.get("X-API-Key") == RUN_KEY:
            key = registered(f"{address.scheme}://{address.netloc}")
            request.headers.update({"X-API-Key": key, "Authorization": f"Bearer {key}"})
        if request.method == "DELETE" and address.path == f"/api/v1/webhooks/{RUN_WEBHOOK}":
            other = NO_WEBHOOK if self.is_of_walk else other_webhook(f"{address.scheme}://{address.netloc}")
            request.url = request.url.replace(RUN_WEBHOOK, other)
        return request


def other_webhook(url):
    """One that may be deleted; where the key has as many as it may, one that there is not."""
    made = requests.post(
        f"{url}/api/v1/webhooks", headers={"X-API-Key": RUN_KEY}, json={"url": "http://127.0.0.1:9/"}, timeout=30
    )
    return made.json().get("id", NO_WEBHOOK)


def registered(url):
    body = {"name": "check", "email": "check@example.com"}
    answer = requests.post(f"{url}/api/v1/plans/register", json=body, timeout=10)
    answer.raise_for_status()
    return answer.json()["api_key"]


@schemathesis.hook
def before_call(context, case, kwargs):
    kwargs["auth"] = OwnKey(is_of_walk=case.meta is not None and case.meta.phase.name == "stateful")
