//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// TestASessionStaysAtItsWorkerThroughBothRelaysAndMovesOnceWhenItDies has clients with
// cookie jars, as browsers are, whose requests come to two relays in turn.
func TestASessionStaysAtItsWorkerThroughBothRelaysAndMovesOnceWhenItDies(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{
		Relays: 2, Workers: 4, Secure: true,
		RelayArgs: []string{"--slow-start", "0s", "--session-cookie", echo + "=sid", "--service-policy", echo + "=cookie-domain=" + domain + ";cookie-path=/shop;cookie-same-site=strict;cookie-lifetime=168h"},
		Services:  func(int) []string { return []string{echo} },
	})
	for _, r := range f.relays {
		procs.Await(t, r.ID+" serves", func() bool {
			var v serviceView
			_, ready := f.ready(r.Admin)
			return f.api(r.Admin, "/api/v1/services/"+echo, &v) == 200 && v.Range == 4 && ready == 200
		})
	}

	const clients = 12
	homes, visitors := map[string]int{}, make([]*visitor, clients)
	for i := range visitors {
		v := newVisitor(t, f)
		visitors[i] = v
		for n := range 10 {
			if err := v.visit(f.relays[n%2]); err != nil {
				t.Fatal(err)
			}
		}
		if v.moves != 0 || v.cookies != 1 {
			t.Errorf("a session moved %d times, with %d cookies", v.moves, v.cookies)
		}
		homes[v.home]++
	}
	if len(homes) < 2 {
		t.Fatalf("all sessions are at %v", homes)
	}
	value, attributes, _ := strings.Cut(strings.TrimPrefix(visitors[0].set, "sid="), "; ")
	if attributes != "Path=/shop; Domain="+domain+"; Max-Age=604800; HttpOnly; SameSite=Strict" {
		t.Errorf("the attributes are %q", attributes)
	}
	for _, r := range f.relays {
		if a := f.client.send(request{addr: r.Ingress, service: echo, path: "/cached"}); a.status != http.StatusOK || a.header.Get("Set-Cookie") != "" {
			t.Errorf("an answer for caches: %v", a)
		}
		quoted, err := request{addr: r.Ingress, service: echo, path: "/shop"}.http(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		quoted.AddCookie(&http.Cookie{Name: "sid", Value: value, Quoted: true})
		resp, err := f.client.http.Do(quoted)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.Header.Get(endpointHeader) != visitors[0].home || resp.Header.Get("Set-Cookie") != "" {
			t.Errorf("with quotes the session of %s is at %v", visitors[0].home, resp.Header)
		}
	}

	// The worker of the first dies under all of them.
	dead := f.worker(visitors[0].home)
	var visiting sync.WaitGroup
	begun := make(chan struct{}, clients)
	gone := make(chan struct{})
	for i, v := range visitors {
		visiting.Go(func() {
			after := 0
			for n := 0; after < 20; n++ {
				select {
				case <-gone:
					after++
				default:
				}
				if err := v.visit(f.relays[(i+n)%2]); err != nil {
					t.Error(err)
					begun <- struct{}{}
					return
				}
				if n == 5 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range clients {
		<-begun
	}
	dead.backend.Signal(t, syscall.SIGKILL)
	dead.Signal(t, syscall.SIGKILL)
	<-dead.backend.Done
	<-dead.Done
	close(gone)
	visiting.Wait()
	for i, v := range visitors {
		if died := v.first == dead.ID; died && (v.home == dead.ID || v.moves != 1 || v.cookies != 2) || !died && (v.moves != 0 || v.cookies != 1) {
			t.Errorf("client %d, first at %s, is at %s after %d moves and %d cookies; %s died", i, v.first, v.home, v.moves, v.cookies, dead.ID)
		}
	}
	for _, r := range f.relays {
		for event, want := range map[string]bool{"accepted": true, "cacheable": true, "signature": false, "malformed": false, "expired": false, "service": false, "no_key": false} {
			if n := f.metric(t, r, fmt.Sprintf("ringway_relay_session_cookies_total{event=%q,service=%q}", event, echo)); (n > 0) != want {
				t.Errorf("%s counts %g %s", r.ID, n, event)
			}
		}
	}
}

// visitor is one client with a cookie jar, to which all relays are one host.
type visitor struct {
	through        map[*relay]*client
	first, home    string
	set            string // the last cookie
	moves, cookies int
}

func newVisitor(t *testing.T, f *fleet) *visitor {
	t.Helper()
	v := &visitor{through: map[*relay]*client{}}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range f.relays {
		v.through[r] = clientOf(t, &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, r.Ingress)
		}})
		v.through[r].http.Jar = jar
	}
	return v
}

// visit sends a GET, and notes which worker answers and whether it brings a cookie.
func (v *visitor) visit(r *relay) error {
	a := v.through[r].send(request{addr: echo + "." + domain, path: "/shop/cart"})
	if a.err != nil || a.status != http.StatusOK {
		return fmt.Errorf("through %s: %v", r.ID, a)
	}
	if len(a.header["Set-Cookie"]) > 0 {
		v.cookies++
		v.set = a.header.Get("Set-Cookie")
	}
	node := a.header.Get(endpointHeader)
	switch {
	case v.home == "":
		v.first = node
	case v.home != node:
		v.moves++
	}
	v.home = node
	return nil
}
