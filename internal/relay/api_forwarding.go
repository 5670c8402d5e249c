package relay

import (
	"time"

	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/selection/pool"
)

// forwardingDescription is how a service is forwarded.
type forwardingDescription struct {
	Primaries  []string `json:"primaries"`  // they take turns, in this order
	Backups    []string `json:"backups"`    // connected, promoted in this order
	Joining    []string `json:"joining"`    // being connected
	Candidates []string `json:"candidates"` // best first
	Reach      string   `json:"reach"`      // how far candidates may be
	Bindings   int      `json:"bindings"`   // keys that stick to a relay
}

// relayDescription is what a relay that is forwarded to has more than a worker.
type relayDescription struct {
	Role        string  `json:"role,omitempty"` // primary, backup, or none
	Tier        string  `json:"tier,omitempty"`
	Health      string  `json:"health,omitempty"`
	P99ms       float64 `json:"p99_ms,omitempty"`
	Consecutive int     `json:"consecutive_failures,omitempty"`
	OutForMs    int64   `json:"out_for_ms,omitempty"` // until it may be connected to again
}

// describeForwarding says which relays serve a service and which of them this one is
// connected to.
func describeForwarding(s *routing.Service) (*forwardingDescription, []peerDescription) {
	peers := []peerDescription{}
	relays := s.Relays()
	if relays == nil {
		return nil, peers
	}
	status := relays.Status()
	for _, p := range status.Peers {
		d := peerDescription{
			Node: p.ID, Address: p.Address, Connected: p.Role != pool.NoRole, Weight: p.Weight, State: p.Role.String(),
			EWMAms: milliseconds(p.Latency), InFlight: p.InFlight, Requests: p.Requests, Failures: p.Failures,
			ErrorRate: p.ErrorRate, Score: milliseconds(p.Estimate), LastReason: p.Reason,
			relayDescription: relayDescription{
				Role: p.Role.String(), Tier: p.Tier.String(), Health: string(p.Health),
				P99ms: milliseconds(p.Percentile), Consecutive: p.Consecutive,
			},
		}
		if p.Health == pool.Out {
			d.State = string(pool.Out)
			d.OutForMs = max(0, time.Until(p.OutUntil).Milliseconds())
		}
		peers = append(peers, d)
	}
	list := func(ids []string) []string { return append([]string{}, ids...) } // [], not null
	return &forwardingDescription{
		Primaries: list(status.Primaries), Backups: list(status.Backups), Joining: list(status.Joining),
		Candidates: list(status.Candidates), Reach: status.Reach.String(), Bindings: status.Bindings,
	}, peers
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
