package api

import (
	"github.com/ringway/ringway/advertise"
)

// Services is the answer to GET /api/v1/services.
type Services struct {
	Relay    string          `json:"relay"`
	Services []ListedService `json:"services"` // by name
}

// ListedService is one service in the list.
type ListedService struct {
	ServiceSummary
	// Ready is how many of the endpoints take requests: they are not draining.
	Ready int `json:"ready"`
	// Relays is how many relays serve the service.
	Relays    int    `json:"relays"`
	RangeText string `json:"range_text,omitempty"`
	// Requests is how many requests this relay has finished since it started.
	Requests uint64 `json:"requests"`
}

// ServiceSummary has the fields that the list and the description of a service share.
type ServiceSummary struct {
	Service   string `json:"service"`
	Role      string `json:"role"`
	Endpoints int    `json:"endpoints"`
	Range     int    `json:"range"`
	InFlight  int64  `json:"in_flight"`
}

// Service is the answer to GET /api/v1/services/{name}.
type Service struct {
	ServiceSummary
	Relay        string                `json:"relay"`
	Index        int                   `json:"index"` // -1 if this relay forwards
	AffineRelays []string              `json:"affine_relays"`
	RangeText    string                `json:"range_text,omitempty"`
	Selection    Selection             `json:"selection"`
	Policy       []PolicyField         `json:"policy"`
	Forwarding   *Forwarding           `json:"forwarding,omitempty"`
	Peers        []Peer                `json:"peers"`
	Catalogue    []*advertise.Endpoint `json:"catalogue"`
}

// Peer is one endpoint of the range, or one relay to forward to.
type Peer struct {
	Node       string  `json:"node"`
	Address    string  `json:"address"`
	Connected  bool    `json:"connected"`
	Weight     float64 `json:"weight"`
	State      string  `json:"state"`
	EWMAms     float64 `json:"ewma_ms"`
	InFlight   int     `json:"in_flight"`
	Limit      int     `json:"limit,omitempty"` // of in_flight: this relay's share of the slots
	Requests   uint64  `json:"requests"`
	Failures   uint64  `json:"failures"`
	ErrorRate  float64 `json:"error_rate"`
	Score      float64 `json:"score"` // milliseconds
	LastReason string  `json:"last_reason,omitempty"`
	PeerRelay
}

// Forwarding is how a service is forwarded.
type Forwarding struct {
	Primaries  []string `json:"primaries"`  // used in turn, in this order
	Backups    []string `json:"backups"`    // connected, promoted in this order
	Joining    []string `json:"joining"`    // being connected
	Candidates []string `json:"candidates"` // best first
	Reach      string   `json:"reach"`      // how far candidates may be
	Bindings   int      `json:"bindings"`   // keys bound to a relay
}

// PeerRelay has the fields of a relay to forward to that a worker does not have.
type PeerRelay struct {
	Role        string  `json:"role,omitempty"` // primary, backup, or none
	Tier        string  `json:"tier,omitempty"`
	Health      string  `json:"health,omitempty"`
	P99ms       float64 `json:"p99_ms,omitempty"`
	Consecutive int     `json:"consecutive_failures,omitempty"`
	OutForMs    int64   `json:"out_for_ms,omitempty"` // until it may be connected to again
}

// PolicyField is one field of the policy in effect for the requests to a service.
type PolicyField struct {
	Key string `json:"key"`
	// Value is empty for no limit. That of slots, which are of each worker, is a number, or as in
	// "20 to 50" or "20 or none" where workers advertise different ones. The field session-cookie
	// is absent for a service without one, and empty if the settings take it away.
	Value string `json:"value"`
	// Origin is service_setting, setting (--service-policy for all services), advertisement or
	// default (the other settings of this relay).
	Origin Origin `json:"origin"`
}

// Selection is how the endpoints of a service are picked.
type Selection struct {
	// Strategy is its name; Parameters are all its parameters by name, including those with
	// their defaults.
	Strategy   string            `json:"strategy"`
	Parameters map[string]string `json:"parameters,omitempty"`
	// Text is both in the form of a setting.
	Text string `json:"text"`
	// Origin is service_setting, advertisement, setting or default.
	Origin Origin `json:"origin"`
	// UnknownPreferred are preferred nodes that do not offer the service.
	UnknownPreferred []string `json:"unknown_preferred,omitempty"`
}
