package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// Stage says how far an exchange had come when it failed.
type Stage uint8

// The stages in the order in which an exchange passes them. StageClient is
// not a step but a cause: the client's fault or its cancellation. StageService
// stands for all that lies between a sidecar and its service.
const (
	StageDial Stage = iota + 1
	StageSend
	StageHead
	StageBody
	StageClient
	StageService // beyond the endpoint: its sidecar reports it
)

// Stages lists all of them, for metrics.
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

// ErrClosed is the cause of the error that a closed Pool gives.
var ErrClosed = errors.New("the pool is closed")

// ErrAbandoned is the cause of the error of an exchange that Pool.Abandon has ended.
var ErrAbandoned = errors.New("the endpoint was declared dead before it answered")

// ErrFull is the cause of the error of an exchange that a sidecar refused for load:
// nothing was sent to the service, and Result.Load says what is in flight there.
var ErrFull = errors.New("the worker has as many requests of this service in flight as it has slots")

var (
	errDialLate    = errors.New("no connection within") // how long
	errStale       = errors.New("the endpoint closed the idle connection")
	errEarlyEOF    = errors.New("the endpoint closed the connection before the end of the message")
	errUpgradeH2   = errors.New("upgrade refused: the way to the endpoint is HTTP/2, which carries none here")
	errSwitchH2    = errors.New("malformed response: 101 over HTTP/2, which has no such answer (RFC 9113 §8.6)")
	errNoHijack    = errors.New("upgrade refused: the client's connection cannot be taken over")
	errNotUpgrade  = errors.New("the endpoint switched protocols although nobody asked")
	errTooMany1xx  = errors.New("more than 16 informational responses")
	errConnect     = errors.New("method CONNECT is not carried")
	errBadMethod   = errors.New("the request's method is not a token")
	errBadTarget   = errors.New("the request's target is no path, or holds bytes that cannot stand in a request line")
	errBadHost     = errors.New("the request's host is malformed")
	errBadField    = errors.New("a request header holds a line break")
	errUnfinished  = errors.New("the request body ended before its declared length")
	errTooLong     = errors.New("the request body is longer than its declared length")
	errBodyLate    = errors.New("the client had not sent its whole body when the time for an answer was over")
	errBodyStopped = errors.New("the exchange is over")
	errUnsent      = errors.New("the worker's sidecar could not reach the service; nothing was sent to it")
	errBroken      = errors.New("the service did not answer the worker's sidecar, which had sent it the request")
)

// Error is what every failed Carry returns.
type Error struct {
	// Stage is where it failed.
	Stage Stage
	// Address is the endpoint's.
	Address string
	// Err is the cause. A passed deadline is context.DeadlineExceeded, a
	// client that went away context.Canceled.
	Err error

	sent, committed, bodyConsumed, stale bool
	late                                 bool // the time was over before the dial began
	repeated                             bool
}

func (e *Error) Error() string {
	return fmt.Sprintf("upstream %s: %s: %v", e.Address, e.Stage, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Sent reports whether any byte of the request may have reached the endpoint,
// or the service behind it where the endpoint is a sidecar.
// After false another endpoint may be tried whatever the method, provided
// that BodyConsumed is false.
func (e *Error) Sent() bool { return e.sent }

// Committed reports whether the response head was already written to the
// client. The caller must then abort the client's connection with
// panic(http.ErrAbortHandler), and never retry.
func (e *Error) Committed() bool { return e.committed }

// Client reports whether the client is the cause: its request was malformed,
// its body failed or it went away. It blames no endpoint.
func (e *Error) Client() bool { return e.Stage == StageClient }

// exhaustions are the errors of a dial that this process, or its host, is the cause of,
// and what there is too little of. The endpoint never heard of such a dial.
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

// Exhausted is what this process is out of, so that it could open no connection; empty
// where that is not the cause.
func (e *Error) Exhausted() string {
	if e.Stage != StageDial {
		return ""
	}
	var lookup *net.DNSError // keeps the text of its cause only
	named := errors.As(e.Err, &lookup)
	for _, x := range exhaustions {
		if errors.Is(e.Err, x.err) || named && strings.Contains(lookup.Err, x.err.Error()) {
			return x.what
		}
	}
	return ""
}

// Local reports whether the endpoint was not even asked, because of this process: it is
// Exhausted, or the request's time was over before its turn to dial came. It blames no
// endpoint.
func (e *Error) Local() bool { return e.late || e.Exhausted() != "" }

// Repeated reports whether another request's error says the same already: of dials to an
// endpoint that run out of time together, and of the requests that wait for them, one
// blames it. A process that gets no processor for a second loses all its dials at once,
// and an endpoint that is gone is blamed with each second again.
func (e *Error) Repeated() bool { return e.repeated }

// Fault is what the client may be told when it is the cause: it names no address.
func (e *Error) Fault() string {
	var op *net.OpError
	if errors.As(e.Err, &op) {
		return "it could not be read to its end"
	}
	return e.Err.Error()
}

// BodyConsumed reports whether a part of the client's request body was read
// and is gone, so that the request cannot be repeated.
func (e *Error) BodyConsumed() bool { return e.bodyConsumed }

// Stale reports whether a reused connection ended before any byte of an
// answer. Endpoints may close idle connections, so this blames nobody.
func (e *Error) Stale() bool { return e.stale }

// Timeout reports whether the deadline passed.
func (e *Error) Timeout() bool { return errors.Is(e.Err, context.DeadlineExceeded) }

// Unanswered reports whether nothing was heard from the endpoint: the time for the dial,
// the attempt or the request was over, or the endpoint was declared dead.
func (e *Error) Unanswered() bool {
	return e.Timeout() || errors.Is(e.Err, errDialLate) || errors.Is(e.Err, ErrAbandoned)
}

// cause turns the error of a connection into what the reader should see.
func cause(ctx context.Context, err error) (_ error, client bool) {
	if cerr := context.Cause(ctx); cerr != nil {
		return cerr, errors.Is(cerr, context.Canceled)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded, false
	}
	return err, false
}

// fromSidecar makes e the failure that a sidecar reported with this value of
// FailedHeader. A value that is not known is taken for the worse case.
func (e *Error) fromSidecar(failed string) *Error {
	if e.Stage != StageService { // the client failed meanwhile
		return e
	}
	e.sent, e.stale, e.Err = true, false, errBroken
	switch failed {
	case FailedUnsent:
		e.sent, e.Err = false, errUnsent
	case FailedFull:
		e.sent, e.Err = false, ErrFull
	}
	return e
}
