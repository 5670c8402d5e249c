//go:build unix

package e2e

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// TestCertificatesGetServiceNamesWithoutALostRequest gives the workers of a running fleet
// certificates that name their service, one after the other, then has the relays require the names.
func TestCertificatesGetServiceNamesWithoutALostRequest(t *testing.T) {
	t.Parallel()
	const workers = 3
	f := startFleet(t, fleetConfig{Relays: 3, Workers: workers, Secure: true, Services: func(int) []string { return []string{echo} }})
	f.awaitRange(t, workers)
	load := f.startLoad(t, loadConfig{Name: "names", Service: echo, Retry: true, Relay: func(n int) *relay { return f.relays[n%len(f.relays)] }})
	load.more(t, 50)
	for i, w := range f.workers {
		f.names(t, w, echo)
		if i == 0 {
			procs.Await(t, "a check lists the workers without names", func() bool {
				report, _ := f.check(t, f.relays[0])
				return slices.ContainsFunc(report.troubles(), func(c checkFinding) bool {
					return c.Check == "service-names" && c.Status == "warning" && c.Text == "the certificates of 2 of 3 workers name no services, and may offer any: w2, w3"
				})
			})
		}
		load.more(t, 50)
	}
	for _, r := range f.relays {
		again := r.Config
		again.Args = append(again.Args, "--require-service-names")
		r.Signal(t, syscall.SIGTERM)
		if code := r.Exit(t); code != 0 {
			t.Errorf("%s exited with %d", r.ID, code)
		}
		r.Process = start(t, again)
		procs.Await(t, r.ID+" is ready again", func() bool { _, status := f.ready(r.Admin); return status == 200 })
		load.more(t, 50)
	}
	f.awaitRange(t, workers)
	report, _ := f.check(t, f.relays[0])
	if trouble := report.troubles(); len(trouble) > 0 {
		t.Errorf("%+v", trouble)
	}

	f.startWorker("w4", echo) // with a certificate as it was issued before
	f.finds(t, f.relays[0], checkFinding{Check: "offers-used", Status: "failed", Subject: "w4", Text: "names no service, and --require-service-names is set", Page: "docs/operations/endpoints-left-out.md"})
	stranger := f.worker("w4")
	load.more(t, 50)
	if n := len(stranger.executed(t)); n != 0 {
		t.Errorf("w4 executed %d requests", n)
	}
	f.names(t, stranger, "other")
	f.finds(t, f.relays[0], checkFinding{Check: "offers-used", Status: "failed", Subject: "w4", Text: "the certificate of its worker is for other", Page: "docs/operations/endpoints-left-out.md"})
	f.names(t, stranger, "e*")
	f.awaitRange(t, workers+1)
	load.more(t, 50)
	results := load.stop()
	noneFailed(t, results)
	f.judge(t, results)
}

// names replaces the certificate of a running worker by one with a name, and waits until every
// relay has it.
func (f *fleet) names(t *testing.T, w *worker, name string) {
	t.Helper()
	s := f.Security
	prefix := w.ID + "-next-" + strings.TrimSuffix(name, "*")
	if err := s.Certificate(claims{Role: "worker", Node: w.ID, Services: name}, "ca", prefix); err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{".key", ".crt"} {
		if err := os.Rename(s.Path(prefix+ext), s.Path(w.ID+ext)); err != nil {
			t.Fatal(err)
		}
	}
	if out := ringway(t, "tls", "info", s.Path(w.ID+".crt")); !strings.Contains(out.Stdout, "services  "+name) {
		t.Errorf("%v", out)
	}
	for _, r := range f.relays {
		procs.Await(t, r.ID+" has the certificate of "+w.ID+" for "+name, func() bool {
			var got struct {
				Members []struct {
					ID           string
					ServiceNames string `json:"service_names"`
				}
			}
			f.api(r.Admin, "/api/v1/members", &got)
			for _, m := range got.Members {
				if m.ID == w.ID {
					return string(m.ServiceNames) == name
				}
			}
			return false
		})
	}
}
