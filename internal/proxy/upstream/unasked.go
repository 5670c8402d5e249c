package upstream

import (
	"sync/atomic"
	"time"
)

const (
	// restShort is how long a connection rests after an answer that has no body, such as that to
	// HEAD, before it is used again. An endpoint that sends a body anyway sends it now.
	restShort = 20 * time.Millisecond
	// restLong is the rest while the endpoint has not shown that nothing follows its answers: as
	// long as a handler may take that sends its head first.
	restLong = 100 * time.Millisecond
	// careTime is how long an endpoint is treated with care after it has sent bytes that belong
	// to no request: connections rest after all of its answers, not only after those without a
	// body. It ends, because the service may have been corrected.
	careTime = 5 * time.Minute
	// cleanRests is how many long rests without such a byte show that nothing follows.
	cleanRests = 64
	// maxResting bounds the connections that have a long rest. Beyond, a connection is closed
	// after its answer.
	maxResting = 128
	// maxShort bounds those that have a short rest. It bounds the cost for an endpoint that has
	// shown that nothing follows: 1,600 rests a second. Beyond, a connection does not rest.
	maxShort = 32
	// Answers with a body are acknowledged immediately for as long as a pool is new, later only
	// one in a few on each connection. An endpoint may hold back what follows an answer until
	// that is acknowledged (Nagle's algorithm), which otherwise happens with the next request.
	acknowledged, acknowledgedLater = 256, 16
)

// care is what a pool knows about bytes of its endpoint that belong to no request.
type care struct {
	epoch time.Time
	until atomic.Int64 // when the care ends, after epoch; 0 if it has
	clean atomic.Int64 // long rests in which nothing came
	rests atomic.Int64 // the connections that rest
}

// unasked notes that such bytes have come, on a connection that is then closed.
func (p *Pool) unasked() {
	p.cfg.Activity.Unasked.Add(1)
	p.care.clean.Store(0)
	p.care.until.Store(int64(time.Since(p.care.epoch) + careTime))
}

// active reports whether the endpoint is treated with care. It reads no clock for most.
func (k *care) active() bool {
	until := k.until.Load()
	if until == 0 {
		return false
	}
	if int64(time.Since(k.epoch)) < until {
		return true
	}
	k.until.CompareAndSwap(until, 0)
	return false
}

// proven reports whether enough rests have shown that nothing follows the answers.
func (k *care) proven() bool { return k.clean.Load() >= cleanRests }

// settle prepares a connection after an answer for the next request: what the endpoint may
// still send behind the answer must not be read as the answer to that request.
func (f *flight) settle() {
	f.c.used, f.c.resting, f.c.long = true, time.Time{}, false
	if f.x.Sidecar {
		return // sends nothing that it was not asked for, and treats its own service with care
	}
	k := &f.p.care
	f.c.answers++
	careful := k.active()
	rest := time.Duration(0)
	switch {
	case careful || bodyless(f.r.Method, f.head.status) && !k.proven():
		f.c.long, rest = true, restLong
	case bodyless(f.r.Method, f.head.status) && k.rests.Load() < maxShort:
		rest = restShort
	}
	if rest > 0 || f.p.answers.Load() <= acknowledged || f.c.answers%acknowledgedLater == 0 {
		f.c.socket.Acknowledge()
	}
	if rest > 0 {
		f.c.resting = time.Now().Add(rest)
	}
}
