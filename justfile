# The recipes of the project. `just` installs from PyPI as rust-just.

# The selection of packages and the profile are those of CI, so that one build serves all.
tests := "checks/lib/with-engines cargo nextest run --workspace --exclude vintem-fuzz --cargo-profile ci"
# One test at length, with its output.
long-test := tests + " --profile long --no-capture"

# List the recipes
default:
    @just --list

# Run everything that CI runs
ci:
    .ci/run

# Run the tests with their own PostgreSQL and Redis
test *ARGS:
    {{tests}} {{ARGS}}

# Run the tests in a network namespace with only loopback, as CI does (as root)
test-offline *ARGS: _build-tests
    checks/lib/offline checks/lib/with-engines cargo --offline nextest run --workspace --exclude vintem-fuzz --cargo-profile ci {{ARGS}}

# Run all tests several times beside a process that keeps every core busy
busy-tests RUNS="5" *ARGS:
    checks/source/busy-tests {{RUNS}} {{ARGS}}

# Check a served demo against the contract
contract FILINGS="50000": _build-tests
    checks/lib/with-engines checks/contract/served-demo target/ci/vintem {{FILINGS}}

# Lose a database, recover it to a random second, and check the contract on it
point-in-time FILINGS="50000": _build-tests
    checks/lib/with-engines checks/contract/recovered-demo target/ci/vintem {{FILINGS}}

# Check the contract with 1.1 million filings; prints times and memory
whole-country:
    cargo build --release -p vintem-server
    checks/lib/with-engines checks/contract/served-demo target/release/vintem 1100000

# Measure the read model at full size: time to start, memory, deep and filtered pages
read-model FILINGS="5000000":
    cargo build --release -p vintem-server
    checks/lib/with-engines checks/scale/read-model target/release/vintem {{FILINGS}}

# Measure what the series of the catalog cost a replica in memory and time to start
series-cost ROUNDS="5":
    cargo build --release -p vintem-server
    checks/lib/with-engines checks/scale/series-cost target/release/vintem {{ROUNDS}}

# Load filings 200 times within a minute into 1.5 million, at 500 requests per second
loads FILINGS="1500000" *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin loads-under-traffic
    VINTEM_WALL_CLOCK=1 checks/lib/with-engines checks/scale/loads-under-traffic target/release/vintem target/release/loads-under-traffic {{FILINGS}} --max-p99-ratio 2 {{ARGUMENTS}}

# Measure a replica with a million keys: memory per key, time to start, time to revoke
million-keys KEYS="1000000":
    cargo build --release -p vintem-server
    checks/lib/with-engines checks/scale/million-keys target/release/vintem {{KEYS}}

# Stop, kill and cut off PostgreSQL, each for SECONDS, at 300 requests per second
postgres-away SECONDS="60":
    VINTEM_WALL_CLOCK=1 VINTEM_AWAY_SECONDS={{SECONDS}} {{long-test}} without_postgres

# Put databases back to an earlier state, TRIALS times in each of three ways, beside running and stopped replicas
restores TRIALS="100":
    VINTEM_RESTORE_TRIALS={{TRIALS}} {{tests}} --profile long --success-output immediate restores::replicas
    VINTEM_RESTORE_TRIALS=2 VINTEM_RESTORE_FILINGS=1500000 {{long-test}} restores::replicas_notice_a_restore

# Check that three processes admit exactly the limit in every window, also with wrong clocks
exactness SECONDS="130":
    VINTEM_WALL_CLOCK=1 VINTEM_EXACTNESS_SECONDS={{SECONDS}} {{long-test}} limit_exactness::

# Check limit headers and client addresses at length: 1,000 refusals, 10,000 responses, forged addresses, pairs of keys
limits:
    VINTEM_WALL_CLOCK=1 VINTEM_REFUSALS=1000 VINTEM_HEADERS_WINDOW=60 VINTEM_HEADERS_ANSWERS=10000 VINTEM_FORGED=10000 VINTEM_PAIRS=1000 \
        {{long-test}} \
        retry_after:: limit_headers:: caller_identity:: a_key_sees_its_own_usage_alone

