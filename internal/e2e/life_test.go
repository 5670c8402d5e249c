//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// The services of the fleet: echo on every worker, billing on the first four, rpc
// (over clear-text HTTP/2) on the others.
const (
	echo, billing, rpc = "echo", "billing", "rpc"
	billingWorkers     = 4
)

func servicesOf(n int) []string {
	if n <= billingWorkers {
		return []string{echo, billing}
	}
	return []string{echo, rpc + ";protocol=h2c"}
}

// TestAFleetKeepsItsPromisesFromStartToEnd takes one fleet through its life. The
// parts are promises of their own, in an order in which none blurs the next.
func TestAFleetKeepsItsPromisesFromStartToEnd(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 7, Services: servicesOf,
		// A drain may take as long as it likes, so that a process that ends
		// sooner did not merely run out of time.
		RelayArgs: append([]string{"--drain-timeout", "10m"}, patient...)})

	if !t.Run("every relay becomes ready and sees every member", f.becomesReady) {
		return
	}
	t.Run("every relay answers for every service", f.answersForEveryService)
	t.Run("every relay computes the same plan, and every worker has three relays", f.planIsOne)
	t.Run("while nothing changes", func(t *testing.T) {
		for name, promise := range map[string]func(*testing.T){
			"a WebSocket passes":                                         f.webSocketPasses(f.relays[0], echo),
			"gRPC passes, unary and streaming":                           f.grpcPasses(f.relays[1], rpc),
			"server-sent events arrive as they are sent":                 f.eventsPass(f.relays[2], echo),
			"chunked bodies and trailers pass":                           f.trailersPass(f.relays[0], echo),
			"chunked bodies and trailers pass to an HTTP/2 worker":       f.trailersPass(f.relays[1], rpc),
			"large bodies pass both ways":                                f.largeBodiesPass(f.relays[2], echo),
			"large bodies pass both ways to an HTTP/2 worker":            f.largeBodiesPass(f.relays[0], rpc),
			"a WebSocket to an HTTP/2 worker is refused with a reason":   f.webSocketIsRefused(f.relays[1], rpc),
			"a request that names no known service is refused":           f.unknownServiceIsRefused,
			"a worker of another cluster is refused and told why":        f.foreignWorkerIsRefused,
			"garbage on every listener is counted and changes nothing":   f.garbageChangesNothing,
			"a client that goes away in the middle costs no other":       f.abandonedRequestsCostNoOther,
			"the pages of the admin API agree on all relays":             f.adminAgrees,
			"a port that is taken is an error that names it":             f.takenPortIsAnError,
			"a client cannot set the headers that belong to the relays":  f.reservedHeadersAreDropped,
			"many requests at once for one service are carried together": f.carriesManyAtOnce,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				promise(t)
			})
		}
	})
	t.Run("a worker that joins gets traffic", f.joiningWorkerGetsTraffic("w8", echo))
	t.Run("requests spread over all workers", f.spreads)
	t.Run("a worker that stops loses no request", f.stoppingWorkerLosesNothing)
	t.Run("a worker that is killed loses no request that may be repeated", f.killedWorkerLosesNothing("w2", echo))
	t.Run("an HTTP/2 worker that is killed loses no request that may be repeated", f.killedWorkerLosesNothing("w7", rpc))
	t.Run("a worker that comes back under its name gets traffic", f.joiningWorkerGetsTraffic("w2", echo))
	t.Run("a service without workers is refused at once", f.serviceWithoutWorkersIsRefused)
	t.Run("a relay that stops finishes what it carries", f.stoppingRelayFinishes)
	t.Run("a second signal ends a drain at once", f.secondSignalEndsDrain)
}

