package api

import "time"

// ExplainedRequest is the answer to GET /api/v1/requests/{id}/explain: how the endpoints of
// one request were chosen.
type ExplainedRequest struct {
	ID      string `json:"id"`
	Relay   string `json:"relay"`
	Service string `json:"service"`
	// Time is when the request began, DurationMs how long it took.
	Time       time.Time `json:"time"`
	DurationMs float64   `json:"duration_ms"`
	// Status is what the client got, 0 if it got no answer; Outcome and Code are those of the
	// request's record.
	Status  int    `json:"status"`
	Outcome string `json:"outcome"`
	Code    string `json:"code,omitempty"`
	// Attempts are in order.
	Attempts []ExplainedAttempt `json:"attempts"`
}

// ExplainedAttempt is one attempt of an ExplainedRequest.
type ExplainedAttempt struct {
	// Endpoint is empty if none could be chosen.
	Endpoint string `json:"endpoint,omitempty"`
	// ChosenBy is a strategy, session_cookie, or relay_pool.
	ChosenBy string `json:"chosen_by,omitempty"`
	Status   int    `json:"status,omitempty"`
	Failure  string `json:"failure,omitempty"`
	// Decision has the candidates with their scores at the time of the choice, at most 16 of
	// them. It is nil for a relay, which takes its turn in the pool.
	Decision *Decision `json:"decision,omitempty"`
}
