package sidecar

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// Service is a service of the worker.
type Service struct {
	advertise.Service
	// ServerName is what the certificate of a service with h2 must be for. Default: the host of
	// its address.
	ServerName string
}

// service is one local service.
type service struct {
	name, address string
	serverName    string
	protocol      advertise.Protocol
	proxyProtocol bool
	pool          *upstream.Pool
	// upgrades carries WebSockets over HTTP/1.1 if pool uses HTTP/2 in clear text and the service
	// accepts none there; otherwise nil. It holds no connection before the first.
	upgrades *upstream.Pool
	*counters
}

// counters stay the same after a change of the address.
type counters struct {
	inFlight atomic.Int64
	slots    atomic.Int64 // the limit in flight, 0 for none
	progress atomic.Int64 // nanoseconds that a request may go on without a byte
	once     atomic.Bool  // a request that may have been acted on is not sent again
	never    atomic.Bool  // nor one that the service has refused unprocessed
	results  [len(results)]atomic.Uint64
}

// result is the result of a request: the class of the status, or one of the constants after
// the classes. It is an array index, so that counting needs no label lookup.
type result int

const (
	resultUnsent    result = iota + 6 // after 0xx to 5xx
	resultSent                        // no answer, although the request was sent
	resultAborted                     // the answer ended early
	resultCancelled                   // the relay cancelled, or the worker stops
	resultRejected                    // the request cannot be carried
	resultFull                        // all slots were in use
	resultUntrusted                   // TLS with the service failed, nothing was sent
)

var results = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx", "unsent", "sent", "aborted", "cancelled", "rejected", "full", "untrusted"}

// enter counts one more request as in flight, unless all slots are in use. The caller must
// end each counted request with inFlight.Add(-1).
func (c *counters) enter() bool {
	for {
		n, slots := c.inFlight.Load(), c.slots.Load()
		if slots > 0 && n >= slots {
			return false
		}
		// Not Add: it would count refused requests for a moment, and other requests would
		// be refused because of them.
		if c.inFlight.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func resultOfStatus(status int) result {
	return result(min(max(status/100, 0), 5)) // 6xx and above are not valid
}

// newService creates the pools of a service; known, if not nil, is the previous service of
// that name.
func (s *Sidecar) newService(offered Service, known *service) (_ *service, err error) {
	one := &service{name: offered.Name, address: offered.Address, serverName: offered.ServerName, protocol: cmp.Or(offered.Protocol, advertise.HTTP1), proxyProtocol: offered.ProxyProtocol, counters: new(counters)}
	if known != nil {
		one.counters = known.counters
	}
	if one.pool, err = upstream.NewPool(upstream.Config{
		Address: one.address, Protocol: one.protocol, Sessions: &s.sessions, Activity: &s.activity, MaxResponseHeaderBytes: s.cfg.MaxAnswerHead,
		TLS: upstream.ServiceTLS{Roots: s.cfg.ServiceRoots, Name: one.serverName},
	}); err != nil {
		return nil, fmt.Errorf("service %q: %w", offered.Name, err)
	}
	if one.protocol == advertise.H2C {
		if one.upgrades, err = upstream.NewPool(upstream.Config{Address: one.address, Protocol: advertise.HTTP1, Sessions: &s.sessions, Activity: &s.activity, MaxResponseHeaderBytes: s.cfg.MaxAnswerHead}); err != nil {
			return nil, fmt.Errorf("service %q: %w", offered.Name, err)
		}
	}
	return one, nil
}

// fronts reports whether s already has the address and the protocols of the offer.
func (s *service) fronts(offered Service) bool {
	return s.address == offered.Address && s.serverName == offered.ServerName && s.protocol == cmp.Or(offered.Protocol, advertise.HTTP1) && s.proxyProtocol == offered.ProxyProtocol
}

func (s *service) pools() []*upstream.Pool {
	if s.upgrades == nil {
		return []*upstream.Pool{s.pool}
	}
	return []*upstream.Pool{s.pool, s.upgrades}
}

// close refuses new requests; those in flight finish.
func (s *service) close() {
	for _, p := range s.pools() {
		p.Close()
	}
}
