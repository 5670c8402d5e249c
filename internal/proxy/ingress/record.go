package ingress

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// record collects the facts of one request for the request log. While a request runs, only
// what is lost otherwise is stored; the rest is read at the end, if the record is kept.
// Records are pooled, so that a request that is not in the sample costs no allocation. All
// methods of a nil record do nothing.
type record struct {
	requestlog.Record
	handler *Handler
	w       http.ResponseWriter
	r       *http.Request
	ids     requestlog.Block // not used yet
	passes  bool             // the ID is sent on
	body    meteredBody
	from    origin
	route   *routing.Route
	traced  Trace // nil if the request is not traced
	ended   bool  // outcome is known
	outcome outcome

	begun    bool                 // it was not refused before its attempts
	began    time.Duration        // since the epoch
	attempts []requestlog.Attempt // none, with room
	status   string               // of gRPC, as the endpoint of the last attempt gave it

	// decision is how the next endpoint was chosen, decisions is how each attempt got its own. Both
	// are nil unless the choices are remembered.
	decision  *routing.Decision
	decisions []*routing.Decision
}

var records = sync.Pool{New: func() any { return new(record) }}

// beginRecord returns the record of a request, nil if none is wanted.
func (h *Handler) beginRecord(w http.ResponseWriter, r *http.Request, service string) *record {
	if !h.cfg.Records.Wants(service) {
		return nil
	}
	rec := records.Get().(*record)
	rec.handler, rec.w, rec.r, rec.from = h, w, r, h.originOf(r)
	rec.Service, rec.Attempts = service, rec.attempts
	rec.passes = h.cfg.Records.Writes()
	// As in Envoy, the ID of a client that is not trusted is replaced: an ID that the client
	// chose could hide its requests from the sample, or be that of another request.
	if rec.from != fromClient {
		if given := r.Header[wire.RequestIDHeader]; len(given) == 1 && requestlog.ValidID(given[0]) {
			rec.ID = given[0]
		}
	}
	if rec.ID == "" {
		rec.ID = rec.ids.Next(h.cfg.Records.IDs())
	}
	rec.Sampled = h.sampler.Takes(rec.ID)
	return rec
}

// carry begins the part of a request that has attempts.
func (rec *record) carry(began time.Duration) {
	if rec == nil {
		return
	}
	rec.begun, rec.began = true, began
	rec.body.begin(rec.r)
}

// beginAttempt records the destination of an attempt that begins, and how long it waited.
func (rec *record) beginAttempt(at *attempt, waited time.Duration) {
	if rec == nil {
		return
	}
	rec.Wait += waited
	rec.Attempts = append(rec.Attempts, requestlog.Attempt{
		Endpoint: at.target.Node, Address: at.target.Address, Chosen: at.by, Began: at.sent - rec.began, Wait: waited,
	})
	rec.decided(at)
}

// carried records what the exchange of the current attempt has counted.
func (rec *record) carried(result *upstream.Result) {
	if rec == nil {
		return
	}
	a := rec.current()
	a.Connect, a.Reused, a.Code = result.Waited, result.Reused, result.Failed
	rec.Connect += result.Waited
	rec.BytesOut += result.BytesOut
	rec.BytesIn += result.BytesIn
	rec.Tunnel = result.Upgraded
	rec.status = result.CallStatus
}

func (rec *record) current() *requestlog.Attempt { return &rec.Attempts[len(rec.Attempts)-1] }

// answered records the answer of an endpoint.
func (rec *record) answered(status int, at *attempt) {
	if rec == nil {
		return
	}
	a := rec.current()
	a.Status, a.Took = status, at.answered-at.sent
	rec.Status, rec.FirstByte = status, at.answered-rec.began
}

// failed records why the current attempt failed.
func (rec *record) failed(at *attempt, took time.Duration) {
	if rec == nil {
		return
	}
	a := rec.current()
	a.Failure, a.Error = at.reason, at.fault.Error()
	if !at.fault.Committed() { // otherwise Took is the time to the head
		a.Took = took
	}
}

