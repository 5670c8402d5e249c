package ingress

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/wire"
)

const maxForwards = "Max-Forwards"

// mayForward counts one step in Max-Forwards of a request for which it counts (RFC 9110 §7.6.2). It
// returns false if it has answered because no step was left. The relay that has the client counts for
// the whole fleet, so that the number does not depend on which relay serves the service.
func (t *try) mayForward() bool {
	h, r := t.handler, t.r
	if h.cfg.Hop || h.cfg.Local {
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
	status := http.StatusNoContent
	if r.Method == http.MethodTrace { // an echo of the request could show a script what it may not read
		status = http.StatusMethodNotAllowed
		t.w.Header()["Allow"] = []string{http.MethodOptions}
		t.w.Header()["Content-Length"] = []string{"0"}
	}
	t.w.WriteHeader(status)
	t.record.own(status)
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
