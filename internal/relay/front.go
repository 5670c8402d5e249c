package relay

import (
	"net/http"
	"sync/atomic"
)

// front is what a listener serves by: a handler that a reload may replace while
// requests are under way. It is safe for concurrent use.
type front struct {
	handler atomic.Pointer[http.Handler]
	// closing: answers end their connection, so that clients look for another relay.
	// Nil: they never do.
	closing func() bool
}

func (f *front) serve(handler http.Handler) { f.handler.Store(&handler) }

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.closing != nil && f.closing() && r.Header["Upgrade"] == nil { // a tunnel's answer needs its own Connection
		w.Header().Set("Connection", "close") // over HTTP/2 net/http makes a GOAWAY of it
	}
	(*f.handler.Load()).ServeHTTP(w, r)
}
