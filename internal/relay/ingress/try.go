package ingress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/circuit"
	"github.com/ringway/ringway/selection/pool"
)

// try is one request on its way through its attempts. Times are since the epoch.
//
// Tries are pooled: with the exchange's parts inside, a request that succeeds
// costs the handler no allocation.
type try struct {
	handler *Handler
	service *routing.Service
	metrics *ServiceMetrics
	w       http.ResponseWriter
	r       *http.Request
	began   time.Duration

	route   *routing.Route // when the way was decided
	hop     bool           // to another relay
	key     string         // KeyHeader's
	tried   routing.Tried
	relays  []string // tried
	failed  []Attempt
	verdict circuit.Outcome // for the caller's circuit
	body    replay          // in use once an endpoint passes requests on
	spans   *spans          // nil where requests are not traced

	// Of the attempt under way.
	at            chosen
	answered      time.Duration // when the answer began
	headers       [7]upstream.Field
	answerHeaders [3]upstream.Field
	onHead        func(upstream.Result) bool // t.headArrived, bound once
}

var tries = sync.Pool{New: func() any {
	t := new(try)
	t.onHead = t.headArrived
	return t
}}

// free forgets the request and gives the try back.
func (t *try) free() {
	t.body.end(t.r)
	*t = try{onHead: t.onHead, body: t.body}
	tries.Put(t)
}

func (t *try) run() {
	if !t.decideWay() {
		return
	}
	deadline := t.began + t.handler.cfg.Timeout
	for now, n := t.began, 1; ; n++ {
		if err := t.choose(now, deadline); err != nil {
			if t.wayChanged() {
				if !t.decideWay() {
					return
				}
				n--
				continue
			}
			t.answerNoEndpoint(err)
			return
		}
		target := t.at.target
		carrier := target.Pool
		if target.Upgrades != nil && t.r.Header["Upgrade"] != nil {
			carrier = target.Upgrades
		}
		if (t.hop || target.Secured) && t.body.body == nil {
			t.body.begin(t.r)
		}
		if t.spans != nil {
			t.beginAttempt(n)
		}
		result, err := carrier.Carry(t.w, t.r, t.exchange(target, n, deadline))
		if err == nil && !result.Dropped {
			t.succeeded(result)
			return
		}
		now = time.Since(t.handler.cfg.Epoch)
		f := attemptFailure(err)
		t.gaveUp(f, now)
		if t.spans != nil {
			t.spans.failAttempt(f, target.Node)
		}
		switch {
		case f.committed:
			t.finished(outcomeAborted, now-t.began)
			t.verdict = circuit.Failure
			// The status line is out: only a broken connection can tell the
			// client that the rest is missing.
			panic(http.ErrAbortHandler)
		case f.client:
			if t.r.Context().Err() == nil { // it is still there, and waits for an answer
				t.answerBadRequest(f, now)
				return
			}
			t.finished(outcomeCancelled, now-t.began)
			return
		}
		t.failed = append(t.failed, Attempt{Endpoint: target.Node, Error: f.Error()})
		if !t.mayRetry(f, n, now, deadline) {
			t.answerFailed(f, now)
			return
		}
		t.metrics.retried(f.reason)
	}
}

// choose picks where the next attempt goes.
func (t *try) choose(now, deadline time.Duration) (err error) {
	if t.hop {
		if t.at, err = t.chooseRelay(now, deadline); err == nil && t.logging() {
			t.logRelay()
		}
		return err
	}
	t.at, err = t.chooseWorker(now)
	return err
}

// gaveUp ends an attempt that failed.
func (t *try) gaveUp(f attempt, now time.Duration) {
	if t.hop {
		t.relayFailed(f)
		return
	}
	t.workerFailed(f, now)
}

// exchange says what is changed on the way to target.
func (t *try) exchange(target *routing.Target, n int, deadline time.Duration) upstream.Exchange {
	cfg := &t.handler.cfg
	x := upstream.Exchange{
		Deadline:   cfg.Epoch.Add(deadline),
		DropPrefix: dropRingway,
		Peer:       t.hop,
		OnHead:     t.onHead,
	}
	headers, answer := t.headers[:0], t.answerHeaders[:0]
	if !cfg.Hop {
		x.ForwardedFor = addrOnly(t.r.RemoteAddr)
		proto := "http"
		if t.r.TLS != nil {
			proto = "https"
		}
		headers = append(headers, upstream.Field{Name: "X-Forwarded-Host", Value: t.r.Host}, upstream.Field{Name: "X-Forwarded-Proto", Value: proto})
	}
	if target.Secured {
		x.Sidecar = true
		headers = append(headers, upstream.Field{Name: ServiceHeader, Value: t.service.Name})
	}
	if t.hop {
		headers = append(headers, upstream.Field{Name: ServiceHeader, Value: t.service.Name}, upstream.Field{Name: HopHeader, Value: cfg.Self})
		if t.key != "" {
			headers = append(headers, upstream.Field{Name: KeyHeader, Value: t.key})
		}
	}
	if cfg.ExposeRouteHeaders {
		// The relay that picked the worker names it; the one that forwarded
		// lets that stand and says how often it tried itself.
		if !t.hop {
			answer = append(answer, upstream.Field{Name: EndpointHeader, Value: target.Node})
		}
		if !cfg.Hop {
			answer = append(answer, upstream.Field{Name: RelayHeader, Value: cfg.Self}, upstream.Field{Name: AttemptsHeader, Value: strconv.Itoa(n)})
		}
	}
	if t.spans != nil {
		headers, x.DropPrefix = t.spans.headers(headers), dropTraced
	}
	x.Header, x.ResponseHeader = headers, answer
	return x
}

