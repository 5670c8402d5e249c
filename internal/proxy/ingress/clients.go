package ingress

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

const (
	// ShareOfFree is the MaxInFlightPerClient that depends on what the requests of all clients leave
	// of MaxInFlight: a quarter of that, at least 100.
	ShareOfFree = -1
	// leastPerClient is how many requests each client may have in flight with ShareOfFree, whatever
	// the others have.
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
	mu      sync.Mutex
	clients map[clientKey]*client
	sweepAt int      // the length of clients at which those without a request in flight go
	_       [40]byte // its neighbours are on other cache lines
}

// clientKey is an address in the form that costs a map least.
type clientKey [16]byte

// client is a client that has requests in flight, or had some lately: the next one finds it there.
type client struct {
	shard    *clientShard
	inFlight int // shard.mu guards it
}

// leastClients is the number of clients in a shard up to which none is removed.
const leastClients = 64

// NewClients returns the counters of a relay.
func NewClients() *Clients { return &Clients{seed: maphash.MakeSeed()} }

// Enter counts one more request of a client, unless limit of them are in flight; ShareOfFree is the
// client's share of what is free of capacity. It returns the limit, and the client for Leave, nil if the
// request is not counted.
func (c *Clients) Enter(addr netip.Addr, limit, capacity int) (*client, int) {
	if limit == ShareOfFree {
		limit = max((capacity-int(c.all.Load()))/freeShare, leastPerClient)
	}
	key := clientKey(addr.As16())
	s := &c.shards[maphash.Bytes(c.seed, key[:])%clientShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.clients[key]
	switch {
	case known == nil && limit <= 0, known != nil && known.inFlight >= limit:
		return nil, limit
	case known == nil:
		known = s.add(key)
	}
	known.inFlight++
	c.all.Add(1)
	return known, limit
}

// Leave ends what Enter counted.
func (c *Clients) Leave(left *client) {
	c.all.Add(-1)
	left.shard.mu.Lock()
	defer left.shard.mu.Unlock()
	left.inFlight--
}

// add adds a client. The lock is held. Those without a request in flight go when the number of clients
// has doubled, into a new map, because a map does not shrink: so the memory depends on the most
// requests that were in flight, and not on how many addresses clients use.
func (s *clientShard) add(key clientKey) *client {
	if len(s.clients) >= s.sweepAt {
		busy := map[clientKey]*client{}
		for key, c := range s.clients {
			if c.inFlight > 0 {
				busy[key] = c
			}
		}
		s.clients, s.sweepAt = busy, max(2*len(busy), leastClients)
	}
	added := &client{shard: s}
	s.clients[key] = added
	return added
}

// Len returns how many clients have a request in flight.
func (c *Clients) Len() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, known := range s.clients {
			if known.inFlight > 0 {
				n++
			}
		}
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
	addr := countedClient(t.r)
	if !addr.IsValid() { // no connection of a network
		return true
	}
	counted, limit := cfg.Clients.Enter(addr, cfg.MaxInFlightPerClient, cfg.MaxInFlight)
	if counted == nil {
		t.exceeds(service, wire.CodeClientLimit, fmt.Sprintf("this relay carries %d requests of this client, as many as it takes of one now", limit))
		return false
	}
	t.client = counted
	return true
}

// countedClient returns the address by which the requests of a client are counted. A proxy on this
// host, which any number of clients may use, names the client last in X-Forwarded-For, or in
// X-Real-Ip. That is believed for this purpose only: a process on this host could use many addresses
// of it anyway.
func countedClient(r *http.Request) netip.Addr {
	peer := remoteAddr(r.RemoteAddr)
	if !peer.IsLoopback() {
		return handshake.SourceOf(peer).Addr()
	}
	for _, field := range [...]string{forwardedFor, "X-Real-Ip"} {
		if values := r.Header[field]; len(values) > 0 {
			last := values[len(values)-1]
			if addr, err := netip.ParseAddr(strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])); err == nil {
				return handshake.SourceOf(addr).Addr()
			}
		}
	}
	return handshake.SourceOf(peer).Addr()
}
