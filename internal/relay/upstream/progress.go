package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Silent says which side moved no byte for as long as Exchange.Progress allows.
type Silent uint8

// SilentNone is for an exchange that was not ended for that. With SilentBoth each
// side may have waited for the other: an idle tunnel, or a stream both ways.
const (
	SilentNone Silent = iota
	SilentClient
	SilentEndpoint
	SilentBoth
)

// Sides lists the names of the sides, for metrics.
func Sides() []string { return []string{"client", "endpoint", "both"} }

// String is one of Sides, empty for SilentNone.
func (s Silent) String() string {
	if s == SilentNone {
		return ""
	}
	return Sides()[s-1]
}

// BehindRelay is the limit for the listeners that relays send to. They wait longer
// than the relay that knows the client, so that it is the one that ends a request.
func BehindRelay(limit time.Duration) time.Duration { return limit + limit/4 }

var errSilent = [...]error{
	SilentClient:   errors.New("the client neither read nor sent anything for the progress timeout"),
	SilentEndpoint: errors.New("the endpoint began its answer and then sent nothing for the progress timeout"),
	SilentBoth:     errors.New("neither the client nor the endpoint sent anything for the progress timeout"),
}

// h2WatchPeriod is how often progress is looked at where cancelled requests are
// noticed without the watch.
const h2WatchPeriod = 250 * time.Millisecond

// progress is what the watch of a pool knows of one exchange. The exchange only
// stores flags, so it costs neither a clock read nor a timer. Nginx has the same
// semantics (send_timeout): what counts is that the kernel takes more, which for a
// slow reader is when a part of the socket's buffer is free again.
type progress struct {
	limit time.Duration // 0: none
	w     http.ResponseWriter

	moved     atomic.Bool // since the watch looked last
	writing   atomic.Bool // to the client
	sending   atomic.Bool // to the endpoint, through a tunnel
	reading   atomic.Bool // the client's body
	inline    atomic.Bool // it is read by the exchange itself
	owed      atomic.Bool // the endpoint can answer only when it has that body
	answering atomic.Bool // the head has come
	abandoned atomic.Bool // the endpoint is known to be dead

	began  time.Time    // what bodyAt is counted from; zero where there is no body
	bodyAt atomic.Int64 // when the client's body moved last

	// Guarded by Pool.mu.
	slot   int
	quiet  time.Duration
	silent Silent
	c      *conn                   // HTTP/1.1 to the endpoint
	cancel context.CancelCauseFunc // HTTP/2 to the endpoint
	tunnel net.Conn                // to the client
	// stopping: Sessions ends the exchange, a tunnel by endBy.
	stopping bool
	endBy    time.Time
}

// begin forgets the last exchange.
func (g *progress) begin(w http.ResponseWriter, limit time.Duration) {
	g.w, g.limit = w, limit
	for _, flag := range []*atomic.Bool{&g.writing, &g.sending, &g.reading, &g.inline, &g.owed, &g.answering, &g.abandoned} {
		flag.Store(false)
	}
	g.began = time.Time{}
	g.quiet, g.silent, g.c, g.cancel, g.tunnel = 0, SilentNone, nil, nil, nil
	g.stopping = false
}

// watchBody begins to note when the client's body moves.
func (g *progress) watchBody() {
	g.began = time.Now()
	g.bodyAt.Store(0)
}

// read says that a part of the client's body has come.
func (g *progress) read() {
	g.moved.Store(true)
	g.bodyAt.Store(int64(time.Since(g.began)))
}

// bodyMoved is when the client's body moved last, zero where there is none.
func (g *progress) bodyMoved() time.Time {
	if g.began.IsZero() {
		return time.Time{}
	}
	return g.began.Add(time.Duration(g.bodyAt.Load()))
}

// wrote says that what was written to the client is out.
func (g *progress) wrote() {
	g.writing.Store(false)
	g.moved.Store(true)
}

// waitsFor is the side whose turn it is. None: the endpoint's, which has not begun
// to answer; that is bounded by the exchange's deadline.
func (g *progress) waitsFor() Silent {
	switch {
	case g.writing.Load():
		return SilentClient
	case g.sending.Load():
		return SilentEndpoint
	case g.tunnel != nil:
		return SilentBoth
	case g.awaitsBody():
		return SilentClient
	case g.reading.Load() && g.answering.Load():
		return SilentBoth
	case g.answering.Load():
		return SilentEndpoint
	}
	return SilentNone
}

// awaitsBody reports whether the client is late with a body without which the
// endpoint cannot answer.
func (g *progress) awaitsBody() bool { return g.reading.Load() && g.owed.Load() }

// look ends the exchange if nothing has moved for too long: again each time until it
// has ended, because it may just be setting deadlines of its own. Pool.mu is held,
// so the exchange cannot return to its handler meanwhile.
func (g *progress) look(elapsed time.Duration) {
	if g.stopping {
		g.endStopped()
		return
	}
	if g.abandoned.Load() && !g.answering.Load() && g.tunnel == nil {
		if g.c != nil {
			g.c.cancelled = true
			_ = g.c.SetDeadline(past)
		}
		if g.cancel != nil {
			g.cancel(ErrAbandoned)
		}
		return
	}
	if g.limit <= 0 {
		return
	}
	if g.silent == SilentNone {
		side := g.waitsFor()
		if g.moved.Load() || side == SilentNone {
			g.moved.Store(false)
			g.quiet = 0
			return
		}
		if g.quiet += elapsed; g.quiet < g.limit {
			return
		}
		g.silent = side
	}
	g.cut(errSilent[g.silent])
}

// cut ends the exchange at once, whatever it waits for. Pool.mu is held.
func (g *progress) cut(because error) {
	if g.tunnel != nil {
		_ = g.tunnel.SetDeadline(past)
	} else {
		client := http.NewResponseController(g.w)
		if g.writing.Load() {
			_ = client.SetWriteDeadline(past) // over HTTP/2 it resets the stream
		}
		// net/http's HTTP/2 client ends no stream, once its head has come, while it
		// waits for more of the request's body.
		if g.inline.Load() || g.cancel != nil && g.answering.Load() && g.reading.Load() {
			_ = client.SetReadDeadline(past)
		}
	}
	if g.c != nil {
		g.c.cancelled = true
		_ = g.c.SetDeadline(past)
	}
	if g.cancel != nil {
		g.cancel(because)
	}
}

// silentOf is the side for which the watch has ended the exchange.
func (p *Pool) silentOf(g *progress) Silent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return g.silent
}

// stage is where an exchange fails that this side ends: only a silent endpoint is to
// blame for it.
func (s Silent) stage() Stage {
	if s == SilentEndpoint {
		return StageBody
	}
	return StageClient
}
