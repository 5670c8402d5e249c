package relay

import (
	"net/http"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/internal/relay/ingress"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/selection"
)

// SelectionAnswer is how the endpoints of a service are picked.
type SelectionAnswer struct {
	// Strategy is its name; Parameters are all that it has, by name, those with their
	// defaults included.
	Strategy   string            `json:"strategy"`
	Parameters map[string]string `json:"parameters,omitempty"`
	// Text is both, as a setting would say it.
	Text string `json:"text"`
	// Origin is service_setting, advertisement, setting or default.
	Origin routing.Origin `json:"origin"`
	// UnknownPreferred are preferred nodes that do not offer the service.
	UnknownPreferred []string `json:"unknown_preferred,omitempty"`
}

func describeSelection(s *routing.Service) SelectionAnswer {
	c := s.Choice()
	a := SelectionAnswer{Strategy: c.Spec.Name, Parameters: c.Spec.Parameters(), Text: c.Spec.String(), Origin: c.Origin}
	if s.Route().Affine() { // who forwards has no range, in which every node is unknown
		a.UnknownPreferred = c.UnknownPreferred()
	}
	return a
}

// RouteAnswer says where a request with a key would go, and why.
type RouteAnswer struct {
	Service string `json:"service"`
	Relay   string `json:"relay"`
	Role    string `json:"role"` // affine, forwarding or none
	Key     string `json:"key,omitempty"`
	// Decision is how an endpoint is picked; nil when forwarding.
	Decision *routing.Decision `json:"decision,omitempty"`
	// Relays are those to forward to, in the order in which they are asked: the
	// primaries in turn, except that a key stays with the one it had, then the
	// backups. Nil when affine.
	Relays []RouteRelay `json:"relays,omitempty"`
	// Next is the one of Relays that the request would go to now, and NextReason why;
	// empty when affine, and when there is none.
	Next       string `json:"next,omitempty"`
	NextReason string `json:"next_reason,omitempty"`
}

// RouteRelay is one relay that the service can be forwarded to.
type RouteRelay struct {
	Relay   string `json:"relay"`
	Address string `json:"address"`
	// Role is primary, backup or joining; empty for one that is not connected to.
	Role   string `json:"role,omitempty"`
	Health string `json:"health,omitempty"`
	// EstimateMs is what draws compare: expected latency, milliseconds.
	EstimateMs float64 `json:"estimate_ms"`
	InFlight   int     `json:"in_flight"`
}

func (r *Relay) showRoute(w http.ResponseWriter, req *http.Request, s *routing.Service) {
	route, key := s.Route(), ingress.BoundedKey(req.URL.Query().Get("key"))
	a := RouteAnswer{Service: s.Name, Relay: r.cfg.Membership.ID, Role: role(route), Key: key}
	if route.Affine() {
		d := s.Explain(key, selection.Instant(time.Since(r.epoch)))
		a.Decision = &d
	} else {
		a.Relays = routeRelays(s)
		a.Next, a.NextReason = nextRelay(s, key, a.Relays)
	}
	admin.WriteJSON(w, http.StatusOK, a)
}

// nextRelay is the relay that a request with the key would be forwarded to now.
func nextRelay(s *routing.Service, key string, relays []RouteRelay) (id, reason string) {
	if len(relays) == 0 {
		return "", ""
	}
	first := relays[0]
	if key != "" {
		if id, bound := s.Relays().Bound(key); bound {
			return id, "the key sticks to it"
		}
		if first.Role == "primary" {
			return first.Relay, "its turn among the primaries; the key will stick to it"
		}
	}
	if first.Role == "primary" {
		return first.Relay, "its turn among the primaries"
	}
	return first.Relay, "no primary is connected, and it is the first " + first.Role
}

// routeRelays are the relays that a service is forwarded to, those that are asked
// first in front.
func routeRelays(s *routing.Service) []RouteRelay {
	out := []RouteRelay{}
	forwarding, peers := describeForwarding(s)
	if forwarding == nil {
		return out
	}
	order := slices.Concat(forwarding.Primaries, forwarding.Backups, forwarding.Joining)
	for _, id := range order {
		i := slices.IndexFunc(peers, func(p peerDescription) bool { return p.Node == id })
		if i < 0 {
			continue
		}
		p := peers[i]
		out = append(out, RouteRelay{Relay: p.Node, Address: p.Address, Role: p.Role, Health: p.Health, EstimateMs: p.Score, InFlight: p.InFlight})
	}
	return out
}
