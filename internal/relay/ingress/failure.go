package ingress

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Code says, in an answer of the relay's own, who has to act.
type Code string

// The codes of the relay's own answers, with their HTTP status.
const (
	CodeBadRequest     Code = "bad_request"     // 400: the request names no service, or cannot be carried
	CodeUnknownService Code = "unknown_service" // 404: nobody offers or offered it
	CodeUpstreamFailed Code = "upstream_failed" // 502: every attempt failed
	CodeNoEndpoint     Code = "no_endpoint"     // 503: nobody offers it now
	CodeOverloaded     Code = "overloaded"      // 503: too much in flight; see Retry-After
	CodeTimeout        Code = "timeout"         // 504: no answer within the time
	CodeCircuitOpen    Code = "circuit_open"    // 503: the caller's requests failed too often; see Retry-After
)

var statusOf = map[Code]int{
	CodeBadRequest: http.StatusBadRequest, CodeUnknownService: http.StatusNotFound,
	CodeUpstreamFailed: http.StatusBadGateway, CodeNoEndpoint: http.StatusServiceUnavailable,
	CodeOverloaded: http.StatusServiceUnavailable, CodeTimeout: http.StatusGatewayTimeout,
	CodeCircuitOpen: http.StatusServiceUnavailable,
}

// Attempt is one try, as reported to the client.
type Attempt struct {
	Endpoint string `json:"endpoint"`
	Error    string `json:"error"`
}

// failure is the relay's own answer.
type failure struct {
	Text     string    `json:"error"`
	Code     Code      `json:"code"`
	Service  string    `json:"service,omitempty"`
	Attempts []Attempt `json:"attempts,omitempty"`

	after time.Duration // Retry-After, rounded up; none if 0
}

// retryAfter is what an overloaded relay asks for. A second lets a burst pass.
const retryAfter = time.Second

func (f failure) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if f.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((f.after+time.Second-1)/time.Second)))
	}
	body, _ := json.Marshal(f) // strings always encode
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(statusOf[f.Code])
	_, _ = w.Write(append(body, '\n')) // a client that is gone needs no answer
}
