# Ringway: everything a developer runs. `make` alone lists the targets.

MAKEFLAGS += --warn-undefined-variables --no-builtin-rules
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Overridable on the command line, for example `make fuzz FUZZTIME=10s`.
FUZZTIME ?= 60s
BENCH    ?= .
# The race detector needs cgo and a C compiler; `make test-race RACE=` goes without.
RACE     ?= -race
# Set, `make test` leaves out what `make test-race` tests in the same way, and `make test-sims`.
RACED    ?=
# Per package; a test that hangs prints its goroutines and fails.
TIMEOUT  ?= 12m

# Relays, workers and time of `make test-large`. At this size a relay takes 211 MB and a tenth of a
# processor, a worker half a megabyte. 40x20000x15m does not come up on two processors.
LARGE   ?= 10x5000x5m

# The release whose bytes `make wire-fixtures` adds.
RELEASE ?=
# The commit that `make bench-regression` compares this one with.
BASE    ?=

# Names and tag of the images; what `version` in them says.
IMAGE   ?= ringway
TAG     ?= devel
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# Where make images puts its images, as options of docker buildx bake.
BAKE    ?= $(foreach name,relay worker echo,--set $(name).output=type=oci,dest=bin/$(name).oci.tar)
# The processor of the images, and the systems of a release.
ARCH      ?= $(shell go env GOARCH)
PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64

# The root module and the simulations, which are a module of their own: go.work covers both.
# The other modules are outside the workspace and need GOWORK=off, because a workspace has
# one version of each dependency for all its modules.
packages := ./... ./sims/...

# The packages whose tests take longest start first, or the end would wait for one of them.
# A package that waits for gossip is next to one that computes.
longest := ./internal/relay ./membership ./selection/router ./advertise

# Packages whose tests start whole relays and workers in one process. They wait for gossip, of which
# the detector's processor time makes losses: test-long runs the programs with it instead, and
# test-full these tests, one package at a time.
fleets := /internal/(relay|demo|command)$$|/selection/router$$|/docs/examples/

# The race detector finds nothing in packages without goroutines, such as formulas and texts,
# and takes minutes for the results of simulations.
unraced := $(fleets)|/internal/(docgen|e2e|mutants|settings|wirefixture)|/sims/internal/(scenarios/|bundle|fleet|plot|policy|planner|queueing|report|trace|validation)|/ringway/(ring|affinity|docs|deploy|deploy/helm|deploy/release)$$

# What the race detector changes: it excludes tests of allocations, makes other tests smaller,
# or selects other system calls.
changed := /ringway/(membership|advertise|affinity|selection/router)$$|/internal/(clusterscript|memnet|overload|peering|requestlog|routing|strategy|proxy/[a-z0-9]+|relay/clienttls|worker/sidecar)$$

# The detector would have each process wait for a second at its end, for races in goroutines
# that still run. Packages with goroutines have none left then, which goleak checks.
race := $(if $(RACE),CGO_ENABLED=1 GORACE=atexit_sleep_ms=0)

