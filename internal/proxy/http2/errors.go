package http2

import (
	"errors"
	"fmt"
)

// ErrClosed is the error of a connection that was closed by this side.
var ErrClosed = errors.New("http2: the connection is closed")

// ErrUnprocessed is wrapped by the error of a stream on which the other side did not act: the
// stream may be opened again on another connection (RFC 9113 §8.7).
var ErrUnprocessed = errors.New("the request was not processed")

// ResetError is the error of a stream that was reset.
type ResetError struct {
	Code Code
	// Remote means that the other side has reset the stream.
	Remote bool
	reason string
}

func (e *ResetError) Error() string {
	side := "this side"
	if e.Remote {
		side = "the other side"
	}
	if e.reason != "" {
		return fmt.Sprintf("http2: %s has reset the stream with %v: %s", side, e.Code, e.reason)
	}
	return fmt.Sprintf("http2: %s has reset the stream with %v", side, e.Code)
}

// Is makes errors.Is find ErrUnprocessed.
func (e *ResetError) Is(target error) bool {
	return target == ErrUnprocessed && e.Remote && e.Code == RefusedStream
}

// GoAwayError is the error of the streams of a connection that the other side has ended.
type GoAwayError struct {
	Code Code
	// Reason is the other side's text, cut to 200 bytes.
	Reason string
	// unprocessed means that the other side has not acted on the stream.
	unprocessed bool
}

func (e *GoAwayError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("http2: the other side has ended the connection with %v: %q", e.Code, e.Reason)
	}
	return fmt.Sprintf("http2: the other side has ended the connection with %v", e.Code)
}

// Is makes errors.Is find ErrUnprocessed.
func (e *GoAwayError) Is(target error) bool { return target == ErrUnprocessed && e.unprocessed }

// CodeOf returns the code with which the other side has ended a stream or the connection,
// NoError if there is none.
func CodeOf(err error) Code {
	var reset *ResetError
	var away *GoAwayError
	switch {
	case errors.As(err, &reset) && reset.Remote:
		return reset.Code
	case errors.As(err, &away):
		return away.Code
	}
	return NoError
}

// Why distinguishes the reasons for which this side has ended a connection.
type Why uint8

// The reasons.
const (
	WhyOther     Why = iota // the other side has ended it, or nothing was wrong
	WhyMalformed            // what came was no HTTP/2
	WhyAbusive              // too much that costs and carries nothing; see the rules of the package
	WhyStuck                // a frame or a header list that did not end in time
	WhyStalled              // the other side accepted no byte for Config.Progress, or as a server for a minute
)

// WhyEnded returns the reason of an error of Run.
func WhyEnded(err error) Why {
	var fault connError
	switch {
	case errors.As(err, &fault) && fault.code == EnhanceYourCalm:
		return WhyAbusive
	case errors.As(err, &fault):
		return WhyMalformed
	case err == errStuck:
		return WhyStuck
	case err == errStalled:
		return WhyStalled
	}
	return WhyOther
}

// connError ends the connection with GOAWAY.
type connError struct {
	code   Code
	reason string
}

func (e connError) Error() string { return fmt.Sprintf("http2: %v: %s", e.code, e.reason) }

// streamError resets one stream.
type streamError struct {
	stream uint32
	code   Code
	reason string
}

func (e streamError) Error() string {
	return fmt.Sprintf("http2: stream %d: %v: %s", e.stream, e.code, e.reason)
}
