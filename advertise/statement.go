package advertise

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership/identity"
)

// RelayStatement is what one life of a relay states to the other members. Only that relay
// writes it. Statements of a view are shared: do not change them.
type RelayStatement struct {
	// Traffic is what the relay carries, each service once, at most [MaxTraffic]. A service
	// that is not listed has no statement.
	Traffic []Traffic `json:"traffic,omitempty"`
	// Plan are the settings with which the relay plans; the zero value states none.
	Plan PlanSettings `json:"plan,omitzero"`
}

// Traffic is how many requests of one service a relay carries.
type Traffic struct {
	Service string `json:"service"`
	// Rate is in requests per second, 0 to [MaxTrafficRate].
	Rate int32 `json:"rate"`
}

// PlanSettings are the settings with which a relay plans. This package does not validate the
// content of Body; relays do.
type PlanSettings struct {
	// Version orders the settings of a fleet; 0 means that the relay follows only its own
	// configuration.
	Version uint64 `json:"version"`
	// Author is the node id of the relay from whose configuration the settings are; empty
	// means the relay that states them.
	Author string `json:"author,omitempty"`
	// Body is the text of the settings, at most [MaxPlanBody] bytes of printable ASCII.
	Body string `json:"body,omitempty"`
}

// Limits of a statement.
const (
	MaxTraffic     = 64      // services with traffic per statement
	MaxTrafficRate = 1 << 24 // requests per second
	MaxPlanBody    = 4 << 10 // bytes of the text of the settings
)

func (s *RelayStatement) equal(o *RelayStatement) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.Plan == o.Plan && slices.Equal(s.Traffic, o.Traffic)
}

func (s *RelayStatement) validate() error {
	if len(s.Traffic) > MaxTraffic {
		return refuse("traffic", "traffic of %d services: want at most %d", len(s.Traffic), MaxTraffic)
	}
	seen := make(map[string]struct{}, len(s.Traffic))
	for _, t := range s.Traffic {
		if err := affinity.ValidateService(t.Service); err != nil {
			return refuse("traffic", "%v", err)
		}
		if t.Rate < 0 || t.Rate > MaxTrafficRate {
			return refuse("traffic", "service %q: traffic of %d requests/s: want 0 to %d", t.Service, t.Rate, MaxTrafficRate)
		}
		if _, twice := seen[t.Service]; twice {
			return refuse("traffic", "traffic of service %q twice: want it once", t.Service)
		}
		seen[t.Service] = struct{}{}
	}
	if len(s.Plan.Body) > MaxPlanBody || !printable(s.Plan.Body) {
		return refuse("plan", "plan settings of %d bytes: want at most %d, printable ASCII", len(s.Plan.Body), MaxPlanBody)
	}
	if len(s.Plan.Author) > MaxNodeIDBytes || !printable(s.Plan.Author) {
		return refuse("plan", "plan settings by %.40q: want a node id of at most %d bytes, printable ASCII", s.Plan.Author, MaxNodeIDBytes)
	}
	return nil
}

// wireStated is the one element in the list of services of a relay's record: a service as
// earlier releases read it, and the statement. Those releases check the signature, which
// covers both, and refuse the record because its member is no worker.
type wireStated struct {
	wireService
	Statement wireStatement
}

type wireStatement struct {
	Traffic []wireTraffic
	Version uint64
	Author  string
	Body    string
}

type wireTraffic struct {
	Service string
	Rate    int32
}

const (
	statementFields = 4
	trafficFields   = 2
)

func (s *RelayStatement) wire() []wireStated {
	out := wireStatement{Version: s.Plan.Version, Author: s.Plan.Author, Body: s.Plan.Body}
	for _, t := range s.Traffic {
		out.Traffic = append(out.Traffic, wireTraffic(t))
	}
	return []wireStated{{wireService{Name: "relay", Address: "relay:1", Weight: affinity.DefaultWeight}, out}}
}

// readStatement reads the statement of a relay, nil if there is none.
func readStatement(r *reader) *RelayStatement {
	if len(r.rest) > 0 && r.rest[0] == 0xc0 {
		r.take(1)
		return nil
	}
	s := &RelayStatement{}
	tuple(r, statementFields, func() {
		if n := r.array(MaxTraffic, "traffic"); n > 0 {
			s.Traffic = make([]Traffic, 0, n)
			for range n {
				var t Traffic
				tuple(r, trafficFields, func() { t = Traffic{r.string(affinity.MaxServiceName, "traffic"), r.smallInt()} })
				s.Traffic = append(s.Traffic, t)
			}
		}
		s.Plan = PlanSettings{r.uint(), r.string(MaxNodeIDBytes, "plan"), r.string(MaxPlanBody, "plan")}
	})
	return s
}

// State replaces the statement of this relay. If it returns an error, which names the value
// and what is allowed, nothing has changed; on members that are not relays it always fails. The
// record is published as [Catalogue.Offer] publishes one. Safe for concurrent use.
func (c *Catalogue) State(s RelayStatement) error {
	if id, role := c.self(); id != "" && role != identity.RoleRelay {
		return refuse("role", "member %q has the role %s: only relays state their traffic and their plan", id, role)
	}
	if err := s.validate(); err != nil {
		return err
	}
	s.Traffic = slices.SortedFunc(slices.Values(s.Traffic), func(a, b Traffic) int { return strings.Compare(a.Service, b.Service) })
	c.mu.Lock()
	c.stated = &s
	c.mu.Unlock()
	c.wakeOwn()
	return nil
}

// Relays are the statements of the live relays at one moment. They are immutable; while no
// statement changes, successive views have the same *Relays, and a statement that does not
// change keeps its pointer: compare pointers to detect a change.
type Relays struct{ of map[string]*RelayStatement }

// All yields the relays that state something, sorted by node id, with their statements.
func (r *Relays) All() iter.Seq2[string, *RelayStatement] {
	return func(yield func(string, *RelayStatement) bool) {
		for _, id := range slices.Sorted(maps.Keys(r.of)) {
			if !yield(id, r.of[id]) {
				return
			}
		}
	}
}

// with returns the statements after the changes, the same if there are none. A nil statement
// is removed.
func (r *Relays) with(changes map[string]*RelayStatement) *Relays {
	if len(changes) == 0 {
		return r
	}
	next := &Relays{maps.Clone(r.of)}
	if next.of == nil {
		next.of = map[string]*RelayStatement{}
	}
	for id, s := range changes {
		if s == nil {
			delete(next.of, id)
		} else {
			next.of[id] = s
		}
	}
	return next
}

// Of returns the statement of a relay, nil if there is none.
func (r *Relays) Of(id string) *RelayStatement { return r.of[id] }

// Len returns the number of relays that state something.
func (r *Relays) Len() int { return len(r.of) }

var noRelays = &Relays{}

// Relays returns the statements of the live relays, never nil.
func (v *View) Relays() *Relays {
	if v.relays == nil {
		return noRelays
	}
	return v.relays
}
