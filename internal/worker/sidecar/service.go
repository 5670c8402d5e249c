package sidecar

import (
	"fmt"
	"sync/atomic"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/relay/upstream"
)

// service is one local service.
type service struct {
	name, address string
	protocol      upstream.Protocol
	pool          *upstream.Pool
	// upgrades carries what changes its protocol when pool speaks HTTP/2, which
	// knows no such thing; nil when pool can. It holds no connection before the
	// first.
	upgrades *upstream.Pool
	*counters
}

// counters outlive a change of address.
type counters struct {
	inFlight atomic.Int64
	slots    atomic.Int64 // the most that may be in flight, 0 for any number
	results  [len(results)]atomic.Uint64
}

// result is how a request ended: the class of the status, or what stands behind
// the classes. It is an index, so that counting looks up no label.
type result int

const (
	resultUnsent    result = iota + 6 // behind 0xx to 5xx
	resultSent                        // no answer, although it was sent
	resultAborted                     // the answer broke off
	resultCancelled                   // the relay broke off
	resultRejected                    // the request cannot be carried
	resultFull                        // all slots were taken
)

var results = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx", "unsent", "sent", "aborted", "cancelled", "rejected", "full"}

// enter counts one more request as in flight, unless as many as there are slots are.
// Each request that it counts is given back with inFlight.Add(-1).
func (c *counters) enter() bool {
	for {
		n, slots := c.inFlight.Load(), c.slots.Load()
		if slots > 0 && n >= slots {
			return false
		}
		// Not Add, which would count those that are refused for a moment, and make
		// others be refused for them.
		if c.inFlight.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func resultOfStatus(status int) result {
	return result(min(max(status/100, 0), 5)) // 6xx and above are no statuses
}

// newService makes the pools of a service; known, when not nil, is what the name
// meant before.
func newService(offered advertise.Service, known *service) (*service, error) {
	if !Carries(offered.Protocol) {
		return nil, fmt.Errorf("service %q: protocol %q cannot be carried by the sidecar: allowed are http1 and h2c", offered.Name, offered.Protocol)
	}
	s := &service{name: offered.Name, address: offered.Address, protocol: protocolOf(offered), counters: new(counters)}
	if known != nil {
		s.counters = known.counters
	}
	var err error
	if s.pool, err = upstream.NewPool(upstream.Config{Address: s.address, Protocol: s.protocol}); err != nil {
		return nil, fmt.Errorf("service %q: %w", offered.Name, err)
	}
	if s.protocol == upstream.H2C {
		if s.upgrades, err = upstream.NewPool(upstream.Config{Address: s.address, Protocol: upstream.HTTP1}); err != nil {
			return nil, fmt.Errorf("service %q: %w", offered.Name, err)
		}
	}
	return s, nil
}

func protocolOf(offered advertise.Service) upstream.Protocol {
	if offered.Protocol == "" {
		return upstream.HTTP1
	}
	return upstream.Protocol(offered.Protocol)
}

// fronts reports whether s is already what is offered.
func (s *service) fronts(offered advertise.Service) bool {
	return s.address == offered.Address && s.protocol == protocolOf(offered)
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