// refused records an answer of the relay itself, of n bytes.
func (rec *record) refused(f *failure, status, n int) {
	if rec == nil {
		return
	}
	rec.finished(outcomeFailed)
	rec.Status, rec.Code = status, string(f.Code)
	rec.BytesOut += int64(n)
}

// own records an answer of the relay itself that is no refusal.
func (rec *record) own(status int) {
	if rec == nil {
		return
	}
	rec.finished(outcomeOfStatus(status))
	rec.Status = status
}

// finished records the outcome.
func (rec *record) finished(o outcome) {
	if rec != nil {
		rec.ended, rec.outcome = true, o
	}
}

// end completes the record of a request that has ended, in whatever way, and adds it to the
// log if it is wanted.
func (rec *record) end() {
	if rec == nil {
		return
	}
	h, policy := rec.handler, &rec.handler.cfg.Record
	rec.body.end(rec.r)
	if !rec.ended { // a panic of the handler
		rec.outcome = outcomeAborted
	}
	rec.Outcome = outcomes[rec.outcome]
	if wire.IsCall(rec.r) {
		rec.CallStatus = callStatusOf(rec.w.Header(), rec.status)
	}
	kept := rec.Sampled || len(rec.Attempts) > 1 || rec.Failed()
	if kept || policy.Slow > 0 || rec.FirstByte == 0 { // the others need no clock
		rec.measure()
		kept = kept || policy.Slow > 0 && rec.Total >= policy.Slow
	}
	rec.remember()
	slow := !kept && policy.Slowest > 0 && h.cfg.Records.Slowest(rec.Slow())
	if kept || slow || h.cfg.Records.Tapped(rec.Service) {
		rec.complete()
		h.cfg.Records.Add(&rec.Record, kept)
		if slow {
			h.cfg.Records.AddSlowest(&rec.Record, policy.Slowest)
		}
	}
	clear(rec.Attempts)
	*rec = record{ids: rec.ids, attempts: rec.Attempts[:0]}
	records.Put(rec)
}

// measure sets how long the request took, once.
func (rec *record) measure() {
	if rec.begun && rec.Total == 0 {
		rec.Total = time.Since(rec.handler.cfg.Epoch) - rec.began
	}
}

// complete adds what can be read at the end.
func (rec *record) complete() {
	rec.measure()
	h, r := rec.handler, rec.r
	rec.Time, rec.Relay = time.Now().Add(-rec.Total), h.cfg.Self
	rec.Session = isSession(r, h.cfg.FromRelay)
	rec.Caller, rec.Client = callerOf(r, rec.from), rec.client()
	if h.cfg.FromRelay {
		rec.From = r.Header.Get(wire.HopHeader)
	}
	if !rec.Session {
		rec.Method, rec.Protocol = r.Method, protocolOf(r)
		rec.target()
	}
	rec.BytesIn += rec.body.read
	rec.Plan = rec.route.PlanVersion()
	if rec.traced != nil {
		rec.Trace = rec.traced.ID()
	} else {
		rec.Trace = traceOf(r.Header)
	}
}

// target adds as much of the target of the request as the policy allows.
func (rec *record) target() {
	switch rec.handler.cfg.Record.Path {
	case requestlog.PathNone:
	case requestlog.PathFull:
		rec.Query = rec.r.URL.RawQuery
		fallthrough
	default:
		rec.Path = rec.r.URL.EscapedPath()
	}
}

// client returns the address of the client. It is the sender, unless a trusted proxy or
// another relay is: then it is the last address in X-Forwarded-For that a trusted sender
// has put there. If a relay forwards, the last one is the address of the proxy in front of the
// first relay, if there is a second. A relay that forwards a TCP session names the client
// in wire.ConnectionHeader.
func (rec *record) client() string {
	peer := addrOnly(rec.r.RemoteAddr)
	if rec.Session && rec.from == fromRelay {
		from, _, _ := strings.Cut(rec.r.Header.Get(wire.ConnectionHeader), " ")
		if client, err := netip.ParseAddrPort(from); err == nil {
			return client.Addr().String()
		}
		return peer
	}
	list := rec.r.Header[forwardedFor]
	if rec.from == fromClient || len(list) == 0 {
		return peer
	}
	before, last := cutLast(list[len(list)-1])
	if rec.from == fromRelay {
		if before == "" && len(list) > 1 {
			before = list[len(list)-2]
		}
		if before != "" {
			_, last = cutLast(before)
		}
	}
	if _, err := netip.ParseAddr(last); err != nil {
		return peer
	}
	return last
}