var dropRingway = []string{"Ringway-"}

// headArrived runs when the answer begins. It is the moment that counts as the
// latency: how long a stream then lasts says nothing about the endpoint.
func (t *try) headArrived(r upstream.Result) bool {
	if t.hop && r.Status == http.StatusMisdirectedRequest {
		return false // nothing happened there; ask another
	}
	t.answered = time.Since(t.handler.cfg.Epoch)
	if t.hop {
		t.relayAnswered(r)
	} else {
		t.workerAnswered(r)
	}
	return true
}

func (t *try) succeeded(r upstream.Result) {
	if t.hop {
		t.at.relay.Release()
	} else {
		t.workerEnded()
	}
	t.verdict = verdictOf(r)
	if t.spans != nil {
		t.spans.endAttempt(r)
		t.spans.status = r.Status
	}
	t.finished(outcomeOfStatus(r.Status), t.answered-t.began)
}

// finished counts how the request ended.
func (t *try) finished(o outcome, took time.Duration) {
	t.metrics.finished(o, took)
	if t.spans != nil {
		t.spans.outcome = o
	}
}

// mayRetry decides whether another endpoint may see the request.
func (t *try) mayRetry(f attempt, n int, now, deadline time.Duration) bool {
	switch {
	case n >= t.handler.cfg.MaxAttempts || now >= deadline:
		return false
	case f.sent && !repeatable(t.r) || !t.bodyWhole(f):
		return false
	}
	if !t.handler.budget.Spend() {
		t.metrics.retried(stageNoBudget)
		return false
	}
	return true
}

// bodyWhole reports whether the next attempt can send the whole body, and makes
// it begin at its beginning.
func (t *try) bodyWhole(f attempt) bool {
	if t.body.body != nil {
		return t.body.rewind()
	}
	return !f.bodyConsumed
}

// repeatable reports whether an endpoint that may have acted on the request does
// no harm by acting on it again, and can get all of it again.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		_, kept := r.Body.(*replay)
		return kept || r.Body == nil || r.Body == http.NoBody
	}
	return false
}

// answerNoEndpoint is for a request that nobody can take, or that everybody
// failed.
func (t *try) answerNoEndpoint(err error) {
	now := time.Since(t.handler.cfg.Epoch)
	f := failure{Text: "no worker offers this service at the moment", Code: CodeNoEndpoint, Service: t.service.Name, Attempts: t.failed}
	switch {
	case t.r.Context().Err() != nil: // it waited for a connection to a relay, and is gone
		t.finished(outcomeCancelled, now-t.began)
		return
	case len(t.failed) > 0:
		f.Text, f.Code = "every endpoint that this relay can reach failed", CodeUpstreamFailed
	case t.hop && !errors.Is(err, pool.ErrNoPeers):
		f.Text = "this relay is connected to none of those that serve this service: " + err.Error()
	case !t.hop && !errors.Is(err, selection.ErrNoEndpoint):
		f.Text = "no endpoint can be picked: " + strings.TrimPrefix(err.Error(), "selection: ")
	}
	t.answer(f, now)
}

func (t *try) answerFailed(a attempt, now time.Duration) {
	f := failure{Text: "the request could not be carried: " + a.Error(), Code: CodeUpstreamFailed, Service: t.service.Name, Attempts: t.failed}
	if a.timeout {
		f.Text, f.Code = "no endpoint answered within "+t.handler.cfg.Timeout.String(), CodeTimeout
	}
	t.answer(f, now)
}

// answerBadRequest is for a request that cannot be carried as it is, whatever the
// endpoint: an upgrade over HTTP/2, a body that ended too early.
func (t *try) answerBadRequest(a attempt, now time.Duration) {
	t.answer(failure{Text: "the request cannot be carried: " + a.Error(), Code: CodeBadRequest, Service: t.service.Name}, now)
}

func (t *try) answer(f failure, now time.Duration) {
	t.handler.cfg.Logger.Debug("request failed", "service", f.Service, "code", f.Code, "attempts", len(f.Attempts), "err", f.Text)
	t.verdict = f.Code.verdict()
	t.metrics.rejected(f.Code)
	t.finished(outcomeFailed, now-t.began)
	if t.spans != nil {
		t.spans.status, t.spans.code = statusOf[f.Code], f.Code
	}
	f.write(t.w)
}

// attempt is what is known of one that failed.
type attempt struct {
	err                                            error
	reason                                         string         // for metrics: the stage, or why there is none
	stage                                          upstream.Stage // 0 where it failed in none
	sent, committed, bodyConsumed, client, timeout bool
	stale                                          bool
}

func (a attempt) Error() string { return a.err.Error() }

var errMisdirected = errors.New("the relay does not serve this service; it sees other members")

// attemptFailure takes a failed Carry apart; nil stands for an answer that
// headArrived turned away.
func attemptFailure(err error) attempt {
	if err == nil {
		return attempt{err: errMisdirected, reason: stageMisdirected}
	}
	a := attempt{err: err, reason: stageOther}
	var u *upstream.Error
	if errors.As(err, &u) {
		a.stage, a.reason = u.Stage, u.Stage.String()
		a.sent, a.committed, a.bodyConsumed = u.Sent(), u.Committed(), u.BodyConsumed()
		a.client, a.timeout, a.stale = u.Client(), u.Timeout(), u.Stale()
	}
	return a
}

func (a attempt) outcome() selection.Outcome {
	if a.client || a.stale || errors.Is(a.err, context.Canceled) || errors.Is(a.err, errMisdirected) {
		return selection.Cancelled
	}
	return selection.Failure
}

// addrOnly cuts the port off a remote address.
func addrOnly(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
