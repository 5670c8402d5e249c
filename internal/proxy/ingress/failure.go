package ingress

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

var statusOf = map[wire.Code]int{
	wire.CodeBadRequest: http.StatusBadRequest, wire.CodeMethodNotAllowed: http.StatusMethodNotAllowed, wire.CodeUnknownService: http.StatusNotFound,
	wire.CodeUpstreamFailed: http.StatusBadGateway, wire.CodeNoEndpoint: http.StatusServiceUnavailable,
	wire.CodeNotReady: http.StatusServiceUnavailable, wire.CodeOverloaded: http.StatusServiceUnavailable, wire.CodeTimeout: http.StatusGatewayTimeout,
	wire.CodeCircuitOpen: http.StatusServiceUnavailable, wire.CodeClientLimit: http.StatusTooManyRequests, wire.CodeRateLimited: http.StatusTooManyRequests, wire.CodeBlocked: http.StatusForbidden,
	wire.CodeExhausted: http.StatusServiceUnavailable,
	codeMisdirected:    http.StatusMisdirectedRequest,
}

// StatusOf returns the HTTP status of an answer of a relay itself, 502 for a code that is not
// known.
func StatusOf(c wire.Code) int { return cmp.Or(statusOf[c], http.StatusBadGateway) }

// Attempt is one failed attempt, as reported if details are exposed.
type Attempt struct {
	Endpoint string `json:"endpoint"`
	Error    string `json:"error"`
}

// failure is an answer of this relay itself.
type failure struct {
	Text     string    `json:"error"`
	Code     wire.Code `json:"code"`
	Service  string    `json:"service,omitempty"`
	Attempts []Attempt `json:"attempts,omitempty"`

	detail     string        // added to Text for operators: it may name workers, addresses and certificates
	callStatus string        // of gRPC; empty means that of Code
	retryAfter time.Duration // Retry-After, rounded up; 0 means none
	spared     bool          // the service was not asked, or is not the cause
	rate       *rateLimit    // the one that is exceeded, nil without one
	again      []wire.Field  // in place of both, of the relay that has refused
}

// details returns Text with the detail.
func (f failure) details() string {
	if f.detail == "" {
		return f.Text
	}
	return f.Text + ": " + f.detail
}

// overCapacity makes f the answer to a request for which no worker has a slot.
func (f *failure) overCapacity() {
	f.Text, f.Code, f.retryAfter = "the workers of this service that this relay can reach have as many requests as they take", wire.CodeOverloaded, retryAfter
}

// retryAfter is the Retry-After of a relay that is overloaded or not ready. One second
// lets a burst pass, and is enough to compare records.
const retryAfter = time.Second

// writeFailure answers with a failure, and records it.
func (t *request) writeFailure(f failure) {
	status, n := 0, 0
	if t.local != nil {
		t.local.refuse(f)
	} else {
		status, n = t.handler.writeFailure(t.w, t.r, f)
	}
	t.record.refused(&f, status, n)
}

// writeFailure sends the answer in the form that its sender understands: a call of gRPC gets
// a status of gRPC, because gRPC gives up what an HTTP status states. Between relays it is the
// first relay that has the client. It returns the status and the number of bytes of the
// body.
func (h *Handler) writeFailure(w http.ResponseWriter, r *http.Request, f failure) (status, n int) {
	exposed := h.exposes(r)
	if s := sessionOf(r); s != nil {
		s.Refused, s.Detail = f.Code, f.details()
		return
	}
	switch {
	case h.cfg.FromRelay:
		code := f.Code
		switch f.callStatus { // the other relay takes the code for a call of gRPC only
		case unavailable:
			code = wire.CodeUpstreamFailed
		case cancelled:
			code = wire.FailedCancelled
		}
		w.Header()[wire.FailedHeader] = []string{string(code)}
	case wire.IsCall(r):
		f.writeCall(w, exposed)
		return http.StatusOK, 0
	default:
		if b, ok := w.(interface{ Brief() }); ok { // as that of package downstream over HTTP/2
			b.Brief()
		}
	}
	return statusOf[f.Code], f.write(w, exposed)
}

// unavailable is the status of gRPC for what the client may repeat.
const unavailable = "14"

// cancelled is the status of gRPC for a stream that was reset with CANCEL.
const cancelled = "1"

// callStatus has the status of gRPC for each code: what the client may repeat is
// UNAVAILABLE (14), the limits are RESOURCE_EXHAUSTED (8), a lack of time is
// DEADLINE_EXCEEDED (4), a block is PERMISSION_DENIED (7). The others are as gRPC translates the HTTP status: INTERNAL (13)
// and UNIMPLEMENTED (12).
var callStatus = map[wire.Code]string{
	wire.CodeBadRequest: "13", wire.CodeMethodNotAllowed: "12", wire.CodeUnknownService: "12",
	wire.CodeUpstreamFailed: "14", wire.CodeNoEndpoint: "14", wire.CodeNotReady: "14", wire.CodeExhausted: "14", wire.CodeCircuitOpen: "14",
	wire.CodeOverloaded: "8", wire.CodeClientLimit: "8", wire.CodeRateLimited: "8", wire.CodeBlocked: "7",
	wire.CodeTimeout: "4", wire.FailedCancelled: cancelled,
}

// writeCall sends the answer to a call: a head alone, which gRPC calls Trailers-Only.
func (f failure) writeCall(w http.ResponseWriter, exposed bool) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	f.setCallStatus(h, "", exposed)
	f.setRetryAfter(h)
	w.WriteHeader(http.StatusOK)
}

// setCallStatus sets the fields with the status of a call, whose names begin with a prefix.
func (f failure) setCallStatus(h http.Header, prefix string, exposed bool) {
	text := f.Text
	if exposed {
		text = f.details()
	}
	h.Set(prefix+"Grpc-Status", cmp.Or(f.callStatus, callStatus[f.Code], unavailable)) // a later release may have more codes
	h.Set(prefix+"Grpc-Message", callMessage(text))
}

// callMessage encodes a text for Grpc-Message.
func callMessage(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// setRetryAfter sets the fields that state when the request may be tried again.
func (f failure) setRetryAfter(h http.Header) {
	for _, one := range f.again {
		h.Set(one.Name, one.Value)
	}
	if f.retryAfter == 0 {
		return
	}
	seconds := strconv.Itoa(int((f.retryAfter + time.Second - 1) / time.Second))
	h.Set("Retry-After", seconds)
	if f.rate != nil {
		f.rate.fields(h, seconds)
	}
}

// write sends the answer. The client gets the details for operators only if exposed.
func (f failure) write(w http.ResponseWriter, exposed bool) (n int) {
	if exposed {
		f.Text = f.details()
	} else {
		f.Attempts = nil
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	f.setRetryAfter(h)
	body, _ := json.Marshal(f) // strings can always be encoded
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(statusOf[f.Code])
	n, _ = w.Write(append(body, '\n')) // the client may be gone
	return n
}
