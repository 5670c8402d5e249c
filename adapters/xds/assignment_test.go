package xds

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
)

// offer is an endpoint of a worker of the service echo.
func offer(worker int, change ...func(*advertise.Endpoint)) *advertise.Endpoint {
	e := &advertise.Endpoint{
		Service: advertise.Service{Name: "echo", Address: fmt.Sprintf("10.%d.%d.1:80", worker/250, worker%250), Weight: 10, State: advertise.Ready},
		Worker:  &advertise.Worker{NodeID: fmt.Sprintf("w%d", worker)},
	}
	for _, c := range change {
		c(e)
	}
	return e
}

// endpointsOf lists the endpoints of a resource by worker, and checks what Envoy checks.
func endpointsOf(t testing.TB, load *endpoint.ClusterLoadAssignment) map[string]*endpoint.LbEndpoint {
	t.Helper()
	if err := load.ValidateAll(); err != nil {
		t.Fatalf("Envoy would refuse it: %v", err)
	}
	out, next := map[string]*endpoint.LbEndpoint{}, uint32(0)
	for _, group := range load.GetEndpoints() {
		if group.GetPriority() > next {
			t.Fatalf("priority %d without %d: %v", group.GetPriority(), next, load)
		}
		next = group.GetPriority() + 1
		sum := uint32(0)
		for _, e := range group.GetLbEndpoints() {
			sum += e.GetLoadBalancingWeight().GetValue()
			out[workerOf(e)] = e
		}
		if sum != group.GetLoadBalancingWeight().GetValue() {
			t.Fatalf("the weight of a locality is not the sum of its endpoints: %v", group)
		}
	}
	return out
}

func workerOf(e *endpoint.LbEndpoint) string {
	return e.GetMetadata().GetFilterMetadata()["ringway"].GetFields()["worker"].GetStringValue()
}

func relays(n int) (out []affinity.Relay) {
	for i := range n {
		out = append(out, affinity.Relay{ID: fmt.Sprintf("envoy-%d", i)})
	}
	return out
}

// The plan of relays, made by affinity alone, against the endpoints of Envoys.
func TestClientIHasExactlyTheRangeOfRelayI(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		clients, n := relays(1+random.IntN(24)), 1+random.IntN(60)
		minimums := affinity.Minimums{PeersPerWorker: 3 + random.IntN(3), PeersPerRelay: 1 + random.IntN(5)}
		strategy := []affinity.Strategy{affinity.Projection, affinity.Rendezvous}[random.IntN(2)]
		of := &planned{endpoints: map[string]*advertise.Endpoint{}}
		var ready []affinity.Worker
		for i := range n {
			weight := int32(10)
			if random.IntN(8) == 0 {
				weight = 1 + random.Int32N(100)
			}
			place := affinity.Place{}
			if random.IntN(2) == 0 {
				place = affinity.Place{Datacenter: "fra", Region: "eu"}
			}
			e := offer(i, func(e *advertise.Endpoint) { e.Weight, e.Datacenter, e.Region = weight, place.Datacenter, place.Region })
			of.endpoints[e.NodeID] = e
			ready = append(ready, affinity.Worker{ID: e.NodeID, Place: place, Weight: int(weight)})
		}
		cfg := affinity.PlanConfig{Service: "echo", Relays: clients, RelaysPerService: max(minimums.PeersPerWorker, len(clients)), Minimums: minimums, Strategy: strategy}
		if err := of.makePlans(cfg, workers{ready: ready}); err != nil {
			t.Fatal(err)
		}
		cfg.Workers = ready
		want, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		clientsOf := map[string]int{}
		for index, client := range want.Affine() {
			row, err := want.Assignments(index)
			if err != nil {
				t.Fatal(err)
			}
			sorted, leftOut, err := of.rangeOf(client)
			if err != nil || len(leftOut) > 0 {
				t.Fatal(err, leftOut)
			}
			got := endpointsOf(t, loadAssignment("echo", sorted))
			if len(got) != len(row) {
				t.Fatalf("%d clients, %d workers, %v: %s has %d endpoints, relay %d has %d", len(clients), n, minimums, client, len(got), index, len(row))
			}
			for _, a := range row {
				e := got[a.Worker]
				if e == nil {
					t.Fatalf("%s lacks %s, which relay %d has", client, a.Worker, index)
				}
				if share := float64(e.GetLoadBalancingWeight().GetValue()) / weightScale; math.Abs(share-a.Weight) > 1.0/weightScale {
					t.Fatalf("%s sends %v of its traffic to %s, relay %d sends %v", client, share, a.Worker, index, a.Weight)
				}
				clientsOf[a.Worker]++
			}
		}
		for _, w := range ready {
			if least := min(minimums.PeersPerWorker, len(clients)); clientsOf[w.ID] < least {
				t.Fatalf("%s is in %d ranges, not %d", w.ID, clientsOf[w.ID], least)
			}
		}
	}
}

// planOf plans a service with these endpoints.
func planOf(t *testing.T, clients int, endpoints ...*advertise.Endpoint) *planned {
	t.Helper()
	of := &planned{endpoints: map[string]*advertise.Endpoint{}}
	var w workers
	for _, e := range endpoints {
		of.endpoints[e.NodeID] = e
		one := affinity.Worker{ID: e.NodeID, Weight: int(e.Weight)}
		if e.State == advertise.Draining {
			w.draining = append(w.draining, one)
		} else {
			w.ready = append(w.ready, one)
		}
	}
	if err := of.makePlans(affinity.PlanConfig{Service: "echo", Relays: relays(clients), RelaysPerService: max(3, clients)}, w); err != nil {
		t.Fatal(err)
	}
	return of
}