func (f *fleet) becomesReady(t *testing.T) {
	var want []string
	for _, r := range f.relays {
		want = append(want, r.ID)
	}
	for _, w := range f.workers {
		want = append(want, w.ID)
	}
	slices.Sort(want)
	for _, r := range f.relays {
		procs.Await(t, r.ID+" is ready", func() bool { _, status := f.ready(r.Admin); return status == 200 })
		procs.Await(t, r.ID+" sees all members", func() bool { return slices.Equal(f.IDs(r.Member), want) })
		for service, n := range map[string]int{echo: len(f.workers), billing: billingWorkers, rpc: len(f.workers) - billingWorkers} {
			procs.Await(t, fmt.Sprintf("%s sees %d endpoints of %s", r.ID, n, service), func() bool {
				var v serviceView
				return f.api(r.Admin, "/api/v1/services/"+service, &v) == 200 && v.Endpoints == n
			})
		}
		// Before the first request it is connected to all relays that it would ask.
		procs.Await(t, r.ID+" is connected to its whole range", func() bool {
			var v serviceView
			f.api(r.Admin, "/api/v1/services/"+echo, &v)
			for _, p := range v.Peers {
				if !p.Connected {
					return false
				}
			}
			return v.Role == "affine" && v.Range == len(f.workers) && len(v.Peers) == v.Range
		})
	}
	for _, w := range f.workers {
		procs.Await(t, w.ID+" is ready", func() bool { _, status := f.ready(w.Admin); return status == 200 })
	}
}

func (f *fleet) answersForEveryService(t *testing.T) {
	for _, r := range f.relays {
		for _, service := range []string{echo, billing, rpc} {
			a := f.call(r, service)
			if a.status != 200 || a.header.Get("Worker") != a.body || a.header.Get(endpointHeader) != a.body ||
				a.header.Get(relayHeader) != r.ID || a.header.Get(attemptsHeader) != "1" {
				t.Errorf("%s through %s: %v", service, r.ID, a)
			}
		}
		a := f.client.send(request{addr: r.Ingress, path: "/", service: ""})
		if a.status != 400 {
			t.Errorf("no service through %s: %v", r.ID, a)
		}
	}
}

