package ingress

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/selection/circuit"
)

// maxCaller is how much of a caller's name is told apart, in bytes.
const maxCaller = 128

// caller is who the request comes from. A trusted proxy names it in CallerHeader; of
// several the last counts, which is the proxy's own. It is empty if the proxy names
// none: its address stands for all of its clients. Without a proxy the client's address
// is the caller, since a header could name any other.
func (t *try) caller() string {
	if t.from != fromFront {
		if addr := clientAddr(t.r.RemoteAddr); addr.Is6() {
			return addr.String()
		}
		return addrOnly(t.r.RemoteAddr)
	}
	values := t.r.Header[CallerHeader]
	if len(values) == 0 {
		return ""
	}
	last := values[len(values)-1]
	if len(last) > maxCaller {
		return strings.Clone(last[:maxCaller]) // not the rest of it
	}
	return last
}

// guarded runs the try if its caller's circuit for the service allows it, and tells
// the circuit how it ended. Requests without a caller pass.
func (t *try) guarded(circuits *circuit.Breakers) {
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
	defer func() { ticket.Done(t.verdict) }() // also when the answer is aborted by a panic
	t.run()
}

// refuse answers a request that the circuit did not allow.
func (t *try) refuse(err error) {
	f := failure{Text: err.Error(), Code: CodeCircuitOpen, Service: t.service.Name, after: retryAfter}
	var open *circuit.NotHealthyError
	if errors.As(err, &open) {
		f.Text = fmt.Sprintf("too many requests of caller %.128q to this service failed lately: it is not asked again before the time in Retry-After", open.Caller)
		f.after = max(f.after, open.RetryAfter)
	}
	t.answer(f, time.Since(t.handler.cfg.Epoch))
}

// verdictOf is what an answer says of the service, to the circuit of its caller.
func verdictOf(r upstream.Result) circuit.Outcome {
	switch {
	case r.Shed:
		return circuit.Ignored
	case r.Status >= http.StatusInternalServerError:
		return circuit.Failure
	}
	return circuit.Success
}

// verdict is the same of an answer of the relay's own.
func (c Code) verdict() circuit.Outcome {
	if c == CodeUpstreamFailed || c == CodeTimeout {
		return circuit.Failure
	}
	return circuit.Ignored // nobody was asked, or it is the request's fault
}
