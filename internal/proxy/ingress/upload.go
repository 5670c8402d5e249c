package ingress

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/selection"
)

// upload is how long an attempt has waited for its client to send the body. The worker cannot answer
// meanwhile, so this time is neither its silence nor its latency, nor that of a relay or of the service.
// Otherwise a client that sends a byte a second would take the worker from all others. While the worker
// does not read what the client has sent, the attempt waits for the worker.
type upload struct {
	pick  selection.Pick[*routing.Target] // none for a relay
	open  bool                            // the body has no length, so it may be a stream that the worker answers before its end
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
// request without a body.
func (t *request) beginUpload() func(waits bool) {
	if t.r.ContentLength == 0 || t.r.Body == nil || t.r.Body == http.NoBody {
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

// end returns the Result.AwaitsBody for the answer or the failure of the attempt, which comes now. A worker
// that answers while it waits for the client may have done so all the time, as one that gives up a slow
// client. But with an open body, its answer did not need the rest, and the waits before it may be its own.
func (u *upload) end(now time.Duration) int8 {
	if u.state.Load() == uploadNone || u.state.Swap(uploadOver) != uploadWaits {
		return 0
	}
	if u.open {
		u.took.Store(0)
	} else {
		u.took.Add(max(0, int64(now)-u.since.Load()))
	}
	return -1
}

// byClient returns how long the worker had to wait for the body before it answered.
func (u *upload) byClient() time.Duration { return time.Duration(u.took.Load()) }
