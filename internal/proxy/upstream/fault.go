package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/ringway/ringway/internal/wire"
)

// Stage is how far an exchange got before it failed.
type Stage uint8

// The stages in the order in which an exchange passes them. StageClient is a cause and not
// a step: the client's error or cancellation. StageService stands for everything between a
// sidecar and its service.
const (
	StageDial Stage = iota + 1
	StageSend
	StageHead
	StageBody
	StageClient
	StageService // beyond the endpoint, as its sidecar reports
)

// Stages lists all stages, for metrics.
func Stages() []Stage {
	return []Stage{StageDial, StageSend, StageHead, StageBody, StageClient, StageService}
}

func (s Stage) String() string {
	switch s {
	case StageDial:
		return "dial"
	case StageSend:
		return "send"
	case StageHead:
		return "head"
	case StageBody:
		return "body"
	case StageClient:
		return "client"
	case StageService:
		return "service"
	}
	return "unknown"
}

// ErrClosed is the cause of the error that a closed Pool returns.
var ErrClosed = errors.New("the pool is closed")

// ErrAbandoned is the cause of the error of an exchange that Pool.Abandon has ended.
var ErrAbandoned = errors.New("the endpoint was declared dead before it answered")

// ErrFull is the cause of the error of an exchange that a sidecar refused because of load:
// nothing was sent to the service, and Result.Load is the number of requests in flight
// there.
var ErrFull = errors.New("the worker has as many requests of this service in flight as it has slots")

// ErrNoWebSockets is the cause of the error of a WebSocket to an endpoint whose SETTINGS do not
// allow it. Nothing was sent.
var ErrNoWebSockets = errors.New("the service accepts no WebSockets over HTTP/2: let it set SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441), or offer it with protocol=http1")

var (
	errDialLate    = errors.New("no connection within") // the dial timeout follows
	errStale       = errors.New("the endpoint closed the idle connection")
	errEarlyEOF    = errors.New("the endpoint closed the connection before the end of the message")
	errUpgradeH2   = errors.New("upgrade refused: HTTP/2 carries no TCP session")
	errWebSocket   = errors.New("a WebSocket begins with GET, without a body and with one Sec-WebSocket-Key of 16 bytes in base64")
	errNoHijack    = errors.New("upgrade refused: the client's connection cannot be taken over")
	errNotTCP      = errors.New("the service takes TCP sessions and no requests: connect to an address of --tcp-ingress")
	errNotUpgrade  = errors.New("the endpoint switched protocols without a request for it")
	errTooMuch1xx  = errors.New("more than 256 KiB of informational responses")
	errConnect     = errors.New("method CONNECT is not carried")
	errBadMethod   = errors.New("the request's method is not a token")
	errBadTarget   = errors.New("the request's target is no path, or holds bytes that cannot stand in a request line")
	errBadHost     = errors.New("the request's host is malformed")
	errBadField    = errors.New("a field of the request has a name or a value that HTTP does not allow")
	errUnfinished  = errors.New("the request body ended before its declared length")
	errTooLong     = errors.New("the request body is longer than its declared length")
	errBodyLate    = errors.New("the client had not sent its whole body when the time for an answer was over")
	errBodyStopped = errors.New("the exchange is over")
	errUnsent      = errors.New("the worker's sidecar could not reach the service; nothing was sent to it")
	errBroken      = errors.New("the service did not answer the worker's sidecar, which had sent it the request")
)

// Fault is why an exchange failed. It belongs to the caller alone, and goes with the attempt until the
// client has its answer: metrics, spans and records read it, and nothing copies its facts.
type Fault struct {
	// Stage is where the exchange failed; 0 if its caller refused the answer.
	Stage Stage
	// Address is the address of the endpoint.
	Address string
	// Err is the cause: context.DeadlineExceeded if the deadline passed, that of the request's
	// context, such as context.Canceled, if the client went away.
	Err error

	sent, committed, bodyConsumed, stale bool
	late                                 bool // the deadline had passed before the dial began
	repeated                             bool
	unprocessed, shed, cancelled         bool
}

