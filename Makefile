# Every target with a ## comment is in `make help`.

# Set to run part of the tests, e.g. make test TEST="-run Outage ./sink/..."
TEST      ?=
FUZZTIME  ?= 60s
# What `make bench` measures, e.g. make bench BENCH="--messages 1000000" or BENCH="fifo-lifo --pin"
BENCH     ?=
# The sinks of `make bench-sinks`; all if empty
SINKS     ?=
# What `make release` builds for, e.g. PLATFORMS="linux/amd64 linux/arm64"; all if empty
PLATFORMS ?=
# How long `make chaos` lets things go wrong, and what it draws from (0: anew)
DURATION  ?= 10m
SEED      ?= 0
# One set of compiled packages serves build, lint and tests.
export GOFLAGS := $(strip -trimpath $(filter-out -trimpath,$(GOFLAGS)))
export CGO_ENABLED ?= 0
GOBUILD   := CGO_ENABLED=0 go build -ldflags "-s -w"

.DEFAULT_GOAL := help
.PHONY: help build release test-release docs demo check test soak schema-dump schema-reference cli-reference race test-postgres test-postgres-all test-python test-kafka test-sinks test-topologies test-clients test-engine test-engines install-servers servers lint fmt fuzz bench bench-sinks chaos clean

help: ## list the targets
	@echo 'make demo, make check and make test need nothing but Go; run as root on Debian, make test installs its servers.'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/penstock, one static binary
	@mkdir -p bin
	$(GOBUILD) -o bin/penstock ./cmd/penstock

demo: build ## see it run: SQLite and an embedded NATS server in one process, nothing to install
	bin/penstock demo

release: ## build what a release has into bin/release, for all platforms or PLATFORMS="linux/amd64" (needs Python, npm and Maven; fetches its tools once)
	script/release.sh $(PLATFORMS)

test-release: ## install each file of bin/release in an empty folder and run the demo with it
	@mkdir -p bin
	@go build -o bin/withservers ./internal/test/testserver/withservers
	bin/withservers -only postgres script/test-release.sh

docs: ## build the site of the documentation, bin/docs/index.html (needs Python and npm; fetches its tools once)
	script/docs.sh

check: ## build, lint, unit and model tests: no servers, a minute or two
	script/check.sh

test: ## everything a change must pass, on private servers (or TEST="-run X ./relay")
	script/test.sh $(TEST)

soak: ## what is about time or chance: long walks, chaos, clusters, many queues (PENSTOCK_ROUNDS=20: longer)
	script/soak.sh $(TEST)

race: ## run the tests with the race detector (needs a C compiler)
	script/test.sh -race $(or $(TEST),./... ./lab/...)

test-postgres: ## run the PostgreSQL store's tests on one version: VERSION=14 … 18
	@test -n "$(VERSION)" || { echo 'say which: make test-postgres VERSION=17 (14 to 18), or make test-postgres-all'; exit 2; }
	script/test-postgres.sh $(VERSION)

test-postgres-all: ## run them on 14, 15, 16, 17 and 18
	script/test-postgres.sh 14 15 16 17 18

test-engine: ## run the portable profile's suites on a server that speaks PostgreSQL's protocol: URL=postgres://…; engine.txt and engine.json are the report
	@test -n "$(URL)" || { echo 'say which server: make test-engine URL=postgres://user:password@host:port/database; the role must be able to create databases'; exit 2; }
	@script/test-engine.sh "$(URL)" $(TEST)

test-engines: ## run on newer RabbitMQ, PostgreSQL, MariaDB, MySQL and PgBouncer, and Valkey, each in a Debian in a folder, what concerns it (ENGINES="mysql-9 …"; TEST="-run X ./store/mysql")
	@script/test-engines.sh $(ENGINES) $(if $(TEST),-- $(TEST))

test-python: build ## build the Python client twice, install its wheel, run ruff, mypy and pytest on it (or PYTHON="python3.10 python3.13")
	@go build -o bin/withservers ./internal/test/testserver/withservers
	bin/withservers -only postgres clients/python/test.sh $(PYTHON)

test-kafka: ## run the Kafka sink's tests on a private Apache Kafka, fetched with Maven (needs Java)
	script/test-kafka.sh

test-sinks: ## run the tests of SQS, SNS and S3 on moto (PyPI), of SQS on ElasticMQ and of AMQP 1.0 on Artemis (Maven; needs Python, Java)
	script/test-sinks.sh

test-topologies: ## run the long form of the tests in clusters, behind poolers, on PostgreSQL 14 to 18
	script/test-topologies.sh

schema-dump: ## write the database of this version that later ones are to bring up to date, once for each release
	PENSTOCK_SCHEMA_DUMP=testdata go test ./store/postgres -run '^TestWriteSchemaDump$$' -count=1

schema-reference: ## write docs/reference/schema.md and store/postgres/schema/golden, what the database has
	script/test.sh ./store/postgres -run '^Test(SchemaReference|Golden)$$' -count=1 -update

cli-reference: ## write usage and flags of each verb into its page in docs/reference/commands
	PENSTOCK_CLI_REFERENCE=1 go test ./cmd/penstock -run '^TestCommandLineReference$$' -count=1

test-clients: ## run the clients' own tests and the suites against them (PENSTOCK_CLIENTS="python java"), a JSON line for each
	script/test-clients.sh

install-servers:
	@script/install-servers.sh

servers: ## start private servers, print their URLs, stop them on Ctrl-C
	@mkdir -p bin
	@go build -o bin/withservers ./internal/test/testserver/withservers
	@bin/withservers

lint: ## check formatting, go vet, staticcheck
	script/lint.sh

fmt: ## format the Go code
	gofmt -w .

fuzz: ## run every fuzz target for FUZZTIME (60s)
	script/fuzz.sh $(FUZZTIME)

bench: ## build bin/bench and measure on private servers: the relay against both ceilings (BENCH="--messages 1000000"), or BENCH="fifo-lifo --pin"
	@mkdir -p bin
	$(GOBUILD) -o bin/bench ./lab/bench
	script/bench.sh $(BENCH)

bench-hour: ## measure six queues for an hour, with charts in bin/hour (BENCH="20s": for as long; BENCH="1h bin/hour ring_fifo plain_lifo": one after the other)
	@mkdir -p bin
	$(GOBUILD) -o bin/bench ./lab/bench
	script/bench-hour.sh $(BENCH)

bench-sinks: ## measure the relay against the client alone, for SINKS="redis sqs sns pubsub amqp1" (BENCH="--messages 20000": flags of bench relay)
	@mkdir -p bin
	$(GOBUILD) -o bin/bench ./lab/bench
	script/bench-sinks.sh "$(SINKS)" $(BENCH)

chaos: build ## kill, pause and cut everything for DURATION (10m), and check each message: SEED=n repeats, CHAOS="-profile portable" or "-store mysql", sqlite, citus
	script/chaos.sh -duration $(DURATION) -seed $(SEED) $(CHAOS)

clean: ## remove what was built
	rm -rf bin
