//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// settingsFile is a file that a test writes again.
type settingsFile string

func newSettingsFile(t *testing.T, text string) settingsFile {
	t.Helper()
	f := settingsFile(filepath.Join(t.TempDir(), "settings.yaml"))
	f.write(t, text)
	return f
}

func (f settingsFile) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(string(f), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload has all relays read their settings again.
func (f *fleet) reload(t *testing.T) {
	t.Helper()
	for _, r := range f.relays {
		if done := ringway(t, "reload", "--admin-addr", r.Admin); done.Code != 0 {
			t.Fatalf("reload of %s: %v", r.ID, done)
		}
	}
}

// TestRoutesOfTheFileNameTheServiceAtEachRelayUntilAReload has worker w1 of the service echo and w2 of
// pages, which one relay serves and the other forwards to.
func TestRoutesOfTheFileNameTheServiceAtEachRelayUntilAReload(t *testing.T) {
	t.Parallel()
	const pages = "pages"
	file := newSettingsFile(t, `routes:
- {host: "*.shop.test", service: echo}
- {host: bücher.test, path_prefix: /pay, service: pages}
- {path_prefix: /api, headers: {X-Tenant: gold}, service: pages}
- {path_prefix: /api, service: echo}
`)
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, Plain: true, RelayArgs: append(servedBy("r1", 2, echo, pages), "--config", string(file)),
		Services: func(n int) []string { return [][]string{{echo}, {pages}}[n-1] }})
	f.roles(t, echo, 1)
	f.roles(t, pages, 1)
	services := map[string]string{"w1": echo, "w2": pages}
	expect := func(host, path, header, worker string) {
		t.Helper()
		for _, r := range f.relays {
			req, err := request{addr: r.Ingress, path: path}.http(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			args := []string{"route", "--url", "http://" + host + path, "--admin-addr", r.Admin}
			if name, value, ok := strings.Cut(header, ": "); ok {
				req.Header.Set(name, value)
				args = append(args, "--header", header)
			}
			resp, err := f.client.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			want, code := http.StatusOK, 0
			if worker == "" {
				want, code = http.StatusBadRequest, 2
			}
			if resp.StatusCode != want || resp.Header.Get(endpointHeader) != worker {
				t.Errorf("%s%s %s by %s: %s of %q, want %d of %q", host, path, header, r.ID, resp.Status, resp.Header.Get(endpointHeader), want, worker)
			}
			said := ringway(t, args...)
			if said.Code != code || worker != "" && !regexp.MustCompile(`(?m)^service +`+services[worker]+`$`).MatchString(said.Stdout) {
				t.Errorf("relay route for %s%s %s at %s: %v", host, path, header, r.ID, said)
			}
		}
	}
	expect("a.shop.test", "/", "", "w1")
	expect("A.shop.test:80", "/x", "", "w1")
	expect("a.b.shop.test", "/", "", "")
	expect("xn--bcher-kva.test", "/pay/1", "", "w2")
	expect("xn--bcher-kva.test", "/payments", "", "")
	expect("other.test", "/api/x", "", "w1")
	expect("other.test", "/api/x", "X-Tenant: gold", "w2")
	expect("other.test", "/api/x", "X-Tenant: silver", "w1")

	file.write(t, "routes: [{host: 'a.shop.test:80', service: pages}]\n")
	const reason = "leave the port out"
	if said := ringway(t, "reload", "--admin-addr", f.relays[0].Admin); said.Code == 0 || !strings.Contains(said.Stderr, reason) {
		t.Errorf("a route that matches nothing: %v", said)
	}
	if said := ringway(t, "config", "validate", string(file)); said.Code == 0 || !strings.Contains(said.Stdout+said.Stderr, reason) {
		t.Errorf("config validate: %v", said)
	}
	expect("a.shop.test", "/", "", "w1")
	file.write(t, "routes: [{host: a.shop.test, service: pages}]\n")
	f.reload(t)
	expect("a.shop.test", "/", "", "w2")
	expect("other.test", "/api/x", "", "")
}

// TestACanaryChangesByReloadAndItsDeathLosesNoRequest has w4 of version 2.0, and three of 1.0.
func TestACanaryChangesByReloadAndItsDeathLosesNoRequest(t *testing.T) {
	t.Parallel()
	const canary = "w4"
	file := newSettingsFile(t, "echo: {canary: '2.0:0%'}\n")
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 4, Plain: true, RelayArgs: []string{"--service-policy-file", string(file)},
		Services: func(n int) []string { return []string{fmt.Sprintf("%s;version=%d.0", echo, 1+n/4)} }})
	shows := func(canary string) {
		t.Helper()
		for _, r := range f.relays {
			procs.Await(t, r.ID+" has the canary "+canary, func() bool {
				return strings.Contains(ringway(t, "explain", echo, "--admin-addr", r.Admin).Stdout, canary)
			})
		}
	}
	// visit returns how many of n requests the canary got.
	visit := func(n int) (got int) {
		t.Helper()
		for i := range n {
			a := f.call(f.relays[i%2], echo)
			if a.status != http.StatusOK {
				t.Fatalf("request %d: %v", i, a)
			}
			if a.header.Get(endpointHeader) == canary {
				got++
			}
		}
		return got
	}
	f.awaitRange(t, 4)
	shows("canary 2.0:0% (")
	if n := visit(200); n > 0 {
		t.Errorf("%d of 200 requests went to a canary with 0 %%", n)
	}
	file.write(t, "echo: {canary: '2.0:30%'}\n")
	f.reload(t)
	shows("canary 2.0:30% (")
	if n := visit(400); n < 70 || n > 170 { // 120 ± 5 standard deviations
		t.Errorf("%d of 400 requests went to a canary with 30 %%", n)
	}
	inside := 0
	for i := range 60 {
		var sides [2]bool
		for j, r := range f.relays {
			req, err := request{addr: r.Ingress, path: "/", service: echo}.http(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Ringway-Key", fmt.Sprint("user ", i))
			resp, err := f.client.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			sides[j] = resp.Header.Get(endpointHeader) == canary
		}
		if sides[0] != sides[1] {
			t.Errorf("user %d is in the canary at one relay only", i)
		}
		if sides[0] {
			inside++
		}
	}
	if inside == 0 || inside == 60 {
		t.Errorf("%d of 60 keys are in the canary", inside)
	}
	f.worker(canary).backend.Kill()
	if n := visit(200); n > 0 {
		t.Errorf("%d requests were answered by a service that was killed", n)
	}
	over := 0.0
	for _, r := range f.relays {
		for name, value := range procs.Metrics(f.client.get(r.Admin, "/metrics").body) {
			if strings.HasPrefix(name, "ringway_relay_canary_requests_total") && strings.Contains(name, "failed_over") {
				over += value
			}
		}
	}
	if over == 0 {
		t.Error("no request is counted that failed over")
	}
}