func draining(e *advertise.Endpoint) { e.State = advertise.Draining }

func TestADrainingWorkerStaysWithItsClientsBehindAllOthers(t *testing.T) {
	const clients, n = 6, 12
	var endpoints, before []*advertise.Endpoint
	for i := range n {
		before = append(before, offer(i))
		endpoints = append(endpoints, offer(i))
	}
	draining(endpoints[4])
	was, is := planOf(t, clients, before...), planOf(t, clients, endpoints...)
	had := 0
	for _, c := range relays(clients) {
		old, _, err := was.rangeOf(c.ID)
		if err != nil {
			t.Fatal(err)
		}
		sorted, _, err := is.rangeOf(c.ID)
		if err != nil {
			t.Fatal(err)
		}
		load := loadAssignment("echo", sorted)
		held := slices.ContainsFunc(old, func(a assigned) bool { return a.NodeID == "w4" })
		e := endpointsOf(t, load)["w4"]
		if held != (e != nil) {
			t.Errorf("%s had the worker: %v; has it while it drains: %v", c.ID, held, e != nil)
		}
		if !held {
			continue
		}
		had++
		if last := load.GetEndpoints()[len(load.GetEndpoints())-1]; e.GetHealthStatus() != core.HealthStatus_DRAINING || last.GetPriority() == 0 || workerOf(last.GetLbEndpoints()[0]) != "w4" {
			t.Errorf("%s: %v", c.ID, load)
		}
	}
	if had != 3 {
		t.Errorf("the worker was in %d ranges", had)
	}
}

func TestOnlyDrainingWorkersAreStillSent(t *testing.T) {
	sorted, _, err := planOf(t, 1, offer(0, draining)).rangeOf("envoy-0")
	if err != nil {
		t.Fatal(err)
	}
	if got := endpointsOf(t, loadAssignment("echo", sorted)); len(got) != 1 || got["w0"].GetHealthStatus() != core.HealthStatus_DRAINING {
		t.Error(got)
	}
}

// Envoy refuses all endpoints of a cluster if one has a host name, and clients of gRPC if two
// have one address: one worker must not be able to do that to the others.
func TestNoWorkerCanMakeAClientRefuseTheOthers(t *testing.T) {
	for _, c := range []struct {
		why    string
		rules  rules
		change func(*advertise.Endpoint)
	}{
		{leftOutHostName, rules{}, func(e *advertise.Endpoint) { e.Address = "w2.example:80" }},
		{leftOutHostName, rules{}, func(e *advertise.Endpoint) { e.Address = "[fe80::1%eth0]:80" }},
		{leftOutTwice, rules{}, func(e *advertise.Endpoint) { e.Address = "10.0.1.1:80" }},
		{leftOutTwice, rules{}, func(e *advertise.Endpoint) { e.Address = "[::ffff:10.0.1.1]:80" }},
		{leftOutKind, rules{}, func(e *advertise.Endpoint) { e.Protocol = advertise.TCP }},
	} {
		of := planOf(t, 1, offer(0), offer(1), offer(2, c.change))
		of.rules = c.rules
		sorted, leftOut, err := of.rangeOf("envoy-0")
		if err != nil {
			t.Fatal(err)
		}
		got := endpointsOf(t, loadAssignment("echo", sorted))
		if len(got) != 2 || got["w2"] != nil || leftOut["w2"] != c.why {
			t.Errorf("%s: %v, left out %v", c.why, got, leftOut)
		}
	}
}

func TestInAFleetWithCertificatesOnlySecuredWorkersAreSent(t *testing.T) {
	of := planOf(t, 1, offer(0), offer(1, func(e *advertise.Endpoint) { e.Secured = true }))
	of.rules.secured = true
	sorted, leftOut, err := of.rangeOf("envoy-0")
	if err != nil {
		t.Fatal(err)
	}
	got := endpointsOf(t, loadAssignment("echo", sorted))
	if len(got) != 1 || leftOut["w0"] != leftOutUnsecured {
		t.Fatal(got, leftOut)
	}
	if match := got["w1"].GetMetadata().GetFilterMetadata()["envoy.transport_socket_match"].GetFields()["secured"]; !match.GetBoolValue() {
		t.Error("Envoy cannot choose the transport socket with mutual TLS")
	}
}

func TestMetadataNamesWhatAWorkerAdvertises(t *testing.T) {
	sorted, _, err := planOf(t, 1, offer(0, func(e *advertise.Endpoint) {
		e.Version, e.Tags, e.Slots, e.Protocol, e.Datacenter, e.Region = "1.2.3", []string{"canary"}, 7, advertise.H2C, "fra", "eu"
	})).rangeOf("envoy-0")
	if err != nil {
		t.Fatal(err)
	}
	load := loadAssignment("echo", sorted)
	of := endpointsOf(t, load)["w0"].GetMetadata().GetFilterMetadata()
	own, lb := of["ringway"].AsMap(), of["envoy.lb"].AsMap()
	if got, want := fmt.Sprint(own), "map[protocol:h2c slots:7 tags:[canary] version:1.2.3 worker:w0]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(lb), "map[version:1.2.3 worker:w0]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if l := load.GetEndpoints()[0].GetLocality(); l.GetZone() != "fra" || l.GetRegion() != "eu" {
		t.Error(l)
	}
}