func (f *fleet) spreads(t *testing.T) {
	const clients, each = 7, 100
	var mu sync.Mutex
	got := make(map[string]int)
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			for n := range each {
				a := f.client.send(request{addr: f.relays[(c+n)%len(f.relays)].Ingress, path: loadPath, service: echo})
				if a.status != 200 {
					t.Errorf("%v", a)
				}
				mu.Lock()
				got[a.body]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for _, w := range f.workers {
		// Not its fair share: a worker that has just joined is given less at first,
		// and so is one that seems slow on a machine that is busy.
		if got[w.ID] == 0 {
			t.Errorf("%s got none of %d requests", w.ID, clients*each)
		}
	}
	t.Logf("%v", got)
}

func (f *fleet) planIsOne(t *testing.T) {
	for service, workers := range map[string]int{echo: 7, billing: 4, rpc: 3} {
		procs.Await(t, "one plan of "+service, func() bool {
			var plans []plan
			for _, r := range f.relays {
				var p plan
				if f.api(r.Admin, "/api/v1/services/"+service+"/plan", &p) != 200 {
					return false
				}
				plans = append(plans, p)
			}
			return len(plans[0].RelaysPerWorker) == workers && reflect.DeepEqual(plans[0], plans[1]) && reflect.DeepEqual(plans[1], plans[2])
		})
		var p plan
		f.api(f.relays[0].Admin, "/api/v1/services/"+service+"/plan", &p)
		least := min(3, len(f.relays))
		counted := make(map[string]int)
		for _, r := range p.Relays {
			sum := 0.0
			for _, w := range r.Workers {
				counted[w.Worker]++
				sum += w.Weight
			}
			if sum < 0.999 || sum > 1.001 {
				t.Errorf("the weights of %s for %s add up to %v", r.Relay, service, sum)
			}
		}
		for w, n := range p.RelaysPerWorker {
			if n < least || counted[w] != n {
				t.Errorf("%s: %s has %d relays, listed with %d, wants at least %d", service, w, n, counted[w], least)
			}
		}
	}
}

func (f *fleet) adminAgrees(t *testing.T) {
	type checksum struct{ Members, Services string }
	procs.Await(t, "equal checksums on all relays", func() bool {
		var first checksum
		for i, r := range f.relays {
			var c checksum
			if f.api(r.Admin, "/api/v1/checksum", &c) != 200 || c.Members == "" || c.Services == "" {
				return false
			}
			if i == 0 {
				first = c
			}
			if c != first {
				return false
			}
		}
		return true
	})
	for _, r := range f.relays {
		if a := f.client.get(r.Admin, "/healthz"); a.status != 200 {
			t.Errorf("/healthz of %s: %v", r.ID, a)
		}
	}
}

func (f *fleet) unknownServiceIsRefused(t *testing.T) {
	for i := range 200 {
		service := fmt.Sprintf("absent-%d", i)
		a := f.call(f.relays[i%len(f.relays)], service)
		if got := a.failure(); a.status != 404 || got.Code != "unknown_service" || got.Service != service || a.header.Get("Content-Type") != "application/json" {
			t.Fatalf("%v", a)
		}
	}
	for _, r := range f.relays {
		if a := f.call(r, ""); a.status != 400 || a.failure().Code != "bad_request" || !strings.Contains(a.failure().Error, serviceHeader) {
			t.Errorf("%v", a)
		}
	}
	// The names of strangers become no label.
	if n := strings.Count(f.client.get(f.relays[0].Admin, "/metrics").body, "absent-"); n > 0 {
		t.Errorf("/metrics has %d series named by clients", n)
	}
}

func (f *fleet) foreignWorkerIsRefused(t *testing.T) {
	backend := f.workers[0]
	w := &worker{backendAddr: backend.backendAddr}
	if f.Security != nil {
		if err := f.Security.Issue(claims{Role: "worker", Node: "stranger", Cluster: "other"}); err != nil {
			t.Fatal(err)
		}
	}
	f.startAgent(w, "stranger", []string{echo}, "--cluster", "other")
	defer w.Kill()

	ours := fmt.Sprintf("cluster mismatch: ours %q, theirs %q (r", "other", cluster)
	procs.Await(t, "the stranger's log has the reason", func() bool { return w.Logged("member refused", ours) })
	theirs := fmt.Sprintf("cluster mismatch: ours %q, theirs %q (stranger", cluster, "other")
	refused := func(r *relay) bool {
		return r.Logged("member refused", theirs) &&
			f.metric(t, r, `ringway_membership_refusals_total{direction="inbound",reason="cluster"}`) > 0
	}
	procs.Await(t, "a relay logs and counts the refusal", func() bool { return slices.ContainsFunc(f.relays, refused) })
	procs.Await(t, "the stranger is unready with the reason", func() bool {
		r, status := f.ready(w.Admin)
		return status == 503 && slices.ContainsFunc(r.Reasons, func(reason string) bool { return strings.Contains(reason, ours) })
	})
	for _, r := range f.relays {
		if ids := f.IDs(r.Member); slices.Contains(ids, "stranger") {
			t.Errorf("%s sees %v", r.ID, ids)
		}
	}
	if a := f.client.get(w.Admin, "/healthz"); a.status != 200 {
		t.Errorf("the stranger does not live: %v", a)
	}
}

func (f *fleet) garbageChangesNothing(t *testing.T) {
	r := f.relays[0]
	const malformed = `ringway_relay_connections_dropped_total{listener=%q,reason="malformed"}`
	series := map[string]string{
		"gossip packets": `ringway_membership_packets_dropped_total{reason="label"}`,
		"gossip streams": `ringway_membership_refusals_total{direction="inbound",reason="malformed"}`,
		"ingress":        fmt.Sprintf(malformed, "ingress"),
		"peer":           fmt.Sprintf(malformed, "peer"),
		"admin":          fmt.Sprintf(malformed, "admin"),
	}
	before := make(map[string]float64)
	for name, s := range series {
		before[name] = f.metric(t, r, s)
	}
	const rounds = 20
	random := rand.New(rand.NewPCG(1, 2))
	for i := range rounds {
		garbage := make([]byte, 1+random.IntN(4000))
		for j := range garbage {
			garbage[j] = byte(random.UintN(256))
		}
		if i%2 == 0 { // a line, so that an HTTP server has something to judge
			garbage = append([]byte("\x16\x03\x01 ?? \r\n\r\n"), garbage...)
		}
		throw(t, "udp", r.Gossip, garbage[:min(len(garbage), 1400)])
		// A packet of our cluster whose inside is garbage reaches memberlist.
		label := cluster + "/" + environment
		throw(t, "udp", r.Gossip, slices.Concat([]byte{244, byte(len(label))}, []byte(label), garbage[:min(len(garbage), 1000)]))
		for _, addr := range []string{r.Gossip, r.Ingress, r.Peer, r.Admin} {
			throw(t, "tcp", addr, garbage)
		}
	}
	for name, s := range series {
		procs.Await(t, "garbage on "+name+" is counted", func() bool { return f.metric(t, r, s) >= before[name]+rounds/4 })
	}
	if got, status := f.ready(r.Admin); status != 200 {
		t.Errorf("after the garbage: %d %v", status, got)
	}
	if a := f.call(r, echo); a.status != 200 {
		t.Errorf("after the garbage: %v", a)
	}
}

// throw sends bytes and closes. What the other side makes of them, a reset
// included, is no error here.
func throw(t *testing.T, network, addr string, b []byte) {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = conn.Write(b)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
		_, _ = conn.Read(make([]byte, 512)) // let it be judged before the connection goes
	}
	_ = conn.Close()
}

