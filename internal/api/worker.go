package api

import (
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/settings"
)

// WorkerDrainRequest is the body of POST /api/v1/drain and /api/v1/undrain of a worker. The
// query ?service=NAME, repeated, is an alternative.
type WorkerDrainRequest struct {
	// Services are the services to drain or undrain; empty: all, including services added
	// later.
	Services []string `json:"services"`
}

// WorkerServices is the answer of a worker to GET /api/v1/services, drain and undrain.
type WorkerServices struct {
	Worker string `json:"worker"`
	// Draining: the worker stops.
	Draining bool            `json:"draining"`
	Services []WorkerService `json:"services"`
	// Announced: the drain or undrain was passed to gossip in time. Absent in the answer to
	// GET.
	Announced *bool `json:"announced,omitempty"`
}

// WorkerService is the state of one service for operators.
type WorkerService struct {
	advertise.Service
	State string `json:"state"` // offered, unhealthy or draining
	// Since is the time of the last change of State.
	Since time.Time `json:"since"`
	// Drained: an operator drained it, whatever the result of its check.
	Drained bool   `json:"drained"`
	Source  string `json:"source"` // flag or file
	// Check is the kind of its check, if it has one: tcp, http or grpc.
	Check string `json:"check,omitempty"`
	// Error is why it is unhealthy, or why the newest check of a healthy one failed.
	Error string `json:"error,omitempty"`
}

// WorkerReload is the answer of a worker to POST /api/v1/reload. All lists are sorted.
type WorkerReload struct {
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
	// Settings are the settings, other than services, that a reload changed.
	Settings []settings.Change `json:"settings,omitempty"`
	// NeedsRestart names the settings whose change takes effect at the next start.
	NeedsRestart []string `json:"needs_restart,omitempty"`
}

// Empty reports whether no service changed.
func (r WorkerReload) Empty() bool { return len(r.Added)+len(r.Changed)+len(r.Removed) == 0 }