# Modules for users of other libraries, also outside the workspace.
adapters := $(patsubst %/go.mod,%,$(wildcard adapters/*/go.mod))

# Compilers, linkers and staticcheck collect garbage less often with this, and take an eighth less
# of a processor. Tests that measure the memory of processes must not inherit it.
lazy := GOGC=400

# Tools have a module file of their own, so that they are no dependency of ours. Go accepts
# no other module file in a workspace: each module is a run of its own. The memory of
# staticcheck grows to 0.8 GB by $(lazy).
staticcheck := $(lazy) GOWORK=off go tool -modfile=$(CURDIR)/.ci/tools.mod staticcheck

# need: the program $(1), of the Debian package $(2) or of its own name, is there, or
# is installed where that is possible. Package lists are updated only if they are too old.
need = program=$(firstword $(1)) package=$(lastword $(1)); \
	if ! command -v "$$program" >/dev/null; then \
		if [[ $$(id -u) != 0 || $$program == docker ]] || ! command -v apt-get >/dev/null; then \
			echo "missing: $$program; install it (Debian package: $$package)" >&2; exit 1; \
		fi; \
		install() { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$$package"; }; \
		install 2>/dev/null || { apt-get update -q && install; }; \
	fi
# bench_programs: those of a comparison are there, or are installed where that is possible.
bench_programs = $(call need,haproxy haproxy) && $(call need,nginx nginx-light) && $(call need,wrk wrk) && $(call need,h2load nghttp2-client)
# compose of either generation. A user without root privileges cannot change the owner of
# the mounted secrets, so the containers run as that user.
compose = if (( EUID )); then export RINGWAY_USER="$$(id -u):$$(id -g)"; fi; \
	RINGWAY_IMAGE=$(IMAGE) RINGWAY_TAG=$(TAG) \
	$$(docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose) -p ringway -f deploy/compose.yaml

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## a whole fleet in one process, with load and a live table; Ctrl-C ends it
	@[[ -x bin/relay ]] || echo 'building bin/relay: the first build downloads and compiles everything, 1 to 3 minutes on two cores, and prints nothing meanwhile; later ones take seconds'
	@CGO_ENABLED=0 go build -trimpath -o bin/relay ./cmd/relay
	@exec bin/relay demo

.PHONY: test-long
test-long: ## tests that take minutes, processes with the race detector: a flood, a burst, an overload, rolling restarts
	$(race) LONG_TESTS=1 go test $(RACE) -count=1 -timeout $(TIMEOUT) -v -run Flood ./internal/e2e/hostile
	$(race) LONG_TESTS=1 go test $(RACE) -count=1 -timeout $(TIMEOUT) -v -run 'Burst|Capacity|BusyFleet' ./internal/e2e
	$(race) LONG_TESTS=1 go test $(RACE) -count=1 -timeout $(TIMEOUT) -parallel 4 -run 'RollingRestart|NoRestart|Hangs' ./internal/e2e

.PHONY: test-full
test-full: ## fleets with the race detector, histories of 200 members, a million requests and answers, 100,000 requests of a canary, rolling restarts under 20,000 requests each, 1,000 restarts of one relay, workers that hang: an hour, not in CI
	$(race) $(lazy) go test $(RACE) -p 1 -count=1 -timeout $(TIMEOUT) $$(go list $(packages) | grep -E '$(fleets)')
	LONG_TESTS=1 go test -count=1 -timeout $(TIMEOUT) -run 'WhileMembersJoin|EveryHistoryKeeps|SimultaneousJoins|AMillion|NoOrderOfEvents' ./internal/presence ./internal/sharedkey ./internal/peering ./advertise ./membership ./internal/proxy/downstream ./internal/proxy/upstream
	$(MAKE) --no-print-directory test-pki STEP=1
	LONG_TESTS=1 go test -count=1 -timeout $(TIMEOUT) -v -run 'ACanaryGetsItsShare|ARelayThatStartsIsNotReady|ABurstOnAColdService|AtALowRate' ./internal/relay ./internal/e2e/paths ./internal/e2e
	$(race) LONG_TESTS=full go test $(RACE) -count=1 -timeout 2h -v -parallel 4 -run 'RollingRestart|NoRestart|Hangs' ./internal/e2e

.PHONY: build
build: ## build the two binaries into bin/
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...

.PHONY: test
test: ## all tests, and those of sims/bench; 5 to 9 minutes on two cores
	@# Many packages wait for real clocks: twice as many as usual run at a time.
	go test -timeout $(TIMEOUT) -p $$((2 * $$(getconf _NPROCESSORS_ONLN))) \
		$(if $(RACED),$$(go list $(packages) | grep -v -E '/internal/e2e|/ringway/sims/' | grep -E '$(unraced)|$(changed)'),$(longest) $$(go list $(packages) | grep -v /internal/e2e))
	@# Two fleets of processes at a time would starve each other. What test-long has with more requests
	@# is left out with RACED.
	go test -timeout $(TIMEOUT) -p 1 $(if $(RACED),-skip 'Flood|Burst|Capacity|BusyFleet|RollingRestart|NoRestart|Hangs') ./internal/e2e ./internal/e2e/hostile
	go test -timeout $(TIMEOUT) -p 1 $$(go list ./internal/e2e/... | grep -v -E '/e2e(/hostile)?$$')
	@# The measurements beside other systems are a separate module: their dependencies must
	@# not become ours.
	if [[ -f sims/bench/go.mod ]]; then cd sims/bench && GOWORK=off go vet ./... && GOWORK=off go test ./...; fi

.PHONY: test-sims
test-sims: ## the results of simulations, which make test has as well: .ci/run computes them while other tests wait
	go test -timeout $(TIMEOUT) $$(go list ./sims/... | grep -E '$(unraced)')

.PHONY: test-adapters
test-adapters: ## the modules in adapters/, with the race detector; tests of allocations and memory without
	@# Beside each other: their tests wait for gossip.
	tests=(); for dir in $(adapters); do \
		(cd $$dir && export GOWORK=off && go vet ./... && $(race) go test $(RACE) -timeout $(TIMEOUT) ./...) & tests+=($$!); \
	done; \
	failed=; for test in "$${tests[@]}"; do wait "$$test" || failed=yes; done; [[ -z $$failed ]]
	@# The race detector allocates and slows attackers down, so these tests run without it.
	cd adapters/grpc && GOWORK=off go test -timeout $(TIMEOUT) -run Allocates .
	cd adapters/xds && GOWORK=off go test -timeout $(TIMEOUT) -run 'Hostile|Costs|Window' .

.PHONY: test-race
test-race: ## the tests under the race detector, without fleets, processes, simulations and packages without goroutines
	@# All is compiled first, so that compilers take no processor from tests.
	raced=$$(go list $(packages) | grep -v -E '$(unraced)'); \
	export $(race) $(lazy); \
	go list $(RACE) -export -deps -test $$raced >/dev/null; \
	go test $(RACE) -timeout $(TIMEOUT) $(filter-out ./internal/relay ./selection/router,$(longest)) $$raced

# .ci/run does this while lint computes: all of it waits for the network.
.PHONY: downloads download-modules download-programs
downloads: download-modules download-programs ## what other targets would download: modules, programs, a Debian system

# go list downloads the modules whose packages are built, and no others.
download-modules:
	go list -deps -test $(packages) >/dev/null
	for dir in $(adapters) sims/bench deploy/helm/render internal/e2e/browser internal/e2e/conformance; do \
		(cd $$dir && GOWORK=off go list -deps -test ./... >/dev/null); \
	done
	GOWORK=off go list -modfile=.ci/release.mod -deps tool >/dev/null

# .ci/run does this while tests wait for clocks: what the modules outside of the workspace
# import, and the packager, is compiled into Go's cache.
.PHONY: compile
compile: ## compile for later targets what is outside of the workspace
	for dir in sims/bench internal/e2e/conformance deploy/helm/render internal/e2e/browser; do \
		(cd $$dir && GOWORK=off $(lazy) go list -export -deps -test ./... >/dev/null); \
	done
	for dir in $(adapters); do \
		(cd $$dir && export GOWORK=off && $(lazy) go list -export -deps -test ./... >/dev/null && $(race) $(lazy) go list $(RACE) -export -deps -test ./... >/dev/null); \
	done
	GOWORK=off $(lazy) go list -modfile=.ci/release.mod -export -deps tool >/dev/null

download-programs: bin/debian.tar
	@$(call need,promtool prometheus) && $(call need,systemd-analyze systemd)
	@$(call need,chromium)
	@$(call need,python3) && $(call need,spin)
	@$(call need,redis-server redis-server) && $(call need,pg_ctlcluster postgresql)
	@$(call need,ip iproute2) && $(call need,nft nftables) && $(call need,nsenter util-linux)

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, go mod tidy: checks only, changes nothing
	@unformatted=$$(gofmt -l .); \
	if [[ -n $$unformatted ]]; then \
		printf 'not formatted, run `make fmt`:\n%s\n' "$$unformatted" >&2; exit 1; \
	fi
	$(lazy) go vet $(packages)
	$(staticcheck) ./...
	cd sims && $(staticcheck) ./...
	go mod tidy -diff
	cd sims && go mod tidy -diff
	cd sims/bench && $(staticcheck) ./... && GOWORK=off go mod tidy -diff
	for dir in $(adapters); do (cd $$dir && $(staticcheck) ./... && GOWORK=off go mod tidy -diff); done
	@# The exported API is that of docs/reference/api, and changes as the changelog says.
	go test -run 'API|Fresh' ./internal/docgen

.PHONY: fmt
fmt: ## format all Go files
	gofmt -w .

.PHONY: generate
generate: ## regenerate the generated files, such as docs/reference/flags.md
	go generate $(packages)

.PHONY: wire-fixtures
wire-fixtures: ## add the bytes that release RELEASE writes, such as RELEASE=0.2.0, to testdata/wire; replaces nothing
	@[[ "$(RELEASE)" =~ ^[0-9]+\.[0-9]+\.[0-9]+$$ ]] || { echo 'set RELEASE to the version of the next release, such as RELEASE=0.2.0' >&2; exit 1; }
	WIRE_FIXTURES='$(RELEASE)' go test -count=1 -run OfReleases ./membership ./membership/internal/trust ./advertise ./internal/sharedkey ./internal/proxy/ingress ./internal/relay/check ./internal/api

.PHONY: house
house: ## packages, imports that lead upwards, long files, exported names, lines of code, comments and tests, words of docs
	@go run ./internal/docgen/house

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (60s, or 1000000x), one after the other
	@# Minimising an input is bounded: it took the whole minute of some targets.
	@go list $(packages) | while read -r package; do \
		list=$$(go test -list '^Fuzz' "$$package"); \
		for target in $$(grep '^Fuzz' <<<"$$list" || true); do \
			echo "== $$package $$target ($(FUZZTIME))"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x "$$package" </dev/null; \
		done; \
	done

.PHONY: bench
bench: ## benchmarks of ring, affinity, advertise and selection, then the comparison with other systems
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./ring/... ./affinity/... ./advertise/... ./selection/...
	if [[ -f sims/bench/go.mod ]]; then cd sims/bench && GOWORK=off go run ./compare; fi

.PHONY: bench-affinity
bench-affinity: ## who connects to whom, beside what others do; fails when a promise does not hold
	go run ./sims run affinity churn zones --set affinity.fleets=50x1000x3,300x10000x3 --set churn.fleets=50x1000x3,300x10000x3 --set zones.skews=1,1.5,3 --set churn.slacks=0,2 --set churn.rollout-fleets=50x1000x3 --set churn.split-fleets=50x1000x3 --update docs/concepts/affinity.md

.PHONY: sims
sims: ## every simulation and its promises, one page: bin/sims.html; some minutes
	@mkdir -p bin
	go run ./sims report --out bin/sims.html

.PHONY: sims-quick
sims-quick: ## a fraction of every simulation; fails when a promise does not hold
	@mkdir -p bin
	go run ./sims report --quick --out bin/sims.html

# Members of a fleet: 100 take a quarter of an hour.
PUBLISHED ?= 100

.PHONY: bench-published
bench-published: ## the tests of Rapid and Lifeguard in virtual time, memberlist's default configuration first: docs/reference/published-tests.md
	PUBLISHED_SIZE=$(PUBLISHED) go test -count=1 -timeout 2h -v -run PublishedTests ./membership

.PHONY: bench-relay
bench-relay: ## CPU of the relay per request and per MiB of TCP beside HAProxy and nginx, cost of log and tap, also as bin/bench-relay.json (needs haproxy, nginx, wrk and h2load)
	@$(bench_programs)
	@mkdir -p bin
	cd sims/bench && GOWORK=off go run ./dataplane -json $(CURDIR)/bin/bench-relay.json
	go test -run '^$$' -bench Admission -benchmem ./internal/proxy/ingress

.PHONY: bench-regression
bench-regression: ## the relay of commit BASE beside this one: fails where a request costs a tenth more CPU (needs haproxy, nginx, wrk and h2load)
	@[[ -n "$(BASE)" ]] || { echo 'give the commit of an older release, as in: make bench-regression BASE=v0.1.0' >&2; exit 1; }
	@$(bench_programs)
	base=$$(mktemp -d); trap 'git worktree remove --force "$$base"' EXIT; git worktree add --quiet --detach "$$base" "$(BASE)"; \
	cd sims/bench && GOWORK=off go run ./dataplane -base "$$base"

.PHONY: bench-foreign
bench-foreign: ## answers that another client reads, when services send bytes behind theirs: HAProxy, nginx and the four ways through relays (needs haproxy and nginx)
	@$(call need,haproxy haproxy) && $(call need,nginx nginx-light)
	cd sims/bench && GOWORK=off go run ./dataplane -foreign

.PHONY: bench-grpc
bench-grpc: ## clients of gRPC under four balancing policies, while one server is slow and one fails; 80 s
	cd adapters/grpc && GOWORK=off go run ./bench

# Static, so that images need no emulation: bin/image/ARCH is what deploy/Dockerfile copies.
.PHONY: image-binaries
image-binaries:
	CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build -trimpath -ldflags '-s -w -X github.com/ringway/ringway/internal/process.version=$(VERSION)' \
		-o bin/image/$(ARCH)/ ./cmd/relay ./cmd/worker ./deploy/echo

.PHONY: image
image: image-binaries ## build the container images ringway-relay, -worker and -echo, each from scratch, for ARCH (another than this needs BuildKit)
	@$(call need,docker docker.io)
	@# A builder without BuildKit sets no TARGETARCH, and builds only for its own processor.
	for target in relay worker echo; do \
		docker build --quiet --platform linux/$(ARCH) --build-arg TARGETARCH=$(ARCH) --target "$$target" \
			--tag "$(IMAGE)-$$target:$(TAG)" --label org.opencontainers.image.version='$(VERSION)' \
			--file deploy/Dockerfile bin/image; \
	done

.PHONY: images
images: ## the images for amd64 and arm64 by deploy/bake.json, as OCI archives in bin/, or pushed with BAKE=--push (needs docker buildx)
	@docker buildx version >/dev/null || { echo "missing: docker buildx, with a builder that has the driver docker-container" >&2; exit 1; }
	for arch in amd64 arm64; do $(MAKE) --no-print-directory image-binaries ARCH=$$arch; done
	IMAGE='$(IMAGE)' TAG='$(TAG)' VERSION='$(VERSION)' docker buildx bake --file deploy/bake.json $(BAKE)

.PHONY: up
up: image ## the fleet of deploy/compose.yaml: 3 relays, a gate, 9 workers; `make down` ends it
	deploy/secrets.sh bin/image/$(ARCH)/relay deploy/.secrets
	$(compose) up -d
	@echo "try: curl -H 'Ringway-Service: echo' http://127.0.0.1:7410/"

.PHONY: down
down: ## end the fleet that `make up` started
	$(compose) down --volumes

.PHONY: test-containers
test-containers: ## the compose fleet survives the loss of each of its parts (needs docker)
	@$(call need,docker docker.io)
	CONTAINER_TESTS=1 go test -count=1 -timeout 8m -v ./deploy/containers

.PHONY: test-netns
test-netns: ## a fleet under black holes and partitions, a network namespace for each member (Linux; root or user namespaces)
	@$(call need,ip iproute2) && $(call need,nft nftables) && $(call need,nsenter util-linux)
	NETNS_TESTS=1 go test -count=1 -timeout $(if $(LONG_TESTS),20m,4m) -v ./internal/e2e/netns

# step and step-ca take some minutes to compile.
STEP ?=

.PHONY: test-pki
test-pki: ## the commands of docs/how-to/pki.md issue the certificates of a fleet (needs openssl; STEP=1 builds step and step-ca)
	@$(call need,openssl)
	$(if $(STEP),CGO_ENABLED=0 GOBIN='$(CURDIR)/bin/pki' go install github.com/smallstep/cli/cmd/step@v0.21.0)
	$(if $(STEP),CGO_ENABLED=0 GOBIN='$(CURDIR)/bin/pki' go install github.com/smallstep/certificates/cmd/step-ca@v0.30.2)
	PKI_TESTS=$(if $(STEP),'$(CURDIR)/bin/pki',openssl) go test -count=1 -timeout 5m -v -run RecipesOfThePage ./internal/e2e

.PHONY: test-large
test-large: ## attached workers, a hundredth of which is replaced each minute: processes as LARGE says, 5 GB and 10 minutes, and 300 relays with 50,000 workers in virtual time
	LARGE_TESTS=$(LARGE) go test -count=1 -timeout 1h -v ./internal/e2e/large
	LARGE_TESTS=1 go test -count=1 -timeout 10m -v -run FiftyThousand ./internal/presence

.PHONY: test-skew
test-skew: ## a fleet of the release before this commit and of this commit, upgraded and reverted under load; about a minute
	go test -count=1 -timeout 5m -v -run TwoReleases ./internal/e2e

.PHONY: test-model
test-model: ## all states of the protocol of sessions, by a model in Promela, and its planted faults; half a minute (needs spin and a C compiler)
	@$(call need,spin)
	internal/session/model/check.sh

# Which faults: for example `make test-mutation SAMPLE=0 MUTATED=affinity`, all of one package.
SAMPLE  ?= 25
SEED    ?= 1
MUTATED ?=

.PHONY: test-mutation
test-mutation: ## plants faults in the packages that decide, SAMPLE in each by SEED, and runs their tests: an hour or more, not in CI
	go run ./internal/mutants -sample $(SAMPLE) -seed $(SEED) $(MUTATED)

.PHONY: test-tcp
test-tcp: ## Redis and PostgreSQL behind TCP sessions of relays, while workers come and go (needs both servers)
	@$(call need,redis-server redis-server) && $(call need,pg_ctlcluster postgresql)
	TCP_TESTS=1 go test -count=1 -timeout 4m -v ./internal/e2e/databases

.PHONY: test-deploy
test-deploy: ## alert rules, metrics and systemd units, judged by their own tools (promtool, systemd-analyze)
	@$(call need,promtool prometheus) && $(call need,systemd-analyze systemd)
	promtool check rules deploy/prometheus/alerts.yaml
	promtool test rules deploy/prometheus/alerts_test.yaml
	promtool check config --syntax-only deploy/prometheus/prometheus.yml # the token is made by make up
	DEPLOY_TOOLS=1 go test -count=1 -run Tool -v ./deploy

.PHONY: test-helm
test-helm: ## the Helm chart, judged by Helm's engine, schema validation and lint; half a minute
	cd deploy/helm/render && export GOWORK=off && go mod tidy -diff && go vet ./... && go test -count=1 -timeout 4m ./...

.PHONY: release-snapshot
release-snapshot: ## the files of a release in dist/: archives, deb, rpm, Helm chart, SBOMs, checksums; uploads nothing
	go run ./deploy/release --version '$(VERSION)' --platforms '$(PLATFORMS)' dist

# A Debian system without Go, with the package managers of both formats. Made anew only after `make clean`.
bin/debian.tar:
	@$(call need,mmdebstrap)
	@mkdir -p bin
	mmdebstrap --quiet --variant=minbase --include=systemd,procps,curl,rpm bookworm $@

.PHONY: test-release
test-release: bin/debian.tar ## the deb and the rpm of this commit, installed in containers without Go, carry requests, and ten runbooks work there (needs docker)
	@$(call need,docker docker.io)
	$(MAKE) --no-print-directory release-snapshot PLATFORMS=linux/$(ARCH)
	RELEASE_TESTS=1 go test -count=1 -timeout 8m -run Installed -v ./deploy/release

.PHONY: test-browser
test-browser: ## the status page in a real browser (needs chromium); pictures in BROWSER_ARTEFACTS
	@$(call need,chromium)
	cd internal/e2e/browser && export GOWORK=off && go mod tidy -diff && go vet ./... && go test -count=1 -timeout 8m ./...

.PHONY: test-conformance
test-conformance: ## HTTP/2 and gRPC, judged by h2spec and by the interoperability tests of gRPC; a minute
	cd internal/e2e/conformance && export GOWORK=off && go mod tidy -diff && go vet ./... && go test -count=1 -timeout 8m ./...

.PHONY: screenshots
screenshots: ## the pictures of docs/images, of fleets that run (needs chromium and script)
	@$(call need,chromium) && $(call need,script bsdutils)
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/relay
	cd internal/e2e/browser && GOWORK=off go run ./screenshots $(CURDIR)/docs/images $(CURDIR)/bin

.PHONY: clean
clean: ## remove what build leaves behind
	rm -rf bin dist
