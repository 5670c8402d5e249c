package api

import (
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
)

// Error is the answer to a request that failed.
type Error struct {
	Error string `json:"error"`
}

// Health is the answer to GET /healthz and /readyz.
type Health struct {
	// Reasons are why the process should get no traffic; absent if it should.
	Reasons []string `json:"reasons,omitempty"`
	Status  string   `json:"status"` // ok, ready or not_ready
}

// Members is the answer to GET /api/v1/members.
type Members struct {
	Members []membership.Member `json:"members"`
	// Self is the member that answers.
	Self string `json:"self"`
	// Unproven are the instances that gossip reports without a certificate that was checked.
	// Some may have the id of a member. Absent without certificates.
	Unproven []membership.Unproven `json:"unproven,omitzero"`
	// Version counts the views of this member.
	Version uint64 `json:"version"`
}

// Departures is the answer to GET /api/v1/departures.
type Departures struct {
	// Degraded: this member may be cut off from the cluster.
	Degraded bool `json:"degraded"`
	// Departed are the members that left or failed in the last hour and are not back,
	// sorted by id.
	Departed []membership.Departure `json:"departed"`
}

// Checksum is the answer to GET /api/v1/checksum: members with the same view have the same
// values, in hexadecimal.
type Checksum struct {
	Members  string `json:"members"` // empty soon after the start
	Services string `json:"services"`
}

// Config is the answer to GET /api/v1/config.
type Config struct {
	// ID is the id of the process; absent in settings that no process uses.
	ID string `json:"id,omitempty"`
	// Settings are those in effect, secrets redacted, in the order of their declaration.
	Settings []Setting `json:"settings"`
}

// Setting is one setting with its value.
type Setting struct {
	Name   string `json:"name"`
	Group  string `json:"group"`
	Type   string `json:"type"`
	Value  string `json:"value"`  // as written in a configuration
	Origin string `json:"origin"` // flag, environment, line of the file or default
	Secret bool   `json:"secret,omitempty"`
}

// Settings returns the values of settings as an answer has them.
func Settings(values []settings.Value) []Setting {
	out := make([]Setting, len(values))
	for i, v := range values {
		out[i] = Setting{v.Name, v.Group, v.Type, v.Value, v.Origin.String(), v.Secret}
	}
	return out
}
