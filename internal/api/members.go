package api

import (
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
)

// MemberState is the state of a member in a list.
type MemberState string

// The states of members.
const (
	MemberAlive MemberState = "alive"
	// MemberDraining is alive, and out of rotation until an operator takes it back.
	MemberDraining MemberState = "draining"
	MemberLeaving  MemberState = "leaving"
	MemberLeft     MemberState = "left"
	MemberFailed   MemberState = "failed"
	// MemberUnproven is reported by gossip without a certificate that was checked.
	MemberUnproven MemberState = "unproven"
)

// ListedMember is a member in the list of all.
type ListedMember struct {
	membership.Member
	State MemberState `json:"state"`
	// Since is when a living member started, when another member left or failed, or since
	// when an unproven member is ignored.
	Since time.Time `json:"since"`
	// Reason is why an unproven member is ignored, and the remedy.
	Reason string `json:"reason,omitempty"`
}

// ListMembers lists the living, the departed and the unproven members, in this order. A
// departed member that is back is listed as living only.
func ListMembers(present Members, departed []membership.Departure) []ListedMember {
	out := make([]ListedMember, 0, len(present.Members)+len(departed)+len(present.Unproven))
	living := make(map[string]bool, len(present.Members))
	for _, m := range present.Members {
		living[m.ID] = true
		state := MemberAlive
		switch {
		case m.Leaving:
			state = MemberLeaving
		case m.Draining:
			state = MemberDraining
		}
		out = append(out, ListedMember{Member: m, State: state, Since: time.UnixMilli(int64(m.Epoch)).UTC()})
	}
	for _, d := range departed {
		if !living[d.Member.ID] {
			out = append(out, ListedMember{Member: d.Member, State: MemberState(d.Reason), Since: d.At})
		}
	}
	for _, u := range present.Unproven {
		out = append(out, ListedMember{Member: membership.Member{ID: u.ID, Epoch: u.Epoch, GossipAddr: u.GossipAddr}, State: MemberUnproven, Since: u.Since, Reason: u.Reason})
	}
	return out
}

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
	// Doubters are members whose doubts about others were denied lately, more than ten times, with
	// the number. They may only have passed on the doubts of another one. Absent if there are none.
	Doubters map[string]uint64   `json:"doubters,omitempty"`
	Members  []membership.Member `json:"members"`
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
