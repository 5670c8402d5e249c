package ingress

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

func TestTheShareOfAClientIsAQuarterOfWhatIsFree(t *testing.T) {
	c := NewClients()
	client := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }
	fill := func(n int) (taken int) {
		for {
			if counted, _ := c.Enter(client(n), ShareOfFree, 10_000); counted == nil {
				return taken
			}
			taken++
		}
	}
	want := []int{2000, 1600, 1280, 1024} // each a fifth of what those before it have left
	for n, share := range want {
		if got := fill(n); got != share {
			t.Errorf("client %d gets %d requests, want %d", n, got, share)
		}
	}
	for n := range 200 {
		if got := fill(10 + n); got < leastPerClient {
			t.Errorf("client %d gets %d requests although each may have %d", 10+n, got, leastPerClient)
		}
	}
	if counted, limit := c.Enter(client(9), ShareOfFree, 10_000); counted == nil || limit != leastPerClient {
		t.Errorf("when nothing is free a client gets %d, %v", limit, counted)
	}
}

// A client that is bounded at one service must not begin anew at the next.
func TestTheShareOfAClientHoldsForAllServicesTogether(t *testing.T) {
	entered, release := make(chan struct{}, 4), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}))
	defer backend.Close()
	one := guardedHandler(t, backend.Listener.Addr(), time.Minute)
	one.cfg.Circuits, one.cfg.MaxInFlightPerClient = nil, 2
	other := *one // the handler of another service, or after a reload
	pool, err := upstream.NewPool(upstream.Config{Address: backend.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	service := known(t, "other")
	if err := service.SetRoute(&routing.Route{Range: []*routing.Target{{ID: "w1.1", Node: "w1", Address: backend.Listener.Addr().String(), Weight: 1, Pool: pool}}}, 0); err != nil {
		t.Fatal(err)
	}
	other.cfg.Services = only{service}
	carried := make(chan int, 2)
	ask := func(h *Handler, service string) int {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.RemoteAddr = "192.0.2.1:1"
		r.Header.Set(wire.ServiceHeader, service)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for h, service := range map[*Handler]string{one: "echo", &other: "other"} {
		go func() { carried <- ask(h, service) }()
		<-entered
	}
	for h, service := range map[*Handler]string{one: "echo", &other: "other"} {
		if code := ask(h, service); code != http.StatusTooManyRequests {
			t.Errorf("a third request, to %s: %d", service, code)
		}
	}
	close(release)
	for range 2 {
		if code := <-carried; code != http.StatusOK {
			t.Errorf("%d for a request within the share", code)
		}
	}
}

func TestTheClientsOfAProxyOnThisHostAreDistinguished(t *testing.T) {
	for _, c := range []struct {
		remote string
		fields [][2]string
		want   string
	}{
		{"192.0.2.1:80", nil, "192.0.2.1"},
		{"192.0.2.1:80", [][2]string{{forwardedFor, "203.0.113.7"}}, "192.0.2.1"}, // a client elsewhere is not believed
		{"[2001:db8::1:2:3:4]:80", nil, "2001:db8::"},
		{"127.0.0.1:80", nil, "127.0.0.1"},
		{"[::ffff:127.0.0.2]:80", nil, "127.0.0.2"},
		{"127.0.0.1:80", [][2]string{{forwardedFor, "198.51.100.1, 203.0.113.7"}}, "203.0.113.7"},
		{"127.0.0.1:80", [][2]string{{forwardedFor, "198.51.100.1"}, {forwardedFor, "203.0.113.7"}}, "203.0.113.7"},
		{"[::1]:80", [][2]string{{forwardedFor, "2001:db8::1:2:3:4"}}, "2001:db8::"},
		{"127.0.0.1:80", [][2]string{{"X-Real-Ip", "203.0.113.7"}}, "203.0.113.7"},
		{"127.0.0.1:80", [][2]string{{forwardedFor, "unknown"}, {"X-Real-Ip", "203.0.113.7"}}, "203.0.113.7"},
		{"127.0.0.1:80", [][2]string{{forwardedFor, ""}}, "127.0.0.1"},
		{"@", nil, "invalid IP"},
	} {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.RemoteAddr = c.remote
		for _, f := range c.fields {
			r.Header.Add(f[0], f[1])
		}
		if got := fmt.Sprint(countedClient(r)); got != c.want {
			t.Errorf("%s with %v counts as %s, want %s", c.remote, c.fields, got, c.want)
		}
	}
}

// An attacker has as many addresses as it wants.
func TestClientsThatHaveLeftTakeNoMemory(t *testing.T) {
	c := NewClients()
	addr := func(n int) netip.Addr {
		return netip.AddrFrom16([16]byte{0x20, 1, byte(n >> 16), byte(n >> 8), byte(n)})
	}
	remembered := func() (n int) {
		for i := range c.shards {
			n += len(c.shards[i].clients)
		}
		return n
	}
	stays, _ := c.Enter(addr(0), 10, 0)
	var many []*client
	for n := range 20_000 {
		counted, _ := c.Enter(addr(1+n), 10, 0)
		many = append(many, counted)
	}
	if n := c.Len(); n != 20_001 {
		t.Errorf("%d clients have a request in flight, want 20001", n)
	}
	for _, counted := range many {
		c.Leave(counted)
	}
	for n := range 100_000 {
		counted, _ := c.Enter(addr(50_000+n), 10, 0)
		c.Leave(counted)
	}
	if n := remembered(); n > clientShards*leastClients {
		t.Errorf("%d clients are remembered, at most %d expected", n, clientShards*leastClients)
	}
	if again, _ := c.Enter(addr(0), 10, 0); again != stays || again.inFlight != 2 || c.Len() != 1 {
		t.Errorf("the client whose request is in flight was not remembered: %v, %d", again, c.Len())
	}
}

func TestCountingAClientAllocatesNothing(t *testing.T) {
	c := NewClients()
	client := netip.MustParseAddr("192.0.2.1")
	counted, _ := c.Enter(client, ShareOfFree, 100)
	c.Leave(counted)
	if n := testing.AllocsPerRun(1000, func() {
		counted, _ := c.Enter(client, ShareOfFree, 100)
		c.Leave(counted)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
