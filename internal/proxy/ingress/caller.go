package ingress

import (
	"context"
	"net/http"
	"strings"

	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/internal/wire"
)

// callerKey is the key of the caller's name in the context of a request.
type callerKey struct{}

// WithCaller returns a context for the requests of a client that presented a
// certificate. The name must be valid as the value of a header.
func WithCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, &name) // a pointer, so that a request allocates nothing
}

// certifiedName returns the name in the certificate of the client of a request, empty if it has
// none.
func certifiedName(r *http.Request) string {
	name, _ := r.Context().Value(callerKey{}).(*string)
	if name == nil {
		return ""
	}
	return *name
}

// caller returns the sender of the request.
func (t *request) caller() string { return callerOf(t.r, t.from) }

// callerOf returns the sender of a request. A trusted proxy names it in wire.CallerHeader; of
// several values the last counts, which is the proxy's own. The caller is empty if the
// proxy names none, because the proxy's address stands for all of its clients. Without a
// proxy the caller is the name in the certificate of the client, or else its address, since a
// client could put any name into the header. A relay that forwards passes such a name on;
// without one the caller is empty, because the relay's address names no client.
func callerOf(r *http.Request, from origin) string {
	if from == fromRelay {
		if values := r.Header[wire.CallerHeader]; len(values) > 0 {
			return values[0]
		}
		return ""
	}
	if from == fromProgram {
		return ""
	}
	if from == fromClient {
		if name := certifiedName(r); name != "" {
			return sameCaller(name)
		}
		if addr := clientAddr(r.RemoteAddr); addr.Is6() {
			return addr.String()
		}
		return addrOnly(r.RemoteAddr)
	}
	values := r.Header[wire.CallerHeader]
	if len(values) == 0 {
		return ""
	}
	last := values[len(values)-1]
	if len(last) > wire.MaxCaller {
		return strings.Clone(last[:wire.MaxCaller]) // so that the rest of the string can be freed
	}
	return sameCaller(last)
}

// guarded runs the request if its caller's circuit for the service allows the request; the observer
// reports the result to the circuit. Requests without a caller pass.
func (t *request) guarded(circuits *circuit.Breakers) {
	caller := t.caller()
	if caller == "" {
		t.run()
		return
	}
	ticket, err := circuits.Allow(caller, t.service.Name, "")
	if err != nil {
		t.refuse(err)
		return
	}
	t.ticket = ticket
	t.run()
}
