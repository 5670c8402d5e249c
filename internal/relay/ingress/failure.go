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
	CodeNotReady       Code = "not_ready"       // 503: this relay does not know yet who offers it; see Retry-After
	CodeOverloaded     Code = "overloaded"      // 503: too much in flight; see Retry-After
	CodeClientLimit    Code = "client_limit"    // 429: too much of this client in flight; see Retry-After
	CodeTimeout        Code = "timeout"         // 504: no answer within the time
	CodeExhausted      Code = "relay_exhausted" // 503: this relay could open no connection; see Retry-After
	CodeCircuitOpen    Code = "circuit_open"    // 503: the caller's requests failed too often; see Retry-After
)

var statusOf = map[Code]int{
	CodeBadRequest: http.StatusBadRequest, CodeUnknownService: http.StatusNotFound,
	CodeUpstreamFailed: http.StatusBadGateway, CodeNoEndpoint: http.StatusServiceUnavailable,
	CodeNotReady: http.StatusServiceUnavailable, CodeOverloaded: http.StatusServiceUnavailable, CodeTimeout: http.StatusGatewayTimeout,
	CodeCircuitOpen: http.StatusServiceUnavailable, CodeClientLimit: http.StatusTooManyRequests,
	CodeExhausted:   http.StatusServiceUnavailable,
	codeMisdirected: http.StatusMisdirectedRequest,
}

// Attempt is one try, as reported where details are exposed.
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

	detail string        // of Text, for operators: it may name workers, addresses and certificates
	after  time.Duration // Retry-After, rounded up; none if 0
}

// details is the whole text.
func (f failure) details() string {
	if f.detail == "" {
		return f.Text
	}
	return f.Text + ": " + f.detail
}

// overCapacity makes f the answer to a request for which no worker has a slot.
func (f *failure) overCapacity() {
	f.Text, f.Code, f.after = "the workers of this service that this relay can reach have as many requests as they take", CodeOverloaded, retryAfter
}

// retryAfter is what a relay asks for that is overloaded or not ready. A second lets a
// burst pass, and is enough to compare records.
const retryAfter = time.Second

// write answers. Only exposed is the client told what an operator would want to know.
func (f failure) write(w http.ResponseWriter, exposed bool) {
	if exposed {
		f.Text = f.details()
	} else {
		f.Attempts = nil
	}
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