# Check that malformed keys run no SQL, and that all refusals take the same time
bad-keys KEYS="100000" SAMPLES="20000":
    VINTEM_WALL_CLOCK=1 VINTEM_BAD_KEYS={{KEYS}} VINTEM_TIMED_KEYS={{SAMPLES}} \
        {{long-test}} bad_keys::

# Measure time and size of every compression level on real responses
compression-levels *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin compression-levels
    checks/lib/with-engines target/release/compression-levels {{ARGUMENTS}}

# Attack a replica in six ways, from one address and from 200, and measure what another caller notices
attacks *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin attacks
    checks/lib/with-engines target/release/attacks {{ARGUMENTS}}

# Keep 2,400 connections of slow clients open for a minute, beside 300 ordinary requests per second
slow-clients *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin slow-clients
    checks/lib/with-engines target/release/slow-clients {{ARGUMENTS}}

# Register keys on one replica and use them at once on another, from an address without quota
fresh-keys ROUNDS="200":
    VINTEM_FRESH_KEY_ROUNDS={{ROUNDS}} {{long-test}} fairness::a_new_key

# Hang, kill, cut off and empty Redis, each for SECONDS, at 500 requests per second; kill one of two servers
redis-away SECONDS="30":
    VINTEM_WALL_CLOCK=1 VINTEM_REDIS_AWAY_SECONDS={{SECONDS}} {{long-test}} limiter_faults::

# Store a backlog of usage, with and without kills of those who store it; no call may keep Redis busy for 10 ms
backlog FIELDS="5000000" KILLS="50":
    VINTEM_BACKLOG_FIELDS={{FIELDS}} VINTEM_BACKLOG_KILLS=0 {{long-test}} usage_storage::backlog
    VINTEM_BACKLOG_FIELDS={{FIELDS}} VINTEM_BACKLOG_KILLS={{KILLS}} {{long-test}} usage_storage::backlog

# Let Redis lose its last writes: nothing else may be missing from the usage, and it must say so
lost-writes TRIALS="50":
    VINTEM_LOST_WRITE_TRIALS={{TRIALS}} {{long-test}} usage_storage::lost_writes

# Restart two replicas behind haproxy again and again at 500 requests per second: none of 100,000 may fail
rolling-restarts RESTARTS="20" REQUESTS="100000":
    VINTEM_RESTARTS={{RESTARTS}} VINTEM_RESTART_RATE=500 VINTEM_RESTART_REQUESTS={{REQUESTS}} {{long-test}} rolling_restarts::

# Upgrade two replicas of the previous release behind haproxy at 500 requests per second, with a million rows to migrate
upgrade: _build-tests
    VINTEM_PREVIOUS_BINARY=$(checks/source/previous-release build) VINTEM_RESTARTS=4 VINTEM_RESTART_RATE=500 {{long-test}} rolling_restarts::

# Run the tests of the previous release on the schema of this one
previous-release *ARGS:
    checks/lib/with-engines checks/source/previous-release test {{ARGS}}

# Check the reverse proxy in deploy/nginx with two replicas behind it (as root)
proxy: _build-tests
    checks/deploy/proxy target/ci/vintem

# Check the metrics of a replica and a worker with Prometheus' linter
metrics: _build-tests
    checks/deploy/metrics --install
    checks/lib/with-engines checks/deploy/metrics target/ci/vintem

# Build the image and check the contract on a hardened container; no registry needed (as root)
image FILINGS="5000":
    cargo build --release -p vintem-server
    checks/deploy/image target/release/vintem {{FILINGS}}

# Lint the Helm chart and validate its objects; verify the systemd units, the alerts and the dashboard
deployments:
    checks/deploy/chart
    checks/deploy/units
    checks/deploy/alerts

# Cause every failure that has an alert: Prometheus must fire it within two minutes, and clear it (as root)
alert-drills *DRILLS: _build-tests
    checks/deploy/alert-drills target/ci/vintem target/ci/upstreams {{DRILLS}}