func (f *fleet) abandonedRequestsCostNoOther(t *testing.T) {
	r := f.relays[1]
	client := newClient(t)
	const requests = 10
	var group sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for n := range requests {
		req, err := request{addr: r.Ingress, path: "/hold?key=never", service: echo, id: fmt.Sprintf("abandoned-%d", n)}.http(ctx)
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			if resp, err := client.http.Do(req); err == nil {
				_ = resp.Body.Close()
				t.Errorf("answered %d before it was released", resp.StatusCode)
			}
		})
	}
	procs.Await(t, "all requests have arrived", func() bool {
		executed := f.executed(t)
		for n := range requests {
			if executed[fmt.Sprintf("GET abandoned-%d", n)] == 0 {
				return false
			}
		}
		return true
	})
	cancelled := `ringway_relay_requests_total{outcome="cancelled",service="echo"}`
	before := f.metric(t, r, cancelled)
	leave()
	group.Wait()
	procs.Await(t, "the relay has let them go", func() bool { return f.metric(t, r, cancelled) >= before+requests })
	var v serviceView
	if f.api(r.Admin, "/api/v1/services/"+echo, &v); len(v.Peers) != len(f.workers) {
		t.Errorf("%+v", v)
	}
	if a := f.call(r, echo); a.status != 200 {
		t.Errorf("%v", a)
	}
}

func (f *fleet) takenPortIsAnError(t *testing.T) {
	taken := f.relays[0].Admin
	p := start(t, processConfig{Name: "second", Binary: "relay", Args: []string{
		"--cluster", cluster, "--environment", environment, "--id", "second", "--log-format", "json",
		"--gossip-addr", freeAddr(t), "--ingress-addr", freeAddr(t), "--peer-addr", freeAddr(t), "--admin-addr", taken}})
	if code := p.Exit(t); code != 1 || !strings.Contains(p.Output(), "listen for admin on "+taken) {
		t.Errorf("exit code %d, output:\n%s", code, p.Output())
	}
}

func (f *fleet) reservedHeadersAreDropped(t *testing.T) {
	for _, service := range []string{echo, rpc} {
		req, err := request{addr: f.relays[0].Ingress, path: "/", service: service}.http(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Ringway-Hop", "Ringway-Load", "Ringway-Relay", "Ringway-Anything"} {
			req.Header.Set(name, "forged")
		}
		req.Header.Set("X-Forwarded-For", "192.0.2.1")
		resp, err := f.client.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("Seen-Reserved"); resp.StatusCode != 200 || got != "" {
			t.Errorf("%s: %d, the worker saw %q", service, resp.StatusCode, got)
		}
		if got := resp.Header.Get("Seen-Forwarded-For"); got != "127.0.0.1" {
			t.Errorf("%s: X-Forwarded-For %q", service, got)
		}
	}
}

