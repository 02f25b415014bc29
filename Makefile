# kcp-migrate. `make help` lists what there is to do.

ENTRIES   ?= 0
QUICK     ?=
FUZZ_TIME ?= 60s
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

GO    := go
BIN   := $(CURDIR)/bin
# One set of build flags for everything but the race detector: building, linting and testing then share
# the build cache, and the Temporal server (minutes on two cores) is compiled once.
BUILD := CGO_ENABLED=0 GOFLAGS="$(shell $(GO) env GOFLAGS) -trimpath"
# Tests start bin/devstack and bin/kcp-migrate as processes.
TEST  := KCP_MIGRATE_BIN_DIR=$(BIN)
# Go's ten minutes are tight for starting servers under the race detector on two cores.
TEST_TIMEOUT := 20m

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: kcp-migrate devstack ## Build bin/kcp-migrate and bin/devstack

# Go's build cache knows best what is stale, so nothing here is a file target.
.PHONY: kcp-migrate devstack
kcp-migrate:
	$(BUILD) $(GO) build -ldflags "-s -w -X main.version=$(VERSION)" -o $(BIN)/kcp-migrate ./cmd/kcp-migrate

devstack:
	cd cmd/devstack && $(BUILD) $(GO) build -ldflags "-s -w" -o $(BIN)/devstack .

# The devstack packages that do not pull in the Temporal server run under the race detector; compiling the server
# with it as well would add minutes and gigabytes and watch code that is not ours.
WITH_SERVER    = '{{range .Deps}}{{if eq . "go.temporal.io/server/temporal"}}{{$$.ImportPath}}{{end}}{{end}}'
WITHOUT_SERVER = $(GO) list ./... | grep -vxF "$$($(GO) list -f $(WITH_SERVER) ./...)"

# The workers of the fault bench: the product's with failpoints, which the product's own binary does not have.
.PHONY: faults-worker
faults-worker:
	$(BUILD) $(GO) build -o $(BIN)/faults-worker ./test/faults/worker

# Tests move tenants between etcds of several versions: 3.7 is in the tests themselves, and one module holds only one.
.PHONY: etcd36
etcd36:
	$(BUILD) $(GO) build -C test/etcd36 -o $(BIN)/etcd36 go.etcd.io/etcd/server/v3

.PHONY: test
test: build faults-worker etcd36 ## Run all tests, the product's under the race detector
	$(TEST) $(GO) test -race -timeout $(TEST_TIMEOUT) ./...
	cd cmd/devstack && $(GO) test -race -timeout $(TEST_TIMEOUT) $$($(WITHOUT_SERVER))
	cd cmd/devstack && $(BUILD) $(GO) test -timeout $(TEST_TIMEOUT) $$($(GO) list -f $(WITH_SERVER) ./...)
	cd test/bench && $(GO) test -race -timeout $(TEST_TIMEOUT) ./...

.PHONY: lint
lint: lint-tools ## Run golangci-lint and workflowcheck on all modules
	$(BUILD) $(BIN)/golangci-lint run
	$(BUILD) $(BIN)/workflowcheck ./workflows/...
	cd cmd/devstack && $(BUILD) $(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yml
	cd test/bench && $(BUILD) $(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yml

# The tools have a module of their own: their 220 dependencies stay out of the product's.
.PHONY: lint-tools
lint-tools:
	$(BUILD) $(GO) build -C .ci/tools -o $(BIN)/ \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint \
		go.temporal.io/sdk/contrib/tools/workflowcheck

.PHONY: demo
demo: build ## Move a tenant there and back before your eyes (ENTRIES=5000 fattens it)
	$(BUILD) $(GO) build -o $(BIN)/demo ./test/demo
	$(BIN)/demo --bin-dir $(BIN) --entries $(ENTRIES)

# SEED repeats a run, ALL=1 plays the whole matrix (hours), RANDOM=100 so many random schedules, BREAK=all sees that the
# bench catches a bug for each invariant.
.PHONY: faults
faults: build faults-worker ## Strike every part in every step of a move (ALL=1, RANDOM=100, SEED=…, BREAK=all)
	$(BUILD) $(GO) build -o $(BIN)/faults ./test/faults
	$(BIN)/faults --bin-dir $(BIN) $(if $(SEED),--seed $(SEED)) $(if $(ALL),--all) $(if $(RANDOM),--random $(RANDOM)) \
		$(if $(BREAK),--break $(BREAK))

.PHONY: meddlers
meddlers: build faults-worker ## Meddle with moves in every step: late writes, lifted fences, deletions, lost shards
	$(TEST) $(BUILD) $(GO) test -count=1 -v -timeout $(TEST_TIMEOUT) -run 'TestMove|TestRecover' ./test/faults -at-length

.PHONY: up
up: build ## Start devstack with its workers and keep them running
	$(BUILD) $(GO) build -o $(BIN)/demo ./test/demo
	$(BIN)/demo --bin-dir $(BIN) --entries $(ENTRIES) --keep-running

.PHONY: e2e-kcp
e2e-kcp: build ## Run the end-to-end tests on a real kcp on PATH or in KCP_BIN_DIR (API_SERVERS=2: two a shard)
	$(TEST) $(BUILD) $(GO) test -count=1 -v -timeout 60m ./test/realkcp $(if $(API_SERVERS),-api-servers $(API_SERVERS))

.PHONY: bench-kcp
bench-kcp: build ## Measure on a real kcp how long 5,000 ConfigMaps are away
	$(TEST) $(BUILD) $(GO) test -run '^$$' -bench Away -benchtime 1x -timeout 60m ./test/realkcp

# The bench has a module of its own for what draws its plots. QUICK=1 measures less, in about five minutes, and leaves
# docs/benchmarks as it is.
.PHONY: bench
bench: build ## Measure moves beside kcp's own and beside the fastest there can be (QUICK=1: five minutes)
	cd test/bench && $(BUILD) $(GO) build -o $(BIN)/bench .
	$(BIN)/bench --bin-dir $(BIN) $(if $(QUICK),--quick --out $(BIN)/bench-quick)

.PHONY: microbench
microbench: build ## Run the benchmarks of single functions
	$(TEST) $(GO) test -run '^$$' -bench . -benchmem ./activities/... ./test/e2e
	cd cmd/devstack && $(GO) test -run '^$$' -bench . ./etcdserver ./simshard

# The etcd on PATH, Debian's 3.4, is measured too where there is one.
RANGESTREAM_ETCDS = 3.7=$(BIN)/etcd37,3.6=$(BIN)/etcd36$(if $(shell command -v etcd),$(comma)system=$(shell command -v etcd))
comma := ,

.PHONY: rangestream
rangestream: etcd36 ## Measure etcd's RangeStream against pages, for docs/rangestream.md (ONLY="5000 keys")
	$(BUILD) $(GO) build -o $(BIN)/etcd37 go.etcd.io/etcd/server/v3
	$(BUILD) $(GO) build -o $(BIN)/rangestream ./test/rangestream
	$(BIN)/rangestream --etcds $(RANGESTREAM_ETCDS) --results $(BIN)/rangestream.json $(if $(ONLY),--only "$(ONLY)")

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZ_TIME
	@for package in $$(grep -rl --include=*_test.go '^func Fuzz' activities workflows worker | xargs -n 1 dirname | sort -u); do \
		for target in $$(grep -h --include=*_test.go -o '^func Fuzz[A-Za-z0-9]*' $$package/*_test.go | cut -c 6-); do \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) ./$$package || exit 1; \
		done; \
	done

.PHONY: generate
generate: ## Generate the gRPC code again
	$(GO) generate ./...

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(BIN)
