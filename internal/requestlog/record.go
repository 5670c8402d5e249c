package requestlog

import "time"

// Record holds the facts of one request. Fields without a value are left out of the line.
type Record struct {
	// Time is when the request began.
	Time time.Time
	// ID is the same in the records of all relays of the request.
	ID string
	// Sampled reports whether the ID is in the sample. A record may be kept for another
	// reason: an error, a retry, a long duration.
	Sampled bool
	// Trace is the ID of the trace in hexadecimal digits.
	Trace string
	// Relay is the ID of this relay, From that of the relay that forwarded the request.
	Relay, From string
	// Service is the name that the request gave, even if there is no such service.
	Service string
	// Caller is the sender for the circuits, Client the address of the client. A relay that
	// another one forwards to knows only a caller with a proven name.
	Caller, Client string
	// Session is set for a TCP session, which has no method, target and version of HTTP.
	Session bool
	Method  string
	// Path is escaped, as in the request. Query is without the question mark.
	Path, Query string
	// Protocol is the version of HTTP: "1.0", "1.1" or "2".
	Protocol string
	// Status is what the client got, 0 if it got no answer.
	Status int
	// CallStatus is the name of the status of a gRPC call, such as "UNAVAILABLE".
	CallStatus string
	// Outcome is the class of the status, or cancelled, aborted or failed, as in the metric
	// of requests.
	Outcome string
	// Code is set on answers of the relay itself.
	Code string
	// BytesIn and BytesOut count the bodies, or the bytes through a tunnel.
	BytesIn, BytesOut int64
	// Wait is how long all attempts together waited for an endpoint, Connect for a
	// connection to one.
	Wait, Connect time.Duration
	// FirstByte is the time until the answer of an endpoint began, Total until everything
	// ended.
	FirstByte, Total time.Duration
	// Tunnel reports whether the connection was upgraded.
	Tunnel bool
	// Plan is the version of the plan; see routing.Route.
	Plan uint64
	// Attempts are in order.
	Attempts []Attempt
}

// Attempt is one try to have the request carried.
type Attempt struct {
	// Endpoint is the ID of the worker or relay, Address where it was asked.
	Endpoint, Address string
	// Chosen is why: the strategy, session_cookie, or relay_pool for a relay.
	Chosen string
	// Status is the status of the answer, 0 if there was none.
	Status int
	// Failure is the stage or the reason of a failed attempt, as in the metric of retries;
	// Error has the details.
	Failure, Error string
	// Code is set if the endpoint is a relay and the answer its own.
	Code string
	// Began counts from the beginning of the request.
	Began time.Duration
	// Wait is how long no endpoint was available, Connect how long the attempt waited for a
	// connection, Took the time until the answer began or the attempt failed.
	Wait, Connect, Took time.Duration
	// Reused reports whether a warm connection carried the attempt.
	Reused bool
}

// Failed reports whether the request is an error: a status of 500 or above, an answer of
// the relay itself, an answer that broke off, or a call of gRPC that a server failed
// (OpenTelemetry's classification of statuses).
func (r *Record) Failed() bool {
	return CallFailed(r.CallStatus) || r.Status >= 500 || r.Code != "" || r.Outcome == Aborted
}

// CallFailed reports whether the server is the cause of the status of a call of gRPC, by its name.
func CallFailed(status string) bool {
	switch status {
	case "UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS":
		return true
	}
	return false
}

// Aborted is the outcome of a request whose answer broke off.
const Aborted = "aborted"
