"""Tries to make webhooks connect to addresses that are not public, and counts the connections that arrive there.

usage: address-guard.py URL PLATINUM_KEY…, run by checks/contract/address-guard, where every address is this machine
Each URL is registered through the API, as a new webhook and as a change of an existing one. It is also written straight
to the database, as if the API had accepted it, for the worker to deliver to. Some addresses cannot be connected to at
all (multicast, broadcast, IPv6 link-local); for those, the worker's record of the attempt tells a refusal from a failure.
"""
import contextlib, http.client, ipaddress, json, os, re, socket, struct, subprocess, sys, threading, time

url = sys.argv[1].removeprefix("http://")
keys = sys.argv[2:]
database = os.environ["VINTEM_DATABASE_URL"]
engines = {name: os.environ[f"VINTEM_TEST_{name}"].rsplit(":", 1)[1] for name in ("POSTGRES", "REDIS")}

PUBLIC = "93.184.216.34"
PUBLIC_V6 = "2606:2800:220:1:248:1893:25c8:1946"
BANNER = "220 canary: nobody may hear of this"
MIN_VECTORS = 70
WEBHOOKS_PER_KEY = 20
REBINDING_EVENTS = 6

# The addresses of each DNS name, or a function that computes them.
NAMES = {
    "public.test": [PUBLIC],
    "public6.test": [PUBLIC_V6],
    "private.test": ["10.0.0.1"],
    "private-16.test": ["192.168.0.10"],
    "loopback.test": ["127.0.0.1"],
    "loopback-2.test": ["127.8.8.8"],
    "zero.test": ["0.0.0.0"],
    "metadata.test": ["169.254.169.254"],
    "azure.test": ["168.63.129.16"],
    "carrier.test": ["100.64.0.1"],
    "multicast.test": ["224.0.0.1"],
    "mixed.test": [PUBLIC, "10.0.0.1"],
    "mixed-first.test": ["127.0.0.1", PUBLIC],
    "mixed-last.test": [f"93.184.216.{number}" for number in range(20, 40)] + ["192.168.1.1"],
    "mixed-v6.test": [PUBLIC, "fd00::1"],
    "mixed-loopback-v6.test": [PUBLIC, PUBLIC_V6, "::1"],
    "aaaa-private.test": ["fd00::1"],
    "aaaa-loopback.test": ["::1"],
    "aaaa-link.test": ["fe80::1"],
    "aaaa-metadata.test": ["fd00:ec2::254"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "mapped-private.test": ["::ffff:10.0.0.1"],
    "compatible.test": ["::127.0.0.1"],
    "nat64.test": ["64:ff9b::7f00:1"],
    "nat64-local.test": ["64:ff9b:1::a00:1"],
    "sixtofour.test": ["2002:7f00:1::1"],
    "teredo.test": ["2001:0:5db8:d822:0:0:80ff:fffe"],
    "documentation.test": ["2001:db8::1"],
    "nothing.test": [],
    "rebind.test": lambda is_a_query: [PUBLIC if rebind_is_public else "127.0.0.1"],
    "alternating.test": lambda is_a_query: alternate() if is_a_query else [],
}
# CNAME records; some lead to another one.
ALIASES = {"alias.test": "alias-2.test", "alias-2.test": "private.test", "alias-metadata.test": "metadata.test"}

rebind_is_public = True
alternations = 0


def alternate():
    global alternations
    alternations += 1
    return [PUBLIC if alternations % 2 else "127.0.0.1"]


# Spellings of hosts: IPv4 in decimal, octal, hexadecimal, short, mixed, with other digits and with other dots; IPv6,
# also with embedded IPv4; names of this machine, and names that do not exist.
SPELLINGS = """
127.0.0.1 127.1 127.0.1 2130706433 017700000001 0x7f000001 0X7F000001 0x7f.1 0x7f.0x0.0x0.0x1 0177.0.0.1 0177.0.0.01
00000177.0.0.1 127.0x0.0.01 127.0.0.1. 127.1. 127.255.255.254 127.127.127.127
169.254.169.254 2852039166 0xa9fea9fe 025177524776 0xa9.0xfe.0xa9.0xfe 0251.0376.0251.0376 169.254.43518 169.16689662
0251.254.0xa9.254 169.254.169.254. 169.254.170.2
0 0. 0x0 00 0.0.0.0 0.0.0.1 0.255.255.255
10.0.0.1 10.255.255.255 167772161 172.16.0.1 172.31.255.255 192.168.0.1 192.168.255.255 0xc0a80001
100.64.0.1 100.127.255.255 100.100.100.200 169.254.0.1 192.0.0.1 192.0.0.192 192.0.2.1 192.31.196.1 192.52.193.1
192.88.99.1 192.175.48.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 168.63.129.16
224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.254 255.255.255.255 4294967295
256.256.256.256 4294967296 6425673729 127.0.0.1.1 127.0.0.256 0x100000000
１２７.０.０.１ 127。0。0。1 127．0．0．1 127｡0｡0｡1 ①②⑦.⓪.⓪.① 𝟏𝟐𝟕.𝟎.𝟎.𝟏 １６９。２５４。１６９。２５４ %31%32%37.0.0.1 127%2e0%2e0%2e1
127.0.0.1%00 %e2%91%a0%e2%91%a1%e2%91%a6.0.0.1 2130706433. ２１３０７０６４３３ 127.0.0.1%2f.public.test
127.0.0.1%23.public.test 127.0.0.1%40public.test
[::] [::1] [0:0:0:0:0:0:0:1] [0000:0000:0000:0000:0000:0000:0000:0001] [::0.0.0.1]
[::ffff:127.0.0.1] [::FFFF:7F00:1] [0:0:0:0:0:ffff:7f00:0001] [::ffff:169.254.169.254] [::ffff:a9fe:a9fe]
[::ffff:10.0.0.1] [::ffff:93.184.216.34] [::ffff:0:127.0.0.1] [::127.0.0.1] [::7f00:1] [::5db8:d822]
[64:ff9b::7f00:1] [64:ff9b::127.0.0.1] [64:ff9b::a9fe:a9fe] [64:ff9b::93.184.216.34] [64:ff9b:1::1] [64:ff9b:1::7f00:1]
[2002:7f00:1::1] [2002:a9fe:a9fe::] [2002:5db8:d822::1] [2001::1] [2001:0:7f00:1::] [2001:0:5db8:d822:0:0:80ff:fffe]
[2001:2::1] [2001:10::1] [2001:20::1] [2001:db8::1] [3fff::1] [2620:4f:8000::1] [5f00::1] [4000::1] [100::1]
[100:0:0:1::1] [fc00::1] [fd00::1] [fd00:ec2::254] [fd12:3456:789a::1] [fe80::1] [fe80::a9fe:a9fe] [febf::1] [fec0::1]
[ff02::1] [ff0e::1] [fe80::1%25lo] [fe80::1%lo] [::1%25lo] [::1%lo] [::1]. [v1.127] [127.0.0.1]
localhost LOCALHOST localhost. ⓛocalhost loc%61lhost ip6-localhost sub.localhost
xn--127-0-0-1.test 1.0.0.127.in-addr.arpa nowhere.test nowhere
""".split()

# URLs that differ in more than the host.
OTHER_URLS = [
    # Other ports, and the service's own backends.
    *(f"https://{host}:{port}/" for host in ("127.0.0.1", "[::1]", "loopback.test") for port in (22, 5432, 6379, 8080)),
    "https://127.0.0.1:443/", "https://127.0.0.1:0/", f"https://{url}/", f"http://{url}/api/v1/plans",
    *(f"https://127.0.0.1:{port}/" for port in engines.values()), "https://10.0.0.1:8443/", "https://127.1:9080/",
    *(f"https://public.test:{port}/" for port in (0, 1, 21, 22, 25, 53, 80, 442, 444, 1023, 65536, 99999)),
    f"https://{PUBLIC}:22/", f"https://[{PUBLIC_V6}]:22/", "https://public.test:-1/", "https://public.test:443:22/",
    # User names and passwords.
    "https://public.test@127.0.0.1/", "https://127.0.0.1@public.test/", "https://public.test:443@127.0.0.1/",
    "https://a:b@127.0.0.1/", "https://public.test%40@127.0.0.1/", "https://public.test@@127.0.0.1/",
    "https://@127.0.0.1/", "https://:@127.0.0.1/", "https://:b@public.test/", "https://public.test@[::1]/",
    "https://a@private.test/", "https://public.test&@127.0.0.1#@public.test/", "https://127.0.0.1:443@public.test:443/",
    # Schemes.
    "http://127.0.0.1/", "http://127.0.0.1:8080/", "http://169.254.169.254/latest/meta-data/", "http://public.test/",
    f"http://{PUBLIC}/", "http://public.test:443/", "http://private.test/", "HTTP://127.0.0.1/", "HTTPS://127.0.0.1/",
    "ftp://127.0.0.1/", "ftp://public.test/", "file:///etc/passwd", "file://127.0.0.1/etc/passwd",
    "gopher://127.0.0.1:6379/_INFO", "redis://127.0.0.1:6379/", "postgres://127.0.0.1:5432/", "unix:/run/a.sock",
    "http+unix://%2Frun%2Fa.sock/", "unix:///run/a.sock", "data:text/plain,a", "javascript:alert(1)",
    "dict://127.0.0.1:22/", "ldap://127.0.0.1/", "tftp://127.0.0.1/", "jar:https://127.0.0.1/!/", "ws://127.0.0.1/",
    "wss://public.test/", "blob:https://127.0.0.1/", "about:blank", "mailto:a@public.test",
    "view-source:https://127.0.0.1/",
    # Slashes, backslashes, and missing parts.
    "https:\\\\127.0.0.1\\", "https:/\\127.0.0.1/", "https:127.0.0.1", "https:/127.0.0.1/", "https:///127.0.0.1/",
    "https://////127.0.0.1/", "https://127.0.0.1\\@public.test/", "https://127.0.0.1#@public.test/",
    "https://127.0.0.1?@public.test/", "https://127.0.0.1/?https://public.test/", "//127.0.0.1/", "127.0.0.1",
    "public.test", "/", "", "https:", "https://", "https:///", "https://:443/", "https://?", "https://#",
    "https://.127.0.0.1/", "https://127..0.0.1/", "https://[::1/", "https://::1/", "https://[]/", "https://%/",
    # White space and line breaks.
    " https://127.0.0.1/", "https://127.0.0.1/ ", "https://127.0.0.1 /", "https:// 127.0.0.1/",
    "https://127.0.0.1 .public.test/", "https://127.0.0.1\t/", "ht\ntps://127.0.0.1/", "https://127.0.0.1\r\n/",
    "https://public.test/\r\nHost: 127.0.0.1", "https://public.test\r\n@127.0.0.1/", "\thttps://127.0.0.1/",
    "https://127.0.0.1\u00a0/", "https://127.0.0.1\u3000/", "https://127.0.0.1\u2028/", "https://127.0.0.1\u200b/",
    "https://127.0.0.1\u00ad/", "https://lo\u00adcalhost/", "\ufeffhttps://127.0.0.1/",
    # PostgreSQL cannot store NUL.
    "https://127.0.0.1\u0000.public.test/", "https://127.0.0.1\u0000/",
]
# Names that resolve to addresses that are not public, also in other spellings. That must be the reason for the refusal.
OTHER_NAMES = ["public.test", "public6.test", "rebind.test", "alternating.test", "nothing.test"]
CLOSED_NAMES = [name for name in NAMES if name not in OTHER_NAMES] + list(ALIASES) + ["localhost", "private.test:8443"]
CLOSED_NAMES += ["PRIVATE.TEST", "private.test.", "private%2etest", "ｐrivate.test", "private。test", "alias.test."]
RESOLVING_ELSEWHERE = [f"https://{host}/" for host in CLOSED_NAMES + ["mixed.test:8443", "aaaa-private.test:8443"]]
# No certificate can exist for such a name, so the worker gives up before it resolves the name, and records `connection`.
INVALID_NAMES = [f"https://{host}/" for host in ("127.0.0.1;.public.test", "127.0.0.1,public.test", ".", "..", "*")]
VECTORS = [f"https://{host}/" for host in [*SPELLINGS, "nothing.test"]] + RESOLVING_ELSEWHERE + OTHER_URLS + INVALID_NAMES
VECTORS = list(dict.fromkeys(VECTORS))
# These must be accepted and delivered.
CONTROLS = ["https://public.test/", f"https://{PUBLIC}:8443/", "https://public6.test/", f"https://[{PUBLIC_V6}]:8443/"]
# Another URL parser may see another host in these. Accepted or refused, they may connect only to the public host.
MISLEADING = [
    "https://public.test\\@127.0.0.1/", "https://public.test#@127.0.0.1/", "https://public.test?@127.0.0.1/",
    "https://public.test/@127.0.0.1/", "https://public.test/\\127.0.0.1/", "https://public.test\\127.0.0.1/",
    "https:\\\\public.test\\", "https://public.test./", "https://0x5db8d822/", "https://public.test:6379/",
    "https://public.test:5432/", "https://public.test/?url=http://127.0.0.1/", "https://public.test//127.0.0.1/",
]

faults = []


def fault(text):
    faults.append(text)
    print("fault:", text)


class Canary:
    """Listens on every address and on each port that a URL names, and records the destination of each connection."""

    def __init__(self, ports):
        self.connections = []
        for port in ports:
            listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256)
            threading.Thread(target=self.listen, args=(listener, port), daemon=True).start()

    def listen(self, listener, port):
        while True:
            connection, _ = listener.accept()
            address = ipaddress.ip_address(connection.getsockname()[0].split("%")[0])
            self.connections.append((str(address.ipv4_mapped or address), port))
            # The response is always the same.
            with connection, contextlib.suppress(OSError):
                connection.settimeout(0.2)
                connection.recv(4096)
                connection.sendall(BANNER.encode())

    def public_connections(self):
        return [connection for connection in self.connections if connection[0] in (PUBLIC, PUBLIC_V6)]

    def other_connections(self):
        return [connection for connection in self.connections if connection[0] not in (PUBLIC, PUBLIC_V6)]


