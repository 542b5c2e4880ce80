# The recipes of the project. `just` installs from PyPI as rust-just.

# What there is
default:
    @just --list

# Everything that CI runs
ci:
    .ci/run

# The tests, with a PostgreSQL and a Redis of their own
test *ARGS:
    checks/lib/with-engines cargo nextest run --workspace --exclude vintem-fuzz --cargo-profile ci {{ARGS}}

# The tests where nothing but loopback can be reached, as CI runs them (as root)
test-offline *ARGS: _build-tests
    checks/lib/offline checks/lib/with-engines cargo --offline nextest run --workspace --exclude vintem-fuzz --cargo-profile ci {{ARGS}}

# The whole test suite beside a process that keeps every core busy
busy-tests RUNS="5" *ARGS:
    checks/source/busy-tests {{RUNS}} {{ARGS}}

# Hold a served demo to the contract
contract FILINGS="50000": _build-tests
    checks/lib/with-engines checks/contract/served-demo target/ci/vintem {{FILINGS}}

# The contract at the size of the whole country; prints times and memory
whole-country:
    cargo build --release -p vintem-server
    checks/lib/with-engines checks/contract/served-demo target/release/vintem 1100000

# The read model at size: how soon it is ready, what it takes of memory, what deep and filtered pages cost
read-model FILINGS="5000000":
    cargo build --release -p vintem-server
    checks/lib/with-engines checks/scale/read-model target/release/vintem {{FILINGS}}

# 200 loads in a minute into 1.5 million filings, at 500 requests a second
loads FILINGS="1500000" *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin loads-under-traffic
    VINTEM_WALL_CLOCK=1 checks/lib/with-engines checks/scale/loads-under-traffic target/release/vintem target/release/loads-under-traffic {{FILINGS}} --max-p99-ratio 2 {{ARGUMENTS}}

# A replica with very many keys: memory a key, how long it follows them, and how soon changes are in force
million-keys KEYS="1000000":
    cargo build --release -p vintem-server
    checks/lib/with-engines checks/scale/million-keys target/release/vintem {{KEYS}}

# PostgreSQL stopped, killed and cut off, each for so long, at 300 requests a second
postgres-away SECONDS="60":
    VINTEM_WALL_CLOCK=1 VINTEM_AWAY_SECONDS={{SECONDS}} checks/lib/with-engines cargo nextest run --profile long --release -p vintem-server --no-capture without_postgres

# Three processes at the plans' own limits and full minutes admit exactly the limit in any window; also with wrong clocks
exactness SECONDS="130":
    VINTEM_WALL_CLOCK=1 VINTEM_EXACTNESS_SECONDS={{SECONDS}} checks/lib/with-engines cargo nextest run --profile long --release -p vintem-server --no-capture limit_exactness::

# What callers are told and who they are, at length: 1,000 refusals, 10,000 answers, forged addresses, pairs of keys
limits:
    VINTEM_WALL_CLOCK=1 VINTEM_REFUSALS=1000 VINTEM_HEADERS_WINDOW=60 VINTEM_HEADERS_ANSWERS=10000 VINTEM_FORGED=10000 VINTEM_PAIRS=1000 \
        checks/lib/with-engines cargo nextest run --profile long --release -p vintem-server --no-capture \
        retry_after:: limit_headers:: caller_identity:: a_key_sees_its_own_usage_alone

# What keys cost that are not good: malformed ones no statement, and all refusals the same time
bad-keys KEYS="100000" SAMPLES="20000":
    VINTEM_WALL_CLOCK=1 VINTEM_BAD_KEYS={{KEYS}} VINTEM_TIMED_KEYS={{SAMPLES}} \
        checks/lib/with-engines cargo nextest run --profile long --release -p vintem-server --no-capture bad_keys::

# Redis hung, killed, cut off and emptied, each for so long, at 500 requests a second; one of two Redis servers killed
redis-away SECONDS="30":
    VINTEM_WALL_CLOCK=1 VINTEM_REDIS_AWAY_SECONDS={{SECONDS}} checks/lib/with-engines cargo nextest run --profile long --release -p vintem-server --no-capture limiter_faults::

# Replicas, Redis and PostgreSQL killed, hung and cut off at 1,500 requests a second: no usage lost, none doubled
chaos MINUTES="10":
    VINTEM_WALL_CLOCK=1 VINTEM_CHAOS_MINUTES={{MINUTES}} checks/lib/with-engines cargo nextest run --profile long --release -p vintem-server --no-capture chaos::

# Hold accumulated rates to a second implementation, in Python, and print what forty years of them cost
accumulated REQUESTS="2000":
    cargo build --release -p vintem-server
    checks/lib/with-engines checks/contract/accumulated target/release/vintem {{REQUESTS}} 1

# Hold openapi.yaml to a validator and a linter that are not ours
description:
    checks/contract/openapi

# Generate clients with two generators that are not ours, compile them, and let one read a served demo
clients: _build-tests
    checks/contract/clients --install
    checks/lib/with-engines checks/contract/clients target/ci/vintem

# Let Schemathesis make up requests out of openapi.yaml and hold a served demo to it, with a Platinum key and with none
schemathesis CASES="20000": _build-tests
    checks/contract/schemathesis --install
    checks/lib/with-engines checks/contract/schemathesis target/ci/vintem {{CASES}}

# Write the lists that documents repeat from the code; a test says when that is due
documents:
    VINTEM_WRITE_DOCUMENTS=1 cargo nextest run -p vintem-server --cargo-profile ci documents_list

