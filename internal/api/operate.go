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
