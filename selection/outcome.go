package selection

import "math"

// Outcome says how a request ended. The zero value is [Cancelled].
type Outcome uint64

const (
	// Cancelled: the caller went away. Nobody is blamed and nothing is learnt;
	// only the in-flight count is given back.
	Cancelled Outcome = iota
	// Success: the endpoint answered. Its latency counts.
	Success
	// Failure: no answer, or one that says the endpoint is broken. The latency
	// of a failure is never used: a peer that fails fast must not look fast.
	Failure
	// Shed: the endpoint refused because it is busy (429, or 503 marked as
	// load). A load signal, neither a failure nor a latency sample.
	Shed
	// Full: the endpoint refused because it has as many requests as it takes. As Shed;
	// and if it has a Limit, it is passed over for a while.
	Full

	outcomeKind    Outcome = 1<<8 - 1
	outcomeHasLoad Outcome = 1 << 8
	outcomeSilent  Outcome = 1 << 9
)

// WithoutAnswer says of a Failure that nothing was heard from the endpoint at all, as
// when the time for an attempt was over. Only a failure that was heard, such as a 500 or
// a refused connection, ends the silence of an endpoint.
func (o Outcome) WithoutAnswer() Outcome { return o | outcomeSilent }

// WithLoad adds the number of requests the endpoint reported in flight, not
// counting the answered one. Only Success, Shed and Full use it. Negative numbers
// count as 0.
func (o Outcome) WithLoad(inFlight int) Outcome {
	load := Outcome(min(max(inFlight, 0), math.MaxInt32))
	return o&outcomeKind | outcomeHasLoad | load<<32
}

func (o Outcome) kind() Outcome { return o & outcomeKind }

func (o Outcome) silent() bool { return o&outcomeSilent != 0 }

func (o Outcome) load() (float32, bool) { return float32(o >> 32), o&outcomeHasLoad != 0 }
