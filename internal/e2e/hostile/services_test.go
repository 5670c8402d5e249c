//go:build linux

package hostile

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
)

// taken sends n POSTs of echo through every relay and returns how many the turncoat answered.
func (f *fleet) taken(c *turncoat, n int) (taken, all int) {
	f.t.Helper()
	for _, r := range f.Relays {
		for range n {
			status, body := f.ask(r, echo, http.MethodPost, "/")
			if status != http.StatusOK {
				f.t.Errorf("through %s: %d %.120s", r.ID, status, body)
			}
			if body == c.id {
				taken++
			}
			all++
		}
	}
	return taken, all
}

// TestAWorkerOfAnotherServiceGetsNoRequest has a worker, whose certificate is for another service,
// offer echo with the highest weight. Without a slow start it would get its share immediately.
func TestAWorkerOfAnotherServiceGetsNoRequest(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, Services: echo, RelayArgs: []string{"--slow-start", "0s"}})
	c := startTurncoat(t, f, own)
	c.offer(t, advertise.Service{Name: echo, Address: c.sidecar, Secured: true, Weight: 100})
	f.refusesTurncoat(c, "service_name", "the certificate of its worker is for "+own)
}

// TestAWorkerWithoutServiceNamesGetsNoRequestWhereTheyAreRequired does the same with a certificate
// that names no service, which the rest of the fleet had before.
func TestAWorkerWithoutServiceNamesGetsNoRequestWhereTheyAreRequired(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, Services: echo, RelayArgs: []string{"--slow-start", "0s", "--require-service-names"}})
	c := launchTurncoat(t, f)
	c.offer(t, advertise.Service{Name: echo, Address: c.sidecar, Secured: true, Weight: 100})
	f.refusesTurncoat(c, "no_service_names", "names no service")
}

// refusesTurncoat waits until every relay has refused the offer for the reason, and expects that the
// turncoat gets nothing and that every relay reports why.
func (f *fleet) refusesTurncoat(c *turncoat, reason, text string) {
	f.t.Helper()
	for _, r := range f.Relays {
		procs.Await(f.t, r.ID+" has judged the offer", func() bool { return f.refuses(r, c, text) || f.connects(r, c) })
	}
	taken, all := f.taken(c, 30)
	f.t.Logf("the turncoat gets %d of %d requests", taken, all)
	if taken != 0 {
		f.t.Errorf("the turncoat gets %d of %d requests of a service that its certificate is not for", taken, all)
	}
	f.wellDuring(watching)
	for _, r := range f.Relays {
		if f.metrics(r.Admin, "ringway_advertise_offers_refused_total", func(series string) bool { return strings.Contains(series, `"`+reason+`"`) }) == 0 {
			f.t.Errorf("%s does not count the refusal under %s", r.ID, reason)
		}
		for _, path := range []string{"/api/v1/services", "/api/v1/services/echo", "/api/v1/services/echo/explain", "/api/v1/services/echo/explain?worker=turncoat", "/api/v1/check"} {
			if _, body := f.get(r.Admin, path); !strings.Contains(body, text) || !strings.Contains(body, c.id) {
				f.t.Errorf("%s of %s does not report the turncoat and %q: %.2000s", path, r.ID, text, body)
			}
		}
		if !r.Logged("refused services of a worker", "") {
			f.t.Errorf("%s does not log it", r.ID)
		}
	}
}

// refuses reports whether a relay explains the refusal of the turncoat's echo by a text.
func (f *fleet) refuses(r *relay, c *turncoat, text string) bool {
	status, body := f.get(r.Admin, "/api/v1/services/echo/explain?worker="+c.id)
	return status == http.StatusOK && strings.Contains(body, text)
}

// connects reports whether a relay has a connection to the turncoat for echo.
func (f *fleet) connects(r *relay, c *turncoat) bool {
	var got struct {
		Peers []struct {
			Node      string
			Connected bool
		}
	}
	f.Get(r, "/api/v1/services/"+echo, &got)
	for _, p := range got.Peers {
		if p.Node == c.id && p.Connected {
			return true
		}
	}
	return false
}

// TestOneWorkerDoesNotDecideOnTheVersion has a worker of the service itself, which uses the highest
// version only, offer version 999.
func TestOneWorkerDoesNotDecideOnTheVersion(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 2, Services: echo, Offer: ";selection=slots;version=1"})
	c := startTurncoat(t, f, own, echo)
	c.offer(t, advertise.Service{Name: echo, Address: c.sidecar, Secured: true, Weight: 100, Selection: "slots", Version: "999"})
	procs.Await(t, "the offer is in the catalogue", func() bool { return f.endpoints(f.Relays[0], echo) == len(f.Workers)+1 })
	taken, all := f.taken(c, 30)
	t.Logf("the turncoat gets %d of %d requests", taken, all)
	if taken != 0 {
		t.Errorf("the turncoat gets %d of %d requests by its version alone", taken, all)
	}
	if _, body := f.get(f.Relays[0].Admin, "/api/v1/services/echo/explain?worker="+c.id); !strings.Contains(body, `uses only version \"1\"`) || !strings.Contains(body, `\"999\"`) {
		t.Errorf("the relay does not explain it: %s", body)
	}
}
