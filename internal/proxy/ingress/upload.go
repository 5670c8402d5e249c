package ingress

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/selection"
)

// upload is how long an attempt has waited for its client to send the body. The worker cannot answer
// meanwhile, so this time is neither its silence nor its latency. Otherwise a client that sends a byte
// a second would take the worker from all others. While the worker does not read what the client has
// sent, the attempt waits for the worker.
type upload struct {
	pick  selection.Pick[*routing.Target]
	open  bool // the worker may answer before the end of the body, so the time is part of its latency
	state atomic.Uint32
	since atomic.Int64 // when the wait began, if there is one
	took  atomic.Int64 // all waits that have ended
}

// The states of upload.state. The goroutine that sends the body changes between moves and waits.
const (
	uploadNone = iota // no body goes to a worker
	uploadMoves
	uploadWaits
	uploadOver // the answer has begun, or the attempt has failed
)

// beginUpload returns what the exchange calls when it begins and ends to wait for the client, nil for a
// request without a body. Relays are judged by their pool.
func (t *request) beginUpload() func(waits bool) {
	if t.toRelay || t.r.ContentLength == 0 || t.r.Body == nil || t.r.Body == http.NoBody {
		return nil
	}
	u := &t.upload
	u.pick, u.open = t.at.pick, t.r.ContentLength < 0 && t.r.ProtoMajor > 1
	u.state.Store(uploadMoves)
	u.took.Store(0)
	return t.onUpload
}

// uploads reports that the attempt begins or ends to wait for its client.
func (t *request) uploads(waits bool) {
	u := &t.upload
	if u.state.Load() == uploadOver {
		return
	}
	now := time.Since(t.handler.cfg.Epoch)
	if waits {
		u.since.Store(int64(now))
		if u.state.CompareAndSwap(uploadMoves, uploadWaits) {
			t.service.Endpoints.Answered(u.pick, selection.Instant(now), selection.Result{AwaitsBody: 1})
		}
	} else if u.state.CompareAndSwap(uploadWaits, uploadMoves) {
		u.took.Add(int64(now) - u.since.Load())
		t.service.Endpoints.Answered(u.pick, selection.Instant(now), selection.Result{AwaitsBody: -1})
	}
}

// end returns the Result.AwaitsBody for the answer or the failure of the attempt.
func (u *upload) end() int8 {
	if u.state.Load() != uploadNone && u.state.Swap(uploadOver) == uploadWaits {
		return -1
	}
	return 0
}

// byClient returns how long the worker had to wait for the body before it answered.
func (u *upload) byClient() time.Duration {
	if u.open {
		return 0
	}
	return time.Duration(u.took.Load())
}