# Fill an empty database at full size from the stand-ins of the upstreams, by one command, and hold it to the contract
full-fill DIR="":
    cargo build --release -p vintem-server -p vintem-testkit --bin vintem --bin upstreams
    checks/lib/with-engines checks/scale/full-fill target/release/vintem target/release/upstreams {{DIR}}

# How fast filings enter the store, beside a bare COPY of the same rows
bench-ingest:
    cargo build --release -p vintem-bench --bin bench-ingest
    checks/lib/with-engines target/release/bench-ingest

# What a search costs, beside a bare Tantivy and Postgres' full text over the same rows
bench-search *ARGUMENTS:
    cargo build --release -p vintem-bench --bin bench-search
    checks/lib/with-engines target/release/bench-search {{ARGUMENTS}}

# A million filings as CSV through HTTP, beside a bare COPY of the same rows
bench-export *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin bench-export
    checks/lib/with-engines checks/scale/bench-export target/release/vintem target/release/bench-export 1100000 {{ARGUMENTS}}

# Open every file of the bulk export by readers that are not ours, cut and resume downloads of them
exports FILINGS="300000":
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin bench-export
    checks/lib/with-engines checks/contract/exports target/release/vintem {{FILINGS}}

# One new filing for very many webhooks, by one worker to loopback receivers; also beside a receiver that is dead
fan-out SUBSCRIPTIONS="10000":
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin webhook-trials
    checks/lib/with-engines target/release/webhook-trials fan-out --vintem target/release/vintem --subscriptions {{SUBSCRIPTIONS}} --max-p99-ratio 1.1

# Loads killed at random moments: never a value without its event, nor an event without its value
outbox TRIALS="1000":
    cargo build --release -p vintem-bench --bin webhook-trials
    checks/lib/with-engines target/release/webhook-trials outbox --trials {{TRIALS}}

# 5,000 events for 20 webhooks while workers are killed 50 times and PostgreSQL four times: none lost
deliveries KILLS="50":
    VINTEM_WALL_CLOCK=1 VINTEM_DELIVERY_KILLS={{KILLS}} checks/lib/with-engines cargo nextest run --profile long --cargo-profile ci -p vintem-server --no-capture delivery_faults::

# Where webhooks may lead, in a network of its own in which every address arrives at a canary (as root)
address-guard: _build-tests
    checks/contract/address-guard target/ci/vintem

# Run the examples of the guides
guides: _build-tests
    checks/docs/guides --install
    checks/lib/with-engines checks/docs/guides target/ci/vintem

# Run the snippets of the API reference
samples: _build-tests
    checks/docs/samples --install
    checks/lib/with-engines checks/docs/samples target/ci/vintem

# The pages in a browser: journeys, accessibility, nothing from another host
pages: _build-tests
    checks/pages/browser --install
    checks/lib/with-engines checks/pages/browser target/ci/vintem

# What the pages cost the server at the size of the whole country
page-times FILINGS="1100000":
    cargo build --release -p vintem-server
    checks/lib/with-engines checks/pages/page-times target/release/vintem {{FILINGS}}

# The pictures of docs/screenshots, drawn anew
screenshots: _build-tests
    checks/pages/browser --install
    SCREENSHOTS=few checks/lib/with-engines checks/pages/screenshots target/ci/vintem docs/screenshots

# Open CSV for Brazilian spreadsheets in LibreOffice and look at the cells
spreadsheet: _build-tests
    checks/lib/with-engines checks/contract/spreadsheet target/ci/vintem

# What a request costs through the whole service, beside a bare axum server that sends the same bytes
bench-request *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin bench-request
    checks/lib/with-engines target/release/bench-request {{ARGUMENTS}}

# Three times as many requests as the service can answer, for a minute; the service has the first core for itself
overload *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin overload
    taskset --cpu-list 1-$(($(nproc) - 1)) checks/lib/with-engines target/release/overload {{ARGUMENTS}}

# What callers take of Redis' memory: a Platinum and a Free key at their limit, and 100,000 active keys
redis-memory *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin redis-memory
    checks/lib/with-engines target/release/redis-memory {{ARGUMENTS}}

# Let libFuzzer make up what comes from outside, MINUTES for each reader and parser
fuzz MINUTES *TARGETS:
    fuzz/run {{MINUTES}} {{TARGETS}}

# Hold what is served to the real files of the publishers in DIR
real-data DIR:
    VINTEM_REAL_DATA={{absolute_path(DIR)}} checks/lib/with-engines cargo nextest run -p vintem-server --cargo-profile ci --test real_data --no-capture

# Follow the recipes of CONTRIBUTING in a copy of the project: a pretend series, endpoint and error code
recipes:
    checks/docs/recipes

# Licences, sources and duplicates of all dependencies, then (by network) the advisories on them
audit:
    command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
    cargo deny --all-features check bans licenses sources
    cargo deny --all-features check advisories

# Format and lint
lint:
    cargo fmt --all
    cargo clippy --workspace --all-targets --profile ci -- -D warnings

# Cut a release: move the version, date the changelog, commit and tag; never pushes. --dry-run shows the diff
release VERSION *OPTIONS:
    checks/source/release cut {{VERSION}} {{OPTIONS}}

# Compiles the tests and the binary of the CI profile
_build-tests:
    cargo nextest run --workspace --exclude vintem-fuzz --cargo-profile ci --no-run
