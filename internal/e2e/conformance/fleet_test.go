//go:build unix

package conformance

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
)

// fleet is relays r1, r2, … and one worker, as processes that end with the test.
type fleet struct {
	*procs.Fleet
	secured map[string]string // by relay: the address of the ingress with TLS
}

type relay = *procs.Member

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
	dir := t.TempDir()
	f := &fleet{procs.NewFleet(procs.FleetConfig{T: t, Cluster: "conformance", Environment: "test", Binaries: binaries}), map[string]string{}}
	if cfg.Secure {
		f.Secure(dir)
	}
	file := filepath.Join(dir, "relay.yaml")
	if err := os.WriteFile(file, []byte("routes: "+cfg.Routes+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := clienttlstest.New(t).Files(filepath.Join(dir, "ingress"), clienttlstest.Certificate{DNS: []string{"ingress.test"}})
	for n := range cfg.Relays {
		f.Relay(fmt.Sprintf("r%d", n+1))
	}
	var skips []string // the last relay serves all services, the others forward
	for _, r := range f.Relays[:cfg.Relays-1] {
		for _, s := range cfg.Services {
			name, _, _ := strings.Cut(s, "=")
			skips = append(skips, "--skip-relay", name+"="+r.ID)
		}
	}
	for _, r := range f.Relays {
		f.secured[r.ID] = procs.FreeAddr(t)
		// Clients of all listeners have one address, and one of them has 1,000 requests in flight.
		f.Start(r, procs.Config{Args: append([]string{"--ingress-addr", "tls://" + f.secured[r.ID], "--ingress-tls-cert", cert, "--ingress-tls-key", key,
			"--config", file, "--max-in-flight-per-client", "0"}, skips...)})
	}
	var args []string
	for _, s := range cfg.Services {
		args = append(args, "--service", s)
	}
	f.Start(f.Worker("w1"), procs.Config{Args: args})
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
		for _, r := range f.Relays {
			var v struct {
				Role      string
				Endpoints int
				Peers     []struct{ Node string }
			}
			if f.Get(r, "/readyz", nil) != http.StatusOK || f.Get(r, "/api/v1/services/"+service, &v) != http.StatusOK || v.Endpoints != 1 || len(v.Peers) != 1 {
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
