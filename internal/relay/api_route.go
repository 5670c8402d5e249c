package relay

import (
	"net/http"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/selection"
)

func describeSelection(s *routing.Service) api.Selection {
	c := s.Choice()
	a := api.Selection{Strategy: c.Spec.Name, Parameters: c.Spec.Parameters(), Text: c.Spec.String(), Origin: c.Origin}
	if s.Route().Affine() { // a forwarding relay has no range, so every node would be unknown
		a.UnknownPreferred = c.UnknownPreferred()
	}
	return a
}

// sessionCookie returns the name of the cookie of a service, empty without one.
func (r *Relay) sessionCookie(s *routing.Service) string {
	name, _ := r.cfg.Choosing.SessionCookie(s.Name, s.Route().Policy)
	return name
}

func (r *Relay) showRoute(w http.ResponseWriter, req *http.Request, s *routing.Service) {
	route, key := s.Route(), ingress.BoundedKey(req.URL.Query().Get("key"))
	a := api.Route{Service: s.Name, Relay: r.cfg.Membership.ID, Role: role(route), Key: key, SessionCookie: r.sessionCookie(s)}
	if route.Affine() {
		d := s.Explain(key, selection.Instant(time.Since(r.Epoch())))
		a.Decision = &d
	} else {
		a.Relays = routeRelays(s)
		a.Next, a.NextReason = nextRelay(s, key, a.Relays)
	}
	node.WriteJSON(w, http.StatusOK, a)
}

// nextRelay returns the relay that a request with the key would be forwarded to now.
func nextRelay(s *routing.Service, key string, relays []api.RouteRelay) (id, reason string) {
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
func routeRelays(s *routing.Service) []api.RouteRelay {
	out := []api.RouteRelay{}
	forwarding, peers := describeForwarding(s)
	if forwarding == nil {
		return out
	}
	order := slices.Concat(forwarding.Primaries, forwarding.Backups, forwarding.Joining)
	for _, id := range order {
		i := slices.IndexFunc(peers, func(p api.Peer) bool { return p.Node == id })
		if i < 0 {
			continue
		}
		p := peers[i]
		out = append(out, api.RouteRelay{Relay: p.Node, Address: p.Address, Role: p.Role, Health: p.Health, EstimateMs: p.Score, InFlight: p.InFlight})
	}
	return out
}