func (e *Fault) Error() string {
	if e.Stage == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("upstream %s: %s: %v", e.Address, e.Stage, e.Err)
}

func (e *Fault) Unwrap() error { return e.Err }

// Sent reports whether any byte of the request may have reached the endpoint, or, if the
// endpoint is a sidecar, the service behind it. After false another endpoint may be tried
// whatever the method, provided that BodyConsumed is false.
func (e *Fault) Sent() bool { return e.sent }

// Committed reports whether the response head was already written to the client. The
// caller must then abort the client's connection with panic(http.ErrAbortHandler), or end a
// call of gRPC with a status in its trailers, and never retry.
func (e *Fault) Committed() bool { return e.committed }

// Client reports whether the client is the cause: its request was malformed, its body
// failed or it went away. No endpoint is blamed for such an error.
func (e *Fault) Client() bool { return e.Stage == StageClient }

// exhaustions lists the errors of a dial that this process or its host causes, and the
// resource that is exhausted. The endpoint does not notice such a dial.
var exhaustions = []struct {
	err  error
	what string
}{
	{syscall.EMFILE, "file descriptors"},
	{syscall.ENFILE, "file descriptors"}, // of the whole host
	{syscall.EADDRNOTAVAIL, "local ports or addresses"},
	{syscall.ENOBUFS, "memory for connections"},
	{syscall.ENOMEM, "memory for connections"},
}

// Exhausted returns the resource of which this process has none left, so that it could
// open no connection; empty if that is not the cause.
func (e *Fault) Exhausted() string {
	if e.Stage != StageDial {
		return ""
	}
	return Exhausted(e.Err)
}

// Exhausted is Fault.Exhausted of the error of a dial.
func Exhausted(err error) string {
	lookup, named := errors.AsType[*net.DNSError](err) // it keeps only the text of its cause
	for _, x := range exhaustions {
		if errors.Is(err, x.err) || named && strings.Contains(lookup.Err, x.err.Error()) {
			return x.what
		}
	}
	return ""
}

// Local reports whether this process is the reason that the endpoint was not asked: it is
// Exhausted, or the request's deadline passed before its turn to dial. No endpoint is
// blamed for such an error.
func (e *Fault) Local() bool { return e.late || e.Exhausted() != "" }

// Repeated reports whether the error of another request already reports the same failure.
// Of several dials to an endpoint that run out of time together, and of the requests that
// wait for these dials, only one blames the endpoint. A process that gets no processor for
// a second loses all its dials at the same time. An endpoint that is gone is blamed again
// with each dial timeout.
func (e *Fault) Repeated() bool { return e.repeated }

// ForClient returns the error text for a client that caused the error, without any address.
func (e *Fault) ForClient() string {
	if _, network := errors.AsType[*net.OpError](e.Err); network {
		return "it could not be read to its end"
	}
	return e.Err.Error()
}

// BodyConsumed reports whether a part of the client's request body was already read, so
// that the request cannot be repeated.
func (e *Fault) BodyConsumed() bool { return e.bodyConsumed }

// Stale reports whether the connection was closed in order before the endpoint acted on the
// request: a reused one over HTTP/1.1 before any byte of an answer, one over HTTP/2 by GOAWAY.
// Endpoints may close connections, so no side is blamed.
func (e *Fault) Stale() bool { return e.stale }

// Broken reports whether the connection ended, not in order, before an answer began, as it does when
// the process of the endpoint ends.
func (e *Fault) Broken() bool {
	broken := errors.Is(e.Err, errEarlyEOF) || errors.Is(e.Err, syscall.ECONNRESET) || errors.Is(e.Err, syscall.EPIPE)
	return broken && !e.stale && e.Stage <= StageHead
}

// Unprocessed reports whether the endpoint has declared that it did not act on the request, which
// may be sent there again over another connection. Only over HTTP/2.
func (e *Fault) Unprocessed() bool { return e.unprocessed }