func (f *fleet) carriesManyAtOnce(t *testing.T) {
	r := f.relays[2]
	client := newClient(t)
	const requests = 100
	var group sync.WaitGroup
	for n := range requests {
		group.Go(func() {
			if a := client.send(request{addr: r.Ingress, path: "/hold?key=many", service: rpc, id: fmt.Sprintf("many-%d", n)}); a.status != 200 {
				t.Errorf("%v", a)
			}
		})
	}
	procs.Await(t, "all requests are at the workers together", func() bool {
		n := 0
		for id := range f.executed(t) {
			if strings.HasPrefix(id, "GET many-") {
				n++
			}
		}
		return n == requests
	})
	f.release(t, "many")
	group.Wait()
}

func (f *fleet) joiningWorkerGetsTraffic(id, service string) func(*testing.T) {
	return func(t *testing.T) {
		f.startWorker(id, service)
		procs.Await(t, "every relay sees the new worker", func() bool { return f.sees(id, true) })
		for _, r := range f.relays {
			procs.Await(t, id+" answers through "+r.ID, func() bool {
				a := f.call(r, service)
				if a.status != 200 {
					t.Errorf("%v", a)
				}
				return a.body == id
			})
		}
	}
}

// roundRobin sends the requests of a load through one running relay after the
// other.
func (f *fleet) roundRobin(n int) *relay {
	running := f.running()
	return running[n%len(running)]
}

func (f *fleet) stoppingWorkerLosesNothing(t *testing.T) {
	w := f.worker("w1")
	load := f.startLoad(t, loadConfig{Name: "stopping", Service: echo, Relay: f.roundRobin})
	load.more(t, 200)
	before := make(map[string]float64)
	const left = `ringway_membership_events_total{event="left"}`
	for _, r := range f.relays {
		before[r.ID] = f.metric(t, r, left)
	}

	w.Signal(t, syscall.SIGTERM)
	if code := w.Exit(t); code != 0 {
		t.Errorf("the worker exited with %d", code)
	}
	w.stopBackend(t)
	procs.Await(t, "the worker is gone", func() bool { return f.sees(w.ID, false) })
	load.more(t, 200)
	results := load.stop()

	noneFailed(t, results)
	f.judge(t, results)
	for _, r := range f.relays {
		procs.Await(t, r.ID+" counts that it left", func() bool { return f.metric(t, r, left) > before[r.ID] })
		if memberFailed(r, w.ID) {
			t.Errorf("%s took the end of %s for a failure", r.ID, w.ID)
		}
	}
	if !w.Logged("draining", "") || !w.Logged("leaving the cluster", "") || !w.Logged("stopped", "") {
		t.Error("the worker's log does not tell that it drained, left and stopped")
	}
}

// memberFailed reports whether a relay logged the failure of a member, alone or with others.
func memberFailed(r *relay, id string) bool {
	for line := range strings.Lines(r.Output()) {
		var e struct{ Message, Member, Subjects string }
		if json.Unmarshal([]byte(line), &e) == nil && strings.HasPrefix(e.Message, "member failed") &&
			(e.Member == id || slices.Contains(strings.Fields(e.Subjects), id)) {
			return true
		}
	}
	return false
}

func (f *fleet) serviceWithoutWorkersIsRefused(t *testing.T) {
	stopped, killed := f.worker("w3"), f.worker("w4")
	stopped.Signal(t, syscall.SIGTERM)
	killed.Kill()
	killed.backend.Kill()
	for _, r := range f.relays {
		procs.Await(t, r.ID+" says that there is no endpoint", func() bool {
			a := f.call(r, billing)
			got := a.failure()
			switch {
			case a.status == 200, a.status == 502 && got.Code == "upstream_failed":
				return false // not noticed yet
			case a.status == 503 && got.Code == "no_endpoint" && got.Service == billing:
				return true
			}
			t.Fatalf("%v", a)
			return false
		})
	}
	if code := stopped.Exit(t); code != 0 {
		t.Errorf("%s exited with %d", stopped.ID, code)
	}
	stopped.stopBackend(t)
	for _, r := range f.relays {
		if a := f.call(r, echo); a.status != 200 {
			t.Errorf("the other service: %v", a)
		}
		if got, status := f.ready(r.Admin); status != 200 {
			t.Errorf("%s: %d %v", r.ID, status, got)
		}
	}
}

