package ingress

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

const (
	// ShareOfFree is the MaxInFlightPerClient that depends on what the requests of all clients leave
	// of MaxInFlight: a quarter of that, at least 100.
	ShareOfFree = -1
	// leastPerClient is how many requests each client may have in flight if the share is that of
	// what is free, whatever the others have.
	leastPerClient = 100
	// freeShare is the part of what is free that one client may have. A client that takes all it gets
	// leaves four fifths of what was free to the others. Switches share their buffers among ports in the
	// same way (A. Choudhury and E. Hahne, Dynamic Queue Length Thresholds, 1998).
	freeShare = 4
	// clientShards spreads the clients, so that requests of different clients rarely wait for a lock.
	clientShards = 64
)

// Clients counts the requests in flight by client, those to all services together. All methods may
// be called from any goroutine.
//
// Clients belongs to the relay and not to a handler, because a reload replaces the handler while
// requests are in flight.
type Clients struct {
	seed   maphash.Seed
	all    atomic.Int64
	shards [clientShards]clientShard
}

// clientShard has a part of the clients.
type clientShard struct {
	mu       sync.Mutex
	inFlight map[netip.Addr]int // never 0
	peak     int                // of its length
	_        [40]byte           // its neighbours are on other cache lines
}

// keptClients is the largest number of clients for which an empty map is kept: a map does not shrink.
const keptClients = 256

// NewClients returns the counters of a relay.
func NewClients() *Clients { return &Clients{seed: maphash.MakeSeed()} }

// Enter counts one more request of a client, unless limit of them are in flight; ShareOfFree is the
// client's share of what is free of capacity. It returns the limit.
func (c *Clients) Enter(client netip.Addr, limit, capacity int) (int, bool) {
	if limit == ShareOfFree {
		limit = max((capacity-int(c.all.Load()))/freeShare, leastPerClient)
	}
	s := c.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.inFlight[client]
	if n >= limit {
		return limit, false
	}
	if s.inFlight == nil {
		s.inFlight = map[netip.Addr]int{}
	}
	s.inFlight[client] = n + 1
	s.peak = max(s.peak, len(s.inFlight))
	c.all.Add(1)
	return limit, true
}

// Leave ends what Enter counted.
func (c *Clients) Leave(client netip.Addr) {
	c.all.Add(-1)
	s := c.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.inFlight[client]; n > 1 {
		s.inFlight[client] = n - 1
		return
	}
	delete(s.inFlight, client)
	if len(s.inFlight) == 0 && s.peak > keptClients {
		s.inFlight, s.peak = nil, 0
	}
}

func (c *Clients) shard(client netip.Addr) *clientShard {
	return &c.shards[maphash.Comparable(c.seed, client)%clientShards]
}

// Len returns how many clients have a request in flight.
func (c *Clients) Len() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += len(s.inFlight)
		s.mu.Unlock()
	}
	return n
}

// enterClient counts the request of a client. It returns false if it has answered, because the client
// has as many in flight as it may have.
func (t *request) enterClient(service *routing.Service) bool {
	cfg := &t.handler.cfg
	if cfg.MaxInFlightPerClient == 0 {
		return true
	}
	client := countedClient(t.r)
	if !client.IsValid() { // no connection of a network
		return true
	}
	limit, ok := cfg.Clients.Enter(client, cfg.MaxInFlightPerClient, cfg.MaxInFlight)
	if !ok {
		t.exceeds(service, wire.CodeClientLimit, fmt.Sprintf("this relay carries %d requests of this client, as many as it takes of one now", limit))
		return false
	}
	t.client = client
	return true
}

// countedClient returns the address by which the requests of a client are counted. A proxy on this
// host, which any number of clients may use, names the client last in X-Forwarded-For, or in
// X-Real-Ip. That is believed for this purpose only: a process on this host could use many addresses
// of it anyway.
func countedClient(r *http.Request) netip.Addr {
	if !remoteAddr(r.RemoteAddr).IsLoopback() {
		return clientAddr(r.RemoteAddr)
	}
	for _, field := range [...]string{forwardedFor, "X-Real-Ip"} {
		if values := r.Header[field]; len(values) > 0 {
			last := values[len(values)-1]
			if addr, err := netip.ParseAddr(strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])); err == nil {
				return networkOf(addr.Unmap().WithZone(""))
			}
		}
	}
	return clientAddr(r.RemoteAddr)
}
