package relay

import (
	"net/http"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/selection"
)

// SelectionAnswer is how the endpoints of a service are picked.
type SelectionAnswer struct {
	// Strategy is its name; Parameters are all its parameters by name, including those with
	// their defaults.
	Strategy   string            `json:"strategy"`
	Parameters map[string]string `json:"parameters,omitempty"`
	// Text is both in the form of a setting.
	Text string `json:"text"`
	// Origin is service_setting, advertisement, setting or default.
	Origin routing.Origin `json:"origin"`
	// UnknownPreferred are preferred nodes that do not offer the service.
	UnknownPreferred []string `json:"unknown_preferred,omitempty"`
}

func describeSelection(s *routing.Service) SelectionAnswer {
	c := s.Choice()
	a := SelectionAnswer{Strategy: c.Spec.Name, Parameters: c.Spec.Parameters(), Text: c.Spec.String(), Origin: c.Origin}
	if s.Route().Affine() { // a forwarding relay has no range, so every node would be unknown
		a.UnknownPreferred = c.UnknownPreferred()
	}
	return a
}

// RouteAnswer describes where a request with a key would go, and why.
type RouteAnswer struct {
	Service string `json:"service"`
	Relay   string `json:"relay"`
	Role    string `json:"role"` // affine, forwarding or none
	Key     string `json:"key,omitempty"`
	// SessionCookie is the name of the service's cookie, empty without one: a request with a
	// valid cookie goes to the worker that the cookie names. Decision and Relays are for a
	// request without it.
	SessionCookie string `json:"session_cookie,omitempty"`
	// Decision is how an endpoint is picked; nil if this relay forwards.
	Decision *routing.Decision `json:"decision,omitempty"`
	// Relays are the relays to forward to, in the order of use: the primaries in turn,
	// except that a key stays with its relay, then the backups. Nil if this relay is affine.
	Relays []RouteRelay `json:"relays,omitempty"`
	// Next is the one of Relays that the request would go to now, and NextReason why; empty
	// if this relay is affine, and if there is none.
	Next       string `json:"next,omitempty"`
	NextReason string `json:"next_reason,omitempty"`
}

// RouteRelay is one relay that the service can be forwarded to.
type RouteRelay struct {
	Relay   string `json:"relay"`
	Address string `json:"address"`
	// Role is primary, backup or joining; empty for a relay that is not connected.
	Role   string `json:"role,omitempty"`
	Health string `json:"health,omitempty"`
	// EstimateMs is the expected latency in milliseconds, by which draws compare relays.
	EstimateMs float64 `json:"estimate_ms"`
	InFlight   int     `json:"in_flight"`
}

func (r *Relay) showRoute(w http.ResponseWriter, req *http.Request, s *routing.Service) {
	route, key := s.Route(), ingress.BoundedKey(req.URL.Query().Get("key"))
	a := RouteAnswer{Service: s.Name, Relay: r.cfg.Membership.ID, Role: role(route), Key: key, SessionCookie: r.cfg.Choosing.SessionCookies[s.Name]}
	if route.Affine() {
		d := s.Explain(key, selection.Instant(time.Since(r.epoch)))
		a.Decision = &d
	} else {
		a.Relays = routeRelays(s)
		a.Next, a.NextReason = nextRelay(s, key, a.Relays)
	}
	node.WriteJSON(w, http.StatusOK, a)
}

// nextRelay returns the relay that a request with the key would be forwarded to now.
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

// routeRelays returns the relays that a service is forwarded to, in the order of use.
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