// cutLast returns the last element of a list and what is before it.
func cutLast(list string) (before, last string) {
	i := strings.LastIndexByte(list, ',')
	return list[:max(i, 0)], strings.Trim(list[i+1:], " \t")
}

func protocolOf(r *http.Request) string {
	switch {
	case r.ProtoMajor == 2:
		return "2"
	case r.ProtoMinor == 0:
		return "1.0"
	}
	return "1.1"
}

// traceOf returns the ID of the caller's trace, empty without a well-formed traceparent.
func traceOf(h http.Header) string {
	const length = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	values := h["Traceparent"]
	if len(values) != 1 || len(values[0]) < length || values[0][2] != '-' || values[0][35] != '-' {
		return ""
	}
	id := values[0][3:35]
	var b [16]byte
	if n, err := hex.Decode(b[:], []byte(id)); n != len(b) || err != nil || b == [16]byte{} || strings.ToLower(id) != id {
		return ""
	}
	return id
}

// callStatuses are the names of the statuses of gRPC.
var callStatuses = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// callStatusOf returns the name of the status in the trailers or the head of an answer, or
// else of that which the endpoint has given; empty if there is none.
func callStatusOf(h http.Header, given string) string {
	values := h[http.TrailerPrefix+"Grpc-Status"]
	if len(values) == 0 {
		values = h["Grpc-Status"]
	}
	if len(values) == 1 {
		given = values[0]
	}
	n, ok := parseCallStatus(given)
	if len(values) > 1 || !ok {
		return ""
	}
	return callStatusName(n)
}

// parseCallStatus returns the number of a status of at most two digits.
func parseCallStatus(given string) (n int, ok bool) {
	if len(given) == 0 || len(given) > 2 {
		return 0, false
	}
	for i := range len(given) {
		digit := given[i] - '0'
		if digit > 9 {
			return 0, false
		}
		n = 10*n + int(digit)
	}
	return n, true
}

// callStatusName returns the name of a status.
func callStatusName(n int) string {
	if n >= len(callStatuses) {
		return "UNKNOWN" // as clients of gRPC take it
	}
	return callStatuses[n]
}

// meteredBody counts the bytes that are read of a client's body. It is the body of the
// request meanwhile.
type meteredBody struct {
	io.ReadCloser // the original, nil if there is none
	buffered      bufferedBody
	read          int64
}

// bufferedBody is a meteredBody whose original knows how many bytes have arrived; package
// upstream asks for that.
type bufferedBody struct {
	*meteredBody
	source interface {
		Buffered() (n int, end bool)
	}
}

func (b *bufferedBody) Buffered() (n int, end bool) { return b.source.Buffered() }

func (b *meteredBody) begin(r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return
	}
	b.ReadCloser = r.Body
	b.buffered.meteredBody = b
	if source, ok := r.Body.(interface {
		Buffered() (n int, end bool)
	}); ok {
		b.buffered.source = source
		r.Body = &b.buffered
		return
	}
	r.Body = b
}

// end restores the original body of r.
func (b *meteredBody) end(r *http.Request) {
	if b.ReadCloser != nil {
		r.Body = b.ReadCloser
	}
}

// Read reads from the original. One goroutine reads at a time, and it has ended when the
// exchange returns.
func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}

// ReadLate is Read for package upstream: a body that does not move holds no buffer.
func (b *meteredBody) ReadLate(take func() []byte, drop func()) ([]byte, error) {
	p, err := upstream.ReadLate(b.ReadCloser, take, drop)
	b.read += int64(len(p))
	return p, err
}

// isRequestID reports whether a field is the ID of a request, or would be taken for it by
// a service behind CGI.
func isRequestID(name string) bool {
	return len(name) == len(wire.RequestIDHeader) && wire.Begins(name, "x-request-id")
}