# List all packages in the program as a CycloneDX document, and compare their number with cargo's
sbom:
    checks/deploy/sbom

# Kill the primary and promote its standby: reads and writes must go on within seconds
failover:
    VINTEM_WALL_CLOCK=1 {{long-test}} failover::

# Drop expired months of usage of very many keys
retention KEYS="1000000":
    VINTEM_RETENTION_KEYS={{KEYS}} {{long-test}} usage_storage::retention

# Kill replicas, Redis and PostgreSQL at 1,500 requests per second: no usage lost, none counted twice
chaos MINUTES="10":
    VINTEM_CHAOS_MINUTES={{MINUTES}} {{long-test}} chaos::usage

# Run three replicas for MINUTES at half of the peak rate, with a fault every minute: memory and descriptors must not grow
soak MINUTES="60":
    VINTEM_SOAK_MINUTES={{MINUTES}} {{long-test}} chaos::soak

# Compare accumulated rates with a second implementation in Python, and measure forty years of them
accumulated REQUESTS="2000":
    cargo build --release -p vintem-server
    checks/lib/with-engines checks/contract/accumulated target/release/vintem {{REQUESTS}} 1

# Validate and lint openapi.yaml
description:
    checks/contract/openapi

# Follow README.md in a new clone, the build included; counts commands and seconds to a running demo
readme:
    checks/docs/readme

# Generate clients from openapi.yaml with two generators, compile both and use one
clients: _build-tests
    checks/contract/clients --install
    checks/lib/with-engines checks/contract/clients target/ci/vintem

# Send generated requests to a served demo, with a Platinum key and without a key
schemathesis CASES="20000": _build-tests
    checks/contract/schemathesis --install
    checks/lib/with-engines checks/contract/schemathesis target/ci/vintem {{CASES}}

# Write openapi.yaml, openapi.pt-BR.yaml and the lists that documents repeat from the code; tests fail when they are out of date
documents:
    VINTEM_WRITE_DOCUMENTS=1 {{tests}} documents_

# Fill an empty database at full size from the fake publishers, then check the contract
full-fill DIR="":
    cargo build --release -p vintem-server -p vintem-testkit --bin vintem --bin upstreams
    checks/lib/with-engines checks/scale/full-fill target/release/vintem target/release/upstreams {{DIR}}

# Archive a year of statements at full size, and each of its weekly republications, in which 2% of the documents change
statement-archive WEEKS="52":
    VINTEM_STATEMENT_COMPANIES=1250 VINTEM_STATEMENT_ROWS=840 VINTEM_STATEMENT_RESTATED=20 VINTEM_STATEMENT_WEEKS={{WEEKS}} \
        {{long-test}} statement_archive::every_form

# Compare how generated and real statements compress; DIR has real tables of annual statements
statement-bytes DIR:
    cargo build --release -p vintem-testkit --bin upstreams
    checks/scale/statement-bytes target/release/upstreams {{absolute_path(DIR)}}

# Publish a rate at a random minute of DAYS days, with CVM down all the while: each must be served within five minutes
arrivals DAYS="200":
    VINTEM_ARRIVAL_DAYS={{DAYS}} {{long-test}} ingest_schedule::a_rate_is_served

# Measure how fast filings are stored, compared with a bare COPY of the same rows
bench-ingest:
    cargo build --release -p vintem-bench --bin bench-ingest
    checks/lib/with-engines target/release/bench-ingest

# Measure searches, compared with bare Tantivy and PostgreSQL full-text search over the same rows
bench-search *ARGUMENTS:
    cargo build --release -p vintem-bench --bin bench-search
    checks/lib/with-engines target/release/bench-search {{ARGUMENTS}}

# Measure requests for five years of a statement, compared with a PostgreSQL table of account rows
bench-statements *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin bench-statements
    checks/lib/with-engines target/release/bench-statements {{ARGUMENTS}}