def serve_dns():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    while True:
        query, client = server.recvfrom(4096)
        with contextlib.suppress(IndexError, struct.error, UnicodeDecodeError):
            server.sendto(dns_response(query), client)


def dns_response(query):
    """The response to an A or AAAA query, with a TTL of 0."""
    labels = []
    offset = 12
    while query[offset]:
        labels.append(query[offset + 1 : offset + 1 + query[offset]].decode("ascii"))
        offset += 1 + query[offset]
    question = query[12 : offset + 5]
    kind = struct.unpack(">H", query[offset + 1 : offset + 3])[0]
    name = ".".join(labels).lower()
    records = []
    while name in ALIASES:
        records.append((5, encode_name(name), encode_name(ALIASES[name])))
        name = ALIASES[name]
    entry = NAMES.get(name)
    addresses = entry(kind == 1) if callable(entry) else entry or []
    for address in map(ipaddress.ip_address, addresses):
        if kind == {4: 1, 6: 28}[address.version]:
            records.append((kind, encode_name(name), address.packed))
    header = query[:2] + struct.pack(">HHHHH", 0x8580 if entry is not None else 0x8583, 1, len(records), 0, 0)
    answers = (record_name + struct.pack(">HHIH", kind, 1, 0, len(data)) + data for kind, record_name, data in records)
    return header + question + b"".join(answers)


