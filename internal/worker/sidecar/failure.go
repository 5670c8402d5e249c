package sidecar

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/ringway/ringway/internal/relay/ingress"
	"github.com/ringway/ringway/internal/relay/upstream"
)

// failure is the sidecar's own answer, in the form of the relays'.
type failure struct {
	Text    string       `json:"error"`
	Code    ingress.Code `json:"code"`
	Service string       `json:"service,omitempty"`
}

var statusOf = map[ingress.Code]int{
	ingress.CodeBadRequest:     http.StatusBadRequest,
	ingress.CodeUnknownService: http.StatusNotFound,
	ingress.CodeUpstreamFailed: http.StatusBadGateway,
	// Not 503: the worker is well, and others may have room.
	ingress.CodeOverloaded: http.StatusTooManyRequests,
}

// refuse answers r with f. Failed is the value of upstream.FailedHeader, empty
// for a request that fares no better elsewhere.
func (s *Sidecar) refuse(w http.ResponseWriter, r *http.Request, f failure, failed string) {
	s.awaitBody(w, r)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if failed != "" {
		h.Set(upstream.FailedHeader, failed)
	}
	body, _ := json.Marshal(f) // strings always encode
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(statusOf[f.Code])
	_, _ = w.Write(append(body, '\n')) // a relay that is gone needs no answer
}

// awaitBody reads the rest of a small body. One that waits for our word to be
// sent is not asked for. With more to come, or a relay that is slow, the deadline
// stays: net/http must not wait for the rest either, and closes the connection.
func (s *Sidecar) awaitBody(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if r.Body == http.NoBody || r.Header.Get("Expect") != "" || control.SetReadDeadline(time.Now().Add(s.cfg.bodyPatience)) != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, r.Body, ingress.ReplayLimit+1); err == io.EOF {
		_ = control.SetReadDeadline(time.Time{})
	}
}