# Measure a million filings as CSV over HTTP, compared with a bare COPY of the same rows
bench-export *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin bench-export
    checks/lib/with-engines checks/scale/bench-export target/release/vintem target/release/bench-export 1100000 {{ARGUMENTS}}

# Read every export file with pyarrow, pandas, Polars and DuckDB; interrupt and resume downloads
exports FILINGS="300000":
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin bench-export
    checks/lib/with-engines checks/contract/exports target/release/vintem {{FILINGS}}

# Deliver one filing to many webhooks with one worker, also beside a dead receiver
fan-out SUBSCRIPTIONS="10000":
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin webhook-trials
    checks/lib/with-engines target/release/webhook-trials fan-out --vintem target/release/vintem --subscriptions {{SUBSCRIPTIONS}} --max-p99-ratio 1.1

# Kill loads at random moments: never a value without its event, never an event without its value
outbox TRIALS="1000":
    cargo build --release -p vintem-bench --bin webhook-trials
    checks/lib/with-engines target/release/webhook-trials outbox --trials {{TRIALS}}

# Deliver 5,000 events to 20 webhooks while workers are killed 50 times and PostgreSQL four times: none lost
deliveries KILLS="50":
    VINTEM_WALL_CLOCK=1 VINTEM_DELIVERY_KILLS={{KILLS}} {{long-test}} delivery_faults::

# Check that webhooks cannot reach private addresses, in a network where every address is a canary (as root)
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

# Check the pages in a browser: journeys, accessibility, no request to another host
pages: _build-tests
    checks/pages/browser --install
    checks/lib/with-engines checks/pages/browser target/ci/vintem

# Measure the server time of every page at 1.1 million filings
page-times FILINGS="1100000":
    cargo build --release -p vintem-server
    checks/lib/with-engines checks/pages/page-times target/release/vintem {{FILINGS}}

# Draw the pictures in docs/screenshots
screenshots: _build-tests
    checks/pages/browser --install
    SCREENSHOTS=few checks/lib/with-engines checks/pages/screenshots target/ci/vintem docs/screenshots

# Open CSV for Brazilian spreadsheets in LibreOffice and check the cells
spreadsheet: _build-tests
    checks/lib/with-engines checks/contract/spreadsheet target/ci/vintem

# Measure requests of a browser, Python and curl, compared with a bare axum server that sends the same bytes
bench-request *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin bench-request
    checks/lib/with-engines target/release/bench-request {{ARGUMENTS}}

# Send a million distinct queries from one address: others must still be answered from the cache
cache-pollution *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin cache-pollution
    checks/lib/with-engines target/release/cache-pollution {{ARGUMENTS}}

# Measure requests, searches and the read model in turns with an earlier commit
compare-commits COMMIT ROUNDS="5" FILINGS="1000000":
    checks/scale/compare-commits {{COMMIT}} {{ROUNDS}} {{FILINGS}}

# Send three times as many requests as the service can answer, for a minute; the service has the first core to itself
overload *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin overload
    taskset --cpu-list 1-$(($(nproc) - 1)) checks/lib/with-engines target/release/overload {{ARGUMENTS}}

# Measure the Redis memory of a Platinum and a Free key at their limit, and of 100,000 active keys
redis-memory *ARGUMENTS:
    cargo build --release -p vintem-server -p vintem-bench --bin vintem --bin redis-memory
    checks/lib/with-engines target/release/redis-memory {{ARGUMENTS}}

# Fuzz every parser of outside input with libFuzzer, MINUTES each
fuzz MINUTES *TARGETS:
    fuzz/run {{MINUTES}} {{TARGETS}}

# Compare what is served with the publishers' real files in DIR
real-data DIR:
    VINTEM_REAL_DATA={{absolute_path(DIR)}} {{tests}} --test real_data --no-capture

# Follow the recipes of CONTRIBUTING in a copy of the project
recipes:
    checks/docs/recipes

# Check licenses, sources, duplicates and advisories of all dependencies
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

# Compile the tests and the binary in the CI profile
_build-tests:
    cargo nextest run --workspace --exclude vintem-fuzz --cargo-profile ci --no-run