// Shed reports whether the endpoint did not act on the request because of load.
func (e *Fault) Shed() bool { return e.shed }

// Full reports whether a sidecar refused because all slots of its worker are in use.
func (e *Fault) Full() bool { return errors.Is(e.Err, ErrFull) }

// Stopped reports whether this process ended the exchange because it stops.
func (e *Fault) Stopped() bool { return errors.Is(e.Err, ErrStopped) }

// Cancelled reports whether the endpoint has cancelled the request by a reset of its stream, as
// some do at the deadline that a request came with. Only over HTTP/2.
func (e *Fault) Cancelled() bool { return e.cancelled }

// PassCancel cancels an answer that has begun if the endpoint has cancelled it, where the client
// uses HTTP/2. The handler then ends it as any other that breaks off.
func (e *Fault) PassCancel(w http.ResponseWriter) {
	if stream, ok := w.(interface{ Cancel() }); ok && e.cancelled && e.committed {
		stream.Cancel()
	}
}

// Timeout reports whether the deadline passed.
func (e *Fault) Timeout() bool { return errors.Is(e.Err, context.DeadlineExceeded) }

// Unanswered reports whether the endpoint sent nothing in time: the time for the dial, the
// attempt or the request was over, or the endpoint was declared dead.
func (e *Fault) Unanswered() bool {
	return e.Timeout() || errors.Is(e.Err, errDialLate) || errors.Is(e.Err, ErrAbandoned)
}

// DialLate reports whether no connection was open within the dial timeout.
func (e *Fault) DialLate() bool { return errors.Is(e.Err, errDialLate) }

// cause returns the reason of a connection's error: the end of ctx, a passed deadline, or
// the error itself.
func cause(ctx context.Context, err error) (_ error, client bool) {
	if ended := ctx.Err(); ended != nil {
		return context.Cause(ctx), errors.Is(ended, context.Canceled)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded, false
	}
	return err, false
}

// exchange has what this process knows of an exchange that has failed.
type exchange struct {
	request  context.Context
	progress *progress
	body     *clientBody // nil: no goroutine sends it
	res      *Result
}

// explains sets the cause of e to the one that this process knows, and reports whether there is one.
// What the socket or the stream reports is often a consequence: the watch, a stop of the process and a
// failed client all end an exchange by a deadline in the past or a close. So only without such a cause
// is it err, which blames the endpoint.
func (p *Pool) explains(e *Fault, err error, x exchange) bool {
	if p.stopped(x.progress) {
		e.Err = ErrStopped
		return true
	}
	if x.res.Silent = p.silentOf(x.progress); x.res.Silent != SilentNone {
		e.Stage, e.Err = x.res.Silent.stage(), errSilent[x.res.Silent]
		return true
	}
	if failure := x.body.failure(); failure != nil {
		e.Stage, e.Err = StageClient, failure
		return true
	}
	var client bool
	switch e.Err, client = cause(x.request, err); {
	case client:
		e.Stage = StageClient
	case x.progress.abandoned.Load() && !e.committed:
		e.Err = ErrAbandoned
	case e.Timeout() && x.progress.awaitsBody():
		e.Stage, e.Err = StageClient, errBodyLate
	default:
		return false
	}
	return true
}

// fromSidecar turns e into the failure that a sidecar reported with this value of
// wire.FailedHeader. An unknown value counts as the worse case: the service may have acted.
func (e *Fault) fromSidecar(failed string) *Fault {
	if e.Stage != StageService { // the client failed meanwhile
		return e
	}
	e.sent, e.stale, e.Err = true, false, errBroken
	switch failed {
	case wire.FailedUnsent:
		e.sent, e.Err = false, errUnsent
	case wire.FailedFull:
		e.sent, e.Err = false, ErrFull
	case wire.FailedCancelled:
		e.cancelled = true
	}
	return e
}