// TestARequestThatMayRunMoreThanOnceIsRepeatedWhenItsServiceDies kills the service that executes a
// POST: of one service that states retry=always, and of one that does not.
func TestARequestThatMayRunMoreThanOnceIsRepeatedWhenItsServiceDies(t *testing.T) {
	t.Parallel()
	const plain = "plain"
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 3, Plain: true, RelayArgs: []string{"--service-policy", echo + "=retry=always"},
		Services: func(int) []string { return []string{echo, plain} }})
	f.awaitRange(t, 3)
	// holder awaits that a worker executes the request.
	holder := func(id string) (of *worker) {
		t.Helper()
		procs.Await(t, id+" is executed", func() bool {
			for _, w := range f.workers {
				if w.executed(t)["POST "+id] > 0 {
					of = w
				}
			}
			return of != nil
		})
		return of
	}
	send := func(service string) <-chan answer {
		done := make(chan answer, 1)
		go func() {
			done <- f.client.send(request{method: http.MethodPost, addr: f.relays[0].Ingress, path: "/hold?key=" + service, service: service, id: service, payload: strings.NewReader("a body")})
		}()
		return done
	}
	repeated := send(echo)
	first := holder(echo)
	first.backend.Kill()
	procs.Await(t, "the request is repeated", func() bool { return f.executed(t)["POST "+echo] == 2 })
	f.release(t, echo)
	if a := <-repeated; a.status != http.StatusOK || a.header.Get(endpointHeader) == first.ID || a.header.Get(attemptsHeader) != "2" {
		t.Errorf("with retry=always: %v", a)
	}
	once := send(plain)
	holder(plain).backend.Kill()
	if a := <-once; a.status != http.StatusBadGateway || f.executed(t)["POST "+plain] != 1 {
		t.Errorf("without: %v, executed %d times", a, f.executed(t)["POST "+plain])
	}
}

// TestACheckAsksAndExpectsWhatTheFileSays has a service that answers only one kind of check with 204,
// and whose answer to /large has a head that is too large for one of two relays.
func TestACheckAsksAndExpectsWhatTheFileSays(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/health" && r.Method == http.MethodHead && r.Host == "health.test" && r.Header.Get("X-Probe") == "deep":
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/large":
			w.Header().Set("X-Large", strings.Repeat("x", 5000))
		}
	}))
	t.Cleanup(service.Close)
	offered := func(check string) string {
		return fmt.Sprintf("services:\n- {name: echo, address: %q, check: {kind: http, path: /health, interval: 100ms, grace: 100ms, %s}}\n", service.Listener.Addr(), check)
	}
	const deep = "host: health.test, method: HEAD, headers: {X-Probe: deep}, expect: "
	file := newSettingsFile(t, offered(deep+`"200"`))
	f := startFleet(t, fleetConfig{Relays: 2, Plain: true, ArgsOf: func(id string) []string {
		return map[string][]string{"r1": {"--max-answer-head", "4096"}}[id]
	}})
	w := &worker{}
	f.startAgent(w, "w1", nil, "--services-file", string(file))
	f.workers = append(f.workers, w)
	status := func() int { return f.call(f.relays[0], echo).status }
	procs.Await(t, "the check fails", func() bool { return w.Logged("service is unhealthy", "204") })
	procs.Await(t, "the relay is ready and knows the worker", func() bool {
		_, ready := f.ready(f.relays[0].Admin)
		return ready == http.StatusOK && f.sees("w1", true)
	})
	if got := status(); got != http.StatusServiceUnavailable {
		t.Errorf("a service whose check answers another status is answered %d, want 503", got)
	}
	file.write(t, offered(deep+`"200-203, 204"`))
	procs.Await(t, "the service is offered", func() bool { return status() == http.StatusOK })
	large := func(r *relay) answer {
		return f.client.send(request{addr: r.Ingress, path: "/large", service: echo})
	}
	if a := large(f.relays[0]); a.status != http.StatusBadGateway || a.failure().Code != "upstream_failed" {
		t.Errorf("an answer with a head above the bound: %v", a)
	}
	procs.Await(t, "the other relay serves", func() bool { return f.call(f.relays[1], echo).status == http.StatusOK })
	if a := large(f.relays[1]); a.status != http.StatusOK {
		t.Errorf("with the default: %v", a)
	}
	file.write(t, offered(`expect: "204"`)) // GET, without the field
	procs.Await(t, "the service is not offered any more", func() bool { return status() != http.StatusOK })
}
