package api

import (
	"slices"
	"time"
)

// Status is the severity of a finding of a check.
type Status string

// The statuses, from good to bad.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
)

// Finding is one result of one check.
type Finding struct {
	// Check is the name of the check, Status its result.
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Subject is the member or service concerned; empty for the whole cluster.
	Subject string `json:"subject,omitempty"`
	// Text is the finding, Cause its reason or consequence, Remedy what to do.
	Text   string `json:"text"`
	Cause  string `json:"cause,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Page is the page of the manual, below the root of the repository.
	Page string `json:"page,omitempty"`

	// Passing means that the finding may pass by itself, for example while gossip spreads.
	Passing bool `json:"-"`
}

// Report is the answer to GET /api/v1/check.
type Report struct {
	// Relay is the relay that checked, Time when, by its clock.
	Relay string    `json:"relay"`
	Time  time.Time `json:"time"`
	// Status is the worst of the findings.
	Status   Status    `json:"status"`
	Warnings int       `json:"warnings"`
	Failures int       `json:"failures"`
	Findings []Finding `json:"findings"` // in the order of the checks
}

// Passing reports whether there is a problem that may pass by itself.
func (r *Report) Passing() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Status != OK && f.Passing })
}
