package api

import (
	"time"

	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
)

// KeysRequest is the body of POST /api/v1/keys.
type KeysRequest struct {
	// Operation is install, use or remove.
	Operation membership.KeyOperation `json:"operation"`
	// Argument is the key for install, a fingerprint for the others.
	Argument string `json:"argument"`
}

// Keys is the answer to both methods.
type Keys struct {
	Members []membership.KeyResult `json:"members"`
	Error   string                 `json:"error,omitempty"`
}

// Drain is the answer to POST /api/v1/drain and /api/v1/undrain.
type Drain struct {
	Relay    string `json:"relay"`
	Draining bool   `json:"draining"`
	// Since is when the drain began; absent without one.
	Since time.Time `json:"since,omitzero"`
	// InFlight counts the requests of all services, including those of other relays.
	InFlight int64 `json:"in_flight"`
}

// Reload is the answer to POST /api/v1/reload.
type Reload struct {
	Relay string `json:"relay"`
	// Applied are in effect now, NeedsRestart at the next start.
	Applied      []settings.Change `json:"applied"`
	NeedsRestart []settings.Change `json:"needs_restart"`
}

// DefaultRebalanceRate is how many sessions per second a rebalance asks to go.
const DefaultRebalanceRate = 10

// The states of a Rebalance.
const (
	RebalancePlanned = "planned"
	RebalanceRunning = "running"
	RebalanceDone    = "done"
)

// Rebalance is the answer to GET /api/v1/services/{name}/rebalance, and each line of the
// answer to POST: the plan, the progress every second, and the end.
type Rebalance struct {
	Relay   string `json:"relay"`
	Service string `json:"service"`
	// Role is that of the relay; only an affine one has sessions with workers.
	Role  string `json:"role"`
	State string `json:"state"`
	// Rate is in sessions per second.
	Rate float64 `json:"rate"`
	// Asked counts the sessions that were asked to go.
	Asked   int                `json:"asked"`
	Workers []RebalancedWorker `json:"workers"`
	// AskInstead are the relays that have the sessions of a relay that forwards.
	AskInstead []string `json:"ask_instead,omitempty"`
	// Reason is why it has ended.
	Reason string `json:"reason,omitempty"`
}

// RebalancedWorker is a worker of the relay's range.
type RebalancedWorker struct {
	Worker string `json:"worker"`
	// Weight is its part of new sessions, relative to the others.
	Weight float64 `json:"weight"`
	// Sessions are those that the relay has open to it, Share how many it would have if the
	// sessions followed the weights, Surplus how many a rebalance asks to go.
	Sessions int `json:"sessions"`
	Share    int `json:"share"`
	Surplus  int `json:"surplus"`
	// Bound sessions would come back to the same worker, NoClose have no close frame that
	// asks their clients to go.
	Bound   int `json:"bound"`
	NoClose int `json:"no_close"`
	// Asked counts the sessions that were asked to go.
	Asked int `json:"asked"`
	// Out is why the worker gets no new sessions. Joining means that it gets few for some
	// seconds, because it has just joined; a rebalance waits for that.
	Out     string `json:"out,omitempty"`
	Joining bool   `json:"joining,omitempty"`
}