// hold sends a request that stays in flight until it is released, and returns
// once it is there.
func (f *fleet) hold(t *testing.T, client *client, r *relay, key string) (ended <-chan answer) {
	t.Helper()
	done := make(chan answer, 1)
	go func() {
		done <- client.send(request{method: http.MethodPost, addr: r.Ingress, path: "/hold?key=" + key, service: echo, id: "hold-" + key})
	}()
	procs.Await(t, "the request is in flight", func() bool { return f.executed(t)["POST hold-"+key] == 1 })
	return done
}

func (f *fleet) stoppingRelayFinishes(t *testing.T) {
	r := f.relay("r3")
	// The load's clients do as a load balancer does: they use the relays that
	// report that they are ready.
	var usable atomic.Pointer[[]*relay]
	usable.Store(&f.relays)
	load := f.startLoad(t, loadConfig{Name: "relay", Service: echo, Retry: true, Relay: func(n int) *relay {
		relays := *usable.Load()
		return relays[n%len(relays)]
	}})
	load.more(t, 200)
	held := map[string]<-chan answer{
		"http1": f.hold(t, newClient(t), r, "http1"),
		"http2": f.hold(t, newHTTP2Client(t), r, "http2"),
	}

	r.Signal(t, syscall.SIGTERM)
	procs.Await(t, r.ID+" is not ready any more", func() bool {
		got, status := f.ready(r.Admin)
		return status == 503 && slices.Contains(got.Reasons, "stopping")
	})
	usable.Store(&[]*relay{f.relays[0], f.relays[1]})
	procs.Await(t, r.ID+" takes no more requests", func() bool {
		conn, err := net.Dial("tcp", r.Ingress)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if a := f.client.get(r.Admin, "/healthz"); a.status != 200 {
		t.Errorf("it drains, but does not live: %v", a)
	}
	load.more(t, 200)
	for key, ended := range held {
		f.release(t, key)
		if a := <-ended; a.status != 200 || a.header.Get(relayHeader) != r.ID {
			t.Errorf("the request in flight over %s: %v", key, a)
		}
	}
	if code := r.Exit(t); code != 0 {
		t.Errorf("the relay exited with %d", code)
	}
	procs.Await(t, "the relay is gone", func() bool { return f.sees(r.ID, false) })
	results := load.stop()
	noneFailed(t, results)
	f.judge(t, results)
	for _, other := range f.running() {
		if memberFailed(other, r.ID) {
			t.Errorf("%s took the end of %s for a failure", other.ID, r.ID)
		}
		procs.Await(t, "the plan has the relays that are left", func() bool {
			var p plan
			return f.api(other.Admin, "/api/v1/services/"+echo+"/plan", &p) == 200 && len(p.Relays) == len(f.running())
		})
	}
}

func (f *fleet) secondSignalEndsDrain(t *testing.T) {
	r := f.relay("r2")
	held := f.hold(t, newClient(t), r, "second")
	r.Signal(t, syscall.SIGTERM)
	procs.Await(t, r.ID+" drains", func() bool { return r.Logged("draining requests", "") })
	procs.Await(t, "a second signal ends it", func() bool { // one within a second of the first does not count
		r.Signal(t, syscall.SIGTERM)
		select {
		case <-r.Done:
			return true
		default:
			return false
		}
	})
	if code := r.Exit(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if a := <-held; a.err == nil {
		t.Errorf("the request in flight was answered: %v", a)
	}
	f.release(t, "second")
}
