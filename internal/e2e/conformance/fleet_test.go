//go:build unix

package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay/termination/terminationtest"
)

const (
	cluster     = "conformance"
	environment = "test"
)

// fleet is relays r1, r2, … and one worker, as processes that end with the test.
type fleet struct {
	relays   []relay
	sidecar  string          // an address of the worker
	security *procs.Security // nil without
}

type relay struct {
	id, gossip, ingress, peer, admin string
	secured                          string // the address of the ingress with TLS
}

// fleetConfig configures a fleet.
type fleetConfig struct {
	Relays int
	// Secure gives the members certificates and a gossip key.
	Secure bool
	// Routes is the section "routes" of the file of the relays.
	Routes string
	// Services are the values of --service of the worker.
	Services []string
}

// startFleet returns once every relay knows all services.
func startFleet(t *testing.T, cfg fleetConfig) *fleet {
	t.Helper()
	f, dir := &fleet{sidecar: procs.FreeAddr(t)}, t.TempDir()
	flags := func(string) []string { return nil }
	if cfg.Secure {
		f.security = procs.NewSecurity(t, procs.SecurityConfig{Dir: dir, Binaries: binaries, Cluster: cluster, Environment: environment})
		f.security.IssueAll(t, cfg.Relays, 1)
		flags = func(id string) []string { return f.security.Flags(id, id) }
	}
	file := filepath.Join(dir, "relay.yaml")
	if err := os.WriteFile(file, []byte("routes: "+cfg.Routes+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := terminationtest.New(t).Files(filepath.Join(dir, "ingress"), terminationtest.Certificate{DNS: []string{"ingress.test"}})
	var seeds []string
	for n := range cfg.Relays {
		r := relay{fmt.Sprintf("r%d", n+1), procs.FreeAddr(t), procs.FreeAddr(t), procs.FreeAddr(t), procs.FreeAddr(t), procs.FreeAddr(t)}
		f.relays, seeds = append(f.relays, r), append(seeds, r.gossip)
	}
	common := func(id, gossip, admin string) []string {
		return append([]string{"run", "--cluster", cluster, "--environment", environment, "--id", id, "--log-format", "json",
			"--gossip-addr", gossip, "--admin-addr", admin, "--join", strings.Join(seeds, ",")}, flags(id)...)
	}
	for _, r := range f.relays {
		procs.Start(t, procs.Config{Name: r.id, Binary: "relay", Dir: binaries, Args: append(common(r.id, r.gossip, r.admin),
			"--ingress-addr", r.ingress, "--ingress-addr", "tls://"+r.secured, "--ingress-tls-cert", cert, "--ingress-tls-key", key, "--peer-addr", r.peer, "--config", file, "--relays-per-service", "1")})
	}
	worker := append(common("w1", procs.FreeAddr(t), procs.FreeAddr(t)), "--sidecar-addr", f.sidecar)
	for _, s := range cfg.Services {
		worker = append(worker, "--service", s)
	}
	procs.Start(t, procs.Config{Name: "w1", Binary: "worker", Dir: binaries, Args: worker})
	for _, s := range cfg.Services {
		name, _, _ := strings.Cut(s, "=")
		f.roles(t, name)
	}
	return f
}

// roles waits until one relay serves a service and the others forward to that relay.
func (f *fleet) roles(t *testing.T, service string) (serving relay, forwarding []relay) {
	t.Helper()
	procs.Await(t, "one relay serves "+service+", the others forward", func() bool {
		var served []relay
		forwarding = nil
		for _, r := range f.relays {
			var v struct {
				Role      string
				Endpoints int
				Peers     []struct{ Node string }
			}
			if !get(r.admin, "/readyz", nil) || !get(r.admin, "/api/v1/services/"+service, &v) || v.Endpoints != 1 || len(v.Peers) != 1 {
				return false
			}
			if v.Role == "affine" {
				served = append(served, r)
			} else {
				forwarding = append(forwarding, r)
			}
		}
		if len(served) != 1 {
			return false
		}
		serving = served[0]
		return !slices.Contains(forwarding, serving)
	})
	return serving, forwarding
}

// get reports whether an admin API answered with 200. into can be nil.
func get(admin, path string, into any) bool {
	req, err := http.NewRequest(http.MethodGet, "http://"+admin+path, nil)
	if err != nil {
		return false
	}
	status, body, err := procs.Ask(http.DefaultClient, req)
	return err == nil && status == http.StatusOK && (into == nil || json.Unmarshal(body, into) == nil)
}
