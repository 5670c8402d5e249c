package wire

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// IsCall reports whether r is a call of gRPC.
func IsCall(r *http.Request) bool {
	types := r.Header["Content-Type"]
	return r.ProtoMajor == 2 && len(types) == 1 && CallType(types[0])
}

// Failure is an answer of a worker itself, in the same form as those of relays.
type Failure struct {
	Text    string `json:"error"`
	Code    Code   `json:"code"`
	Service string `json:"service,omitempty"`
}

// RefuseFull answers a request to a service that has as many requests in flight as slots. A call
// of gRPC gets RESOURCE_EXHAUSTED (8), because its clients take any HTTP status of an overload for
// UNAVAILABLE. The HTTP status is not 503: the worker is healthy, and others may have capacity.
func RefuseFull(w http.ResponseWriter, r *http.Request, full Failure, inFlight int64) {
	full.Text, full.Code = "this worker has as many requests of this service in flight as it has slots", CodeOverloaded
	h := w.Header()
	h.Set(LoadHeader, strconv.FormatInt(inFlight, 10))
	h.Set(FailedHeader, FailedFull)
	if IsCall(r) {
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", "8")
		h.Set("Grpc-Message", full.Text)
		w.WriteHeader(http.StatusOK)
		return
	}
	full.Write(w, http.StatusTooManyRequests)
}

// Write answers with the failure as JSON.
func (f Failure) Write(w http.ResponseWriter, status int) {
	body, _ := json.Marshal(f) // strings always encode
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a relay that has disconnected needs no answer
}
