package statuspage

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/html"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

func member(id string, role identity.Role, state api.MemberState, addr string) api.ListedMember {
	return api.ListedMember{Member: membership.Member{ID: id, Role: role, GossipAddr: addr}, State: state}
}

func listed(name string, ready, endpoints int, ranged string) api.ListedService {
	return api.ListedService{ServiceSummary: api.ServiceSummary{Service: name, Endpoints: endpoints}, Ready: ready, RangeText: ranged}
}

// relayDocument is a relay with a service of n workers, of which it connects to the
// first half.
func relayDocument(n int) Document {
	d := Document{
		ID: "relay-1", Role: "relay", Cluster: "shop", Environment: "production", Datacenter: "ams", Build: "v1.2.3", Uptime: 3 * time.Hour, Ready: true,
		MembersChecksum: "00112233aabbccdd", ServicesChecksum: "ddccbbaa33221100", InFlight: 7,
		Members: []api.ListedMember{
			member("relay-1", "relay", api.MemberAlive, "127.0.0.1:7400"), member("worker-lost", "worker", api.MemberFailed, "127.0.0.1:7401"),
		},
		Notices: []Notice{{Severity: Warning, Text: "Something is odd.", Remedy: "Look.", Runbook: "alone"}},
		Services: []Row{
			{ListedService: listed("echo", n, n, fmt.Sprintf("%d of %d workers, from position 0", n/2, n)), Strategy: "p2c"},
			{ListedService: listed("other", 1, 2, ""), Index: -1, Strategy: "stable"},
		},
	}
	d.Fleet = &api.Fleet{Relay: "relay-1", WindowMs: 3010, Relays: []api.FleetRelay{
		{ID: "relay-1", State: api.MemberAlive, Answered: true, Ready: true, Version: "v1.2.3", Counts: api.Counts{InFlight: 7, Sessions: 2}, Rates: api.Rates{Measured: true, RequestsPerSecond: 1234.5, ErrorsPerSecond: 12.345}},
		{ID: "relay-2", State: api.MemberAlive, Answered: true, Reasons: []string{"draining", "stopping"}},
		{ID: "relay-3", State: api.MemberFailed, Problem: "connection refused"},
		{ID: "relay-4", State: api.MemberLeft, Problem: "it left"},
	}}
	d.Traffic = &Traffic{
		Window:   3 * time.Second,
		Services: []api.TopRow{{Name: "echo", Requests: 3600, Errors: 3, RequestsPerSecond: 1200, ErrorsPerSecond: 1, P99Ms: 12.5}},
		Workers:  []api.TopRow{{Name: "w0", RequestsPerSecond: 600.2}},
		Callers: []api.TopRow{
			{Name: "web", RequestsPerSecond: 1100, P99Ms: 12.5}, {Name: "10.0.0.9", Errors: 3, RequestsPerSecond: 99.9, ErrorsPerSecond: 1, P99Ms: 250},
		},
		AllCallers: 12,
	}
	f := &Focus{Row: d.Services[0], Role: "Served by 2 relays."}
	f.Ring = Ring{Minimum: 3, Arcs: []Arc{{Relay: "relay-1", Self: true, Runs: []Run{{0, n / 2}}}, {Relay: "relay-2", Runs: []Run{{n / 2, n - n/2}}}}}
	for i := range n {
		id := fmt.Sprintf("w%d", i)
		f.Ring.Workers = append(f.Ring.Workers, RingWorker{ID: id, State: Active, Relays: 3, Mine: i < n/2})
		d.Members = append(d.Members, member(id, "worker", api.MemberAlive, "127.0.0.1:1"))
		if i < n/2 {
			f.Peers = append(f.Peers, Peer{State: Active, Peer: api.Peer{
				Node: id, Address: "127.0.0.1:2", Weight: 2 / float64(n), EWMAms: 1.5, InFlight: i, PeerRelay: api.PeerRelay{Tier: "same_dc"},
			}})
		}
	}
	d.Focus = f
	return d
}

// gateDocument forwards to four relays.
func gateDocument() Document {
	d := relayDocument(4)
	d.ID, d.Role = "gate-1", "gate"
	d.Fleet.Relays[0].ID = d.ID
	d.Members[0] = member("gate-1", "gate", api.MemberAlive, "127.0.0.1:7400")
	d.Focus.Forwarding, d.Focus.Ring.Arcs = true, nil
	d.Focus.Peers = nil
	for i, state := range []PeerState{Active, Backup, Evicted, Candidate} {
		d.Focus.Peers = append(d.Focus.Peers, Peer{Peer: api.Peer{Node: fmt.Sprintf("relay-%d", i+1)}, State: state})
	}
	d.Focus.Peers[2].LastReason = "error_rate"
	return d
}

func workerDocument() Document {
	return Document{
		ID: "worker-1", Role: "worker", Cluster: "shop", Environment: "production", Build: "v1.2.3",
		Offers: []api.WorkerService{
			{Service: advertise.Service{Name: "echo", Address: "127.0.0.1:9000", Protocol: "http1", Weight: 10}, State: "offered", Check: "http"},
			{Service: advertise.Service{Name: "slow", Address: "127.0.0.1:9001", Protocol: "h2c", Weight: 10}, State: "unhealthy", Error: "connection refused"},
		},
		Members: []api.ListedMember{member("relay-1", "relay", api.MemberAlive, "")},
	}
}

// config serves one document for every service.
func config(d Document) Config {
	return Config{Document: func(context.Context, string) Document { return d }, Registerer: prometheus.NewRegistry()}
}

func get(t *testing.T, cfg Config, path string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	Handle(mux, cfg)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

// parse reads what a browser would.
func parse(t *testing.T, text []byte) *html.Node {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func hasClass(n *html.Node, class string) bool {
	for _, c := range strings.Fields(attr(n, "class")) {
		if c == class {
			return true
		}
	}
	return false
}

// all are the elements of a name, in document order; "*" is every name.
func all(root *html.Node, name string) (out []*html.Node) {
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && (name == "*" || n.Data == name) {
			out = append(out, n)
		}
	}
	return out
}

func byID(t *testing.T, root *html.Node, id string) *html.Node {
	t.Helper()
	for _, n := range all(root, "*") {
		if attr(n, "id") == id {
			return n
		}
	}
	t.Fatalf("there is no #%s", id)
	return nil
}

// text is what a reader reads, with single spaces.
func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// table is the rows of the first table in n, with the cells parted by bars.
func table(t *testing.T, n *html.Node) (rows []string) {
	t.Helper()
	tables := all(n, "table")
	if len(tables) == 0 {
		t.Fatalf("#%s has no table", attr(n, "id"))
	}
	for _, tr := range all(tables[0], "tr") {
		var cells []string
		for c := range tr.ChildNodes() {
			if c.Type == html.ElementNode {
				cells = append(cells, text(c))
			}
		}
		rows = append(rows, strings.Join(cells, " | "))
	}
	return rows
}