def encode_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def api(method, path, key, body=None):
    connection = http.client.HTTPConnection(url, timeout=30)
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    connection.request(method, "/api/v1/webhooks" + path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def sql(text):
    command = ["psql", database, "-XAtq", "-v", "ON_ERROR_STOP=1"]
    return subprocess.run(command, input=text, check=True, capture_output=True, encoding="utf-8").stdout.strip()


def wait_until(description, seconds, condition):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return fault(f"within {seconds} seconds it did not come to this: {description}")
        time.sleep(0.05)


SUBSCRIPTION = {"types": ["series.revised"], "filters": {"series": ["selic"]}}
# Webhook id → its key.
owners = {}


def create_webhook(address):
    """Creates a webhook with the first key that has room for it, and returns the response."""
    key = keys[len(owners) // WEBHOOKS_PER_KEY]
    status, text = api("POST", "", key, {"url": address, **SUBSCRIPTION})
    if status == 201:
        owners[json.loads(text)["id"]] = key
    return status, text


def create_webhook_or_exit(address):
    status, text = create_webhook(address)
    if status != 201:
        sys.exit(f"{address} is not taken, so nothing can be seen: {status} {text}")
    return json.loads(text)["id"]


def is_refused_by_api(address):
    """Whether both POST and PATCH refuse the URL with a proper error."""
    requests = (
        ("POST", "", {"url": address, **SUBSCRIPTION}),
        ("PATCH", f"/{existing_webhook}", {"url": address}),
    )
    for method, path, body in requests:
        status, text = api(method, path, keys[0], body)
        try:
            problem = json.loads(text)
        except ValueError:
            problem = {}
        message = problem.get("message", "")
        # A message must contain no address, neither the one sent nor a resolved one, and nothing from a response.
        leak = re.search(r"\d\.\d|:\d|::|canary", message)
        has_reason = "public address" in message or address not in RESOLVING_ELSEWHERE
        if status != 400 or problem.get("error") != "bad_request" or "`url`" not in message or leak or not has_reason:
            fault(f"{method} of {address!r}: {status} {text[:300]}")
            if status < 300 and method == "POST":
                api("DELETE", "/" + problem["id"], keys[0])
            return False
    return True


def publish(webhooks, events=1):
    """Publishes events and waits until the worker has attempted each of them for each of these webhooks."""
    event = """insert into event (type, occurred_at, subject)
               values ('series.revised', now(), '{"series":"selic","date":"2026-11-12","old":"1","new":"2"}')
               returning sequence;"""
    for _ in range(events):
        number = sql(event)
        count_attempted = f"""select count(*) from delivery join webhook on number = webhook
                    where event = {number} and attempts <> '[]' and webhook.id = any('{{{",".join(webhooks)}}}')"""
        wait_until(f"event {number} was sent to all", 20, lambda: int(sql(count_attempted)) == len(webhooks))


def attempts(webhooks):
    """Webhook id → all of its delivery attempts, in order."""
    text = sql(
        f"""select coalesce(json_agg(json_build_array(webhook.id, attempt) order by delivery.id, place), '[]')
            from delivery join webhook on number = webhook,
                 jsonb_array_elements(attempts) with ordinality as one (attempt, place)
            where webhook.id = any('{{{",".join(webhooks)}}}')"""
    )
    by_webhook = {webhook: [] for webhook in webhooks}
    for webhook, attempt in json.loads(text):
        by_webhook[webhook].append(attempt)
    return by_webhook


def check_controls():
    """Checks that public addresses are connected to and that the API reveals nothing of their responses."""
    before = len(canary.public_connections())
    webhooks = [create_webhook_or_exit(address) for address in CONTROLS]
    publish(webhooks)
    connections = set(canary.public_connections()[before:])
    if not connections >= {(PUBLIC, 443), (PUBLIC, 8443), (PUBLIC_V6, 443), (PUBLIC_V6, 8443)}:
        fault(f"of public addresses only these were connected to: {sorted(connections)}")
    for address, delivery_attempts in zip(CONTROLS, attempts(webhooks).values()):
        if not delivery_attempts or any(is_refusal(attempt, address) for attempt in delivery_attempts):
            fault(f"delivery to {address}, which is public: {delivery_attempts}")
    for webhook in webhooks:
        status, text = api("GET", f"/{webhook}/deliveries", owners[webhook])
        if status != 200 or json.loads(text)["total"] == 0 or "canary" in text:
            fault(f"the list of deliveries of a public address: {status} {text[:300]}")
    return webhooks


def is_refusal(attempt, address=None):
    """Whether the attempt was refused because of its address, or because the name is unknown where that may be."""
    reasons = ["address"]
    if address not in [None, *RESOLVING_ELSEWHERE]:
        reasons.append("unknown_host")
    # See INVALID_NAMES.
    if address in INVALID_NAMES:
        reasons.append("connection")
    return attempt["status"] is None and attempt["error"] in reasons


named_ports = {int(port) for address in VECTORS + CONTROLS for port in re.findall(r":(\d{1,5})(?=[/@]|$)", address)}
own_ports = {int(url.rsplit(":", 1)[1]), *map(int, engines.values())}
ports = sorted(({80, 443, 22, 5432, 6379, 8080, 8443, 9080} | named_ports) - own_ports - {0, 65536, 99999})
canary = Canary(ports)
threading.Thread(target=serve_dns, daemon=True).start()

# First make sure that the canary notices connections to any address.
probed_addresses = ["127.0.0.1", "127.8.8.8", "10.0.0.1", "10.20.30.40", "169.254.169.254", "192.168.1.1", "100.64.0.1"]
probed_addresses += ["240.0.0.1", "::1", "fd00::1", "fd00:ec2::254", "64:ff9b::7f00:1", "2002:7f00:1::1", "2001:db8::1"]
probed_addresses += [PUBLIC, PUBLIC_V6]
probes = [(address, port) for address in probed_addresses for port in ports]
for address in probes:
    socket.create_connection(address, timeout=5).close()
wait_until("the canary heard all that was meant for it", 10, lambda: sorted(canary.connections) == sorted(probes))
canary.connections.clear()
if {entry[4][0] for entry in socket.getaddrinfo("mixed-v6.test", 443)} != {PUBLIC, "fd00::1"}:
    sys.exit("names are not answered by the check")

unpublished = "select count(*) from event where position is null"
wait_until("what the demo tells of is published", 20, lambda: sql(unpublished) == "0")
existing_webhook = check_controls()[0]

refused_at_registration = [address for address in VECTORS if is_refused_by_api(address)]
misleading = []
for address in MISLEADING:
    status, text = create_webhook(address)
    if status == 201:
        misleading.append(json.loads(text)["id"])
    elif status != 400:
        fault(f"{address!r}: {status} {text[:300]}")
if sql(f"select url from webhook where id = '{existing_webhook}'") != CONTROLS[0]:
    fault("a change that was refused was made")

# Bypass the API: overwrite the URLs of webhooks that were created normally.
storable = [address for address in VECTORS if "\0" not in address]
webhooks = {create_webhook_or_exit(CONTROLS[0]): address for address in storable}
urls = ",".join(f"('{webhook}', decode('{address.encode().hex()}', 'hex'))" for webhook, address in webhooks.items())
sql(
    f"""update webhook set url = convert_from(given.url, 'UTF8')
        from (values {urls}) given (id, url) where webhook.id = given.id"""
)
publish([*webhooks, *misleading])

# DNS rebinding: names that were public at registration no longer are, or only every other time.
rebinding = create_webhook_or_exit("https://rebind.test/")
alternating = create_webhook_or_exit("https://alternating.test/")
rebind_is_public = False
publish([rebinding, alternating], REBINDING_EVENTS)
rebinding_attempts = attempts([rebinding, alternating])
for attempt in rebinding_attempts[rebinding]:
    if not is_refusal(attempt):
        fault(f"a name that leads elsewhere by now: {attempt}")
refusals = [is_refusal(attempt) for attempt in rebinding_attempts[alternating]]
if not any(refusals) or all(refusals):
    fault(f"a name that leads elsewhere every other time: {rebinding_attempts[alternating]}")

check_controls()

# All attempts so far, including retries.
refused_at_delivery = 0
for webhook, delivery_attempts in attempts(list(webhooks)).items():
    wrong = [attempt for attempt in delivery_attempts if not is_refusal(attempt, webhooks[webhook])]
    if delivery_attempts and not wrong:
        refused_at_delivery += 1
    else:
        fault(f"delivery to {webhooks[webhook]!r}: {wrong[0] if wrong else 'none'}")
for address, port in sorted(set(canary.other_connections())):
    fault(f"{address} port {port} was connected to")
if len(VECTORS) < MIN_VECTORS:
    fault(f"less than {MIN_VECTORS} vectors")

print(f"vectors: {len(VECTORS)}")
print(f"refused_at_registration: {len(refused_at_registration)}")
print(f"not_storable: {len(VECTORS) - len(storable)}")
print(f"refused_at_delivery: {refused_at_delivery}")
print(f"misleading_but_public: {len(misleading)}")
print(f"rebinding_attempts: {sum(map(len, rebinding_attempts.values()))}")
print(f"control_connections: {len(canary.public_connections())}")
print(f"faults: {len(faults)}")
print(f"canary_connections: {len(canary.other_connections())}")
sys.exit(bool(faults))
