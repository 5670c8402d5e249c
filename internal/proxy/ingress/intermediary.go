package ingress

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/wire"
)

const maxForwards = "Max-Forwards"

// acceptable returns false if it has answered, because no service gets such a request.
func (t *request) acceptable() bool {
	h, r := t.handler, t.r
	f := failure{Code: wire.CodeBadRequest}
	switch name := repeated(r.Header); {
	case h.cfg.Local:
		return true
	case name != "":
		// Which of them a proxy in front has checked is not known.
		f.Text = fmt.Sprintf("the request has %d fields %s: send one", len(r.Header[name]), name)
	case r.Method == http.MethodTrace && !h.cfg.FromRelay:
		// The echo would show a script cookies and credentials, and a client what relays add.
		t.w.Header()["Allow"] = []string{"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"}
		f.Text, f.Code = "TRACE is not carried, because its answer shows credentials and what relays add to a request: use another method", wire.CodeMethodNotAllowed
	default:
		return r.Method != http.MethodOptions || t.mayForward()
	}
	h.cfg.Metrics.unnamed(f.Code)
	t.answerRefusal(f)
	return false
}

// repeated returns the name of a field for relays of which a request has several, empty if there is
// none. wire.TimeLeft refuses several of wire.TimeoutHeader. Of several of wire.CallerHeader the last
// one comes from the trusted proxy.
func repeated(h http.Header) string {
	switch {
	case len(h[wire.ServiceHeader]) > 1:
		return wire.ServiceHeader
	case len(h[wire.KeyHeader]) > 1:
		return wire.KeyHeader
	}
	return ""
}

// mayForward counts one step in Max-Forwards of OPTIONS (RFC 9110 §7.6.2). It returns false if it has
// answered because no step was left. The relay that has the client counts for the whole fleet, so
// that the number does not depend on which relay serves the service.
func (t *request) mayForward() bool {
	h, r := t.handler, t.r
	if h.cfg.FromRelay {
		return true
	}
	given := r.Header[maxForwards]
	if len(given) != 1 {
		return true
	}
	left, ok := http1.ParseLength(given[0])
	switch {
	case !ok: // no number: nothing to count
		return true
	case left > 0:
		r.Header[maxForwards] = []string{strconv.FormatInt(left-1, 10)}
		return true
	}
	t.w.WriteHeader(http.StatusNoContent)
	t.record.own(http.StatusNoContent)
	return false
}

// viaValues returns what this relay adds to Via for each version of HTTP in which a request may come
// (RFC 9110 §7.6.3).
func viaValues(self string) [3]string {
	if !http1.ValidToken(self) {
		self = "ringway"
	}
	return [3]string{"1.0 " + self, "1.1 " + self, "2.0 " + self}
}

// via returns the field Via for a request, in place of the one that the request has.
func (h *Handler) via(r *http.Request) wire.Field {
	own := h.vias[1]
	switch {
	case r.ProtoMajor == 2:
		own = h.vias[2]
	case r.ProtoMinor == 0:
		own = h.vias[0]
	}
	if before := r.Header["Via"]; len(before) > 0 {
		own = strings.Join(before, ", ") + ", " + own
	}
	return wire.Field{Name: "Via", Value: own}
}
