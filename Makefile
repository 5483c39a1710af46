# Everything here needs Go and make only, but for `check`, `conform` and the
# PEER column of `bench`, which say what they need.
export CGO_ENABLED = 0
GO      ?= go
SEEDS   ?= 1000
TIME    ?= 1m
DATA    ?= ./data
PKG     ?= ./...

.DEFAULT_GOAL := help
.PHONY: help build run test check conform differential kafka-tools loads race sim fuzz demo bench cover fmt vet clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/thermocline
	$(GO) build -trimpath -ldflags "-s -w" -o bin/thermocline ./cmd/thermocline

run: build ## start the local stack: etcd, an S3 store and three brokers in one process
	./bin/thermocline dev --data-dir $(DATA)

test: ## all Go tests: units, formats, crash tests, simulator, brokers as real processes
	$(GO) test -timeout 20m $(PKG)

check: ## what `test` cannot do with Go alone: strace on live brokers, kcat, the demo
	@for tool in strace kcat; do command -v $$tool >/dev/null || { \
	  echo "make check needs $$tool: install it (Debian: apt-get install $$tool)"; exit 1; }; done
	$(GO) test -timeout 20m -count=1 -tags kcat -run Kcat ./ingest
	$(GO) test -timeout 20m -count=1 -tags outside ./localstack/outside/...

conform: ## real Kafka clients in other languages: make conform [CLIENTS=java4,kcat,…] [BOOTSTRAP=host:port] [AGAINST=kafka]
	CLIENTS="$(CLIENTS)" SCENARIOS="$(SCENARIOS)" BOOTSTRAP="$(BOOTSTRAP)" AGAINST="$(AGAINST)" PARALLEL="$(PARALLEL)" \
	  $(GO) test -timeout 55m -count=1 -v -tags conform -run TestConform ./localstack/conform

loads: ## a thousand members in one group, a thousand groups on one cluster: minutes, with figures
	$(GO) test -timeout 40m -count=1 -v -tags loads ./localstack/loads

kafka-tools: ## the command-line tools of Apache Kafka against three brokers (needs Java 17 and Maven)
	$(GO) test -timeout 30m -count=1 -v -tags kafkatools ./localstack/kafkatools

differential: ## the same random requests to Apache Kafka and to us, answers compared (needs Java 17 and Maven): make differential [SEED=n] [STEPS=n]
	DIFFERENTIAL_SEED="$(SEED)" DIFFERENTIAL_STEPS="$(STEPS)" \
	  $(GO) test -timeout 30m -count=1 -v -tags differential -run TestDifferential ./localstack/differential

race: ## the race detector on the packages without etcd and S3 (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 20m ./wal/... ./ingest/... ./index/... ./tiering ./tiering/format/... ./cmd/config/...

sim: ## the simulator alone: make sim SEEDS=100000
	$(GO) test -timeout 24h -count=1 ./localstack/sim -run TestSeeds -args -sim.seeds=$(SEEDS)

fuzz: ## every fuzz target for TIME each (default 1m)
	./.ci/fuzz $(TIME)

demo: build ## publish a real event file, kill a broker, replay it byte for byte (needs kcat)
	@command -v kcat >/dev/null || { echo "make demo needs kcat: install it (Debian: apt-get install kcat)"; exit 1; }
	./localstack/demo/demo.sh ./bin/thermocline

bench: build ## print the table of figures; QUICK=1: in minutes; PEER=kafka adds Apache Kafka's column (needs Java 17 and Maven)
	./bin/thermocline bench $(if $(QUICK),--quick) $(if $(PEER),--peer $(PEER)) $(BENCHFLAGS)

cover: ## statement coverage by package
	$(GO) test -timeout 20m -cover $(PKG)

fmt: ## format the code
	gofmt -w $$(git ls-files '*.go')

vet: ## vet the code
	$(GO) vet -tags "kcat outside conform differential kafkatools loads" ./...

clean: ## remove what builds and local runs leave
	rm -rf bin bench-results
