//go:build unix

package e2e

import (
	"math/big"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// TestADeniedCertificateLeavesTheFleetWithinSeconds puts the serial number of one
// worker's certificate on the deny list while requests flow.
func TestADeniedCertificateLeavesTheFleetWithinSeconds(t *testing.T) {
	t.Parallel()
	const workers = 4
	f := startFleet(t, fleetConfig{Relays: 2, Workers: workers, Secure: true,
		Services: func(int) []string { return []string{echo} }})
	procs.Await(t, "all are members", func() bool { return f.agrees(len(f.relays) + workers) })
	for _, r := range f.relays {
		procs.Await(t, r.ID+" answers", func() bool { return f.call(r, echo).status == 200 })
	}
	stolen := f.worker("w1")
	load := f.startLoad(t, loadConfig{Name: "denied", Service: echo, Relay: f.roundRobin})
	procs.Await(t, "every worker gets requests", func() bool {
		for _, w := range f.workers {
			if len(w.executed(t)) == 0 {
				return false
			}
		}
		return true
	})

	serial, ok := new(big.Int).SetString(f.Security.Serial(t, stolen.ID), 10)
	if !ok {
		t.Fatal("no serial number")
	}
	began := time.Now()
	if err := f.Security.Deny("serial " + serial.Text(16) + " # stolen"); err != nil {
		t.Fatal(err)
	}
	for _, r := range f.relays {
		procs.Await(t, r.ID+" closes its connections to the worker", func() bool {
			return f.metric(t, r, `ringway_identity_connections_closed_total{direction="outbound",reason="denied"}`) > 0
		})
	}
	t.Logf("both relays closed their connections after %v", time.Since(began).Round(10*time.Millisecond))
	load.turn(t) // what was in flight has ended
	settled := time.Now()
	before := len(stolen.executed(t))
	load.more(t, 300)
	if after := len(stolen.executed(t)); after != before {
		t.Errorf("the worker executed %d requests after its connections were closed", after-before)
	}
	for _, r := range f.relays {
		if n := f.metric(t, r, `ringway_identity_denied_entries`); n != 1 {
			t.Errorf("%s: %v entries", r.ID, n)
		}
		procs.Await(t, r.ID+" logs that it closed connections", func() bool {
			return r.Logged("open connections closed: the certificate of the other end no longer counts", "")
		})
	}
	procs.Await(t, "the worker learns why", func() bool {
		return stolen.Logged("our own certificate is on the deny list: the others refuse it", "serial "+serial.Text(16))
	})

	// It is refused when it comes again.
	stolen.Signal(t, syscall.SIGTERM)
	stolen.Exit(t)
	procs.Await(t, "it is gone", func() bool { return f.sees(stolen.ID, false) })
	stolen.Process = start(t, stolen.Config)
	for _, r := range f.relays {
		procs.Await(t, r.ID+" refuses its streams", func() bool {
			return f.metric(t, r, `ringway_membership_refusals_total{direction="inbound",reason="denied"}`) > 0
		})
		procs.Await(t, r.ID+" logs the reason", func() bool {
			return r.Logged("member refused", "certificate refused: denied: serial "+serial.Text(16)+" is on the deny list")
		})
	}
	procs.Await(t, "it learns that it is refused", func() bool {
		status, code := f.ready(stolen.Admin)
		return code == 503 && strings.Contains(strings.Join(status.Reasons, " "), "certificate refused by the other end")
	})
	load.more(t, 100)

	// What was in flight on a connection that was closed may have failed, no more.
	results := load.stop()
	bad := failed(results)
	for _, r := range bad[:min(len(bad), 20)] {
		if r.began.After(settled) || r.began.Before(began) {
			t.Errorf("failed: %v", r)
		}
	}
	if limit := len(f.relays) * loadClients; len(bad) > limit {
		t.Errorf("%d requests failed, at most %d were in flight", len(bad), limit)
	}
	t.Logf("%d requests, %d failed", len(results), len(bad))
	f.judge(t, results)
}
