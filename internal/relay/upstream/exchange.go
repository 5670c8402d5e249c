package upstream

import (
	"net/http"
	"strings"
	"time"
)

// Field is one header field. Name must be in canonical form
// (http.CanonicalHeaderKey).
type Field struct{ Name, Value string }

// Exchange holds what the handler wants changed on the way, without touching
// the request's header map. It is only read, and nothing of it is kept after
// Carry returns, so its slices may be used again for the next request.
type Exchange struct {
	// Header is set on the upstream request and replaces the client's fields
	// of the same name. A name or value that cannot stand in a header makes
	// Carry fail before anything is sent.
	Header []Field
	// ForwardedFor is the client's address; it is appended to what the client
	// sent in X-Forwarded-For. Empty leaves that field alone. To replace the
	// client's list, put X-Forwarded-For into Header instead.
	ForwardedFor string
	// Drop reports whether a client's field of this canonical name, in the head or
	// in the trailers, is not sent. Nil drops none.
	Drop func(name string) bool
	// ResponseHeader is set on the response and replaces the endpoint's
	// fields of the same name.
	ResponseHeader []Field
	// SetCookie is a cookie that the response brings besides the endpoint's own, which
	// it follows: of two with one name it counts. Empty adds none.
	SetCookie string
	// Peer says that the endpoint is another relay: its Ringway-* response
	// fields are passed on (but Ringway-Load and Ringway-Failed); an endpoint's
	// own are dropped.
	Peer bool
	// Sidecar says that the endpoint is a worker's sidecar, and trusted: when it
	// reports in FailedHeader that it could not carry the request to its service,
	// that is the exchange's own error, and nothing of the answer is passed on.
	Sidecar bool
	// Deadline is when the final response head must have arrived. What follows
	// may last as long as the client waits: a stream has no deadline. Zero
	// means the deadline of the request's context, which in any case ends the
	// whole exchange. It spares the handler a derived context.
	Deadline time.Time
	// AfterBody moves Deadline while the client's body moves: the head may take this
	// long after the last byte of it. 0 means that Deadline stays. A client that is
	// slow costs the endpoint no time.
	AfterBody time.Duration
	// Latest is what AfterBody does not move Deadline beyond, such as the client's own
	// deadline. Zero means no such limit.
	Latest time.Time
	// Progress is how long an exchange may go on without a byte in either
	// direction, other than before the head, which is Deadline's: a client that does
	// not read its answer or send its body, an endpoint that stops in the middle of
	// its answer, a tunnel that is idle. It may last a part of a second longer. 0
	// means no limit.
	Progress time.Duration
	// OnHead, when not nil, is called once with the final response head,
	// before anything of it is written to the client. When it returns false
	// the response is dropped: the client sees nothing, Carry returns with
	// Result.Dropped and no error, and the handler may try elsewhere. It must
	// not block and not write to the client.
	OnHead func(Result) bool
}

// Result says what came back.
type Result struct {
	// Status is the final status code; 0 when there was none.
	Status int
	// Load is the endpoint's own figure from Ringway-Load, -1 when absent or
	// malformed. The client never sees the field.
	Load int
	// Shed says that the endpoint refused for load: 429, or 503 with
	// Ringway-Load or Retry-After.
	Shed bool
	// Dropped says that OnHead turned the response away.
	Dropped bool
	// Reused says that a warm connection carried the exchange.
	Reused bool
	// Upgraded says that the connection became a tunnel.
	Upgraded bool
	// Silent says that the exchange, or the tunnel, was ended because nothing moved,
	// and whose turn it was. Only a silent endpoint is blamed for it.
	Silent Silent
	// BytesOut counts the body bytes written to the client, without framing.
	BytesOut int64
}

// afterBody is the deadline for the head of an answer to a request whose body moved
// last at that time.
func (x *Exchange) afterBody(moved time.Time) time.Time {
	if x.AfterBody <= 0 || x.Deadline.IsZero() || moved.IsZero() {
		return x.Deadline
	}
	later := moved.Add(x.AfterBody)
	if !x.Latest.IsZero() && later.After(x.Latest) {
		later = x.Latest
	}
	if later.After(x.Deadline) {
		return later
	}
	return x.Deadline
}

const loadField = LoadHeader

// The headers with which endpoints speak to relays. They never reach a client.
const (
	// LoadHeader is how many other requests an endpoint has in flight.
	LoadHeader = "Ringway-Load"
	// FailedHeader is on a sidecar's own answer to a request that its service did
	// not answer: FailedUnsent when no byte of it had been sent to the service,
	// FailedFull when none was because the service has as many requests in flight as
	// it has slots, anything else when the service may have acted on it.
	FailedHeader = "Ringway-Failed"
	FailedUnsent = "unsent"
	FailedFull   = "full"
	FailedSent   = "sent"
)

// reservedPrefix is the name space of header fields that belong to relays.
const reservedPrefix = "Ringway-"

// dropped reports whether a client's field is not sent as it is.
func (x *Exchange) dropped(name string) bool {
	if x.Drop != nil && x.Drop(name) {
		return true
	}
	for i := range x.Header {
		if x.Header[i].Name == name {
			return true
		}
	}
	return false
}

// keepsResponse reports whether the endpoint's response field may reach the
// client. Hop-by-hop fields are sorted out before.
func (x *Exchange) keepsResponse(name string) bool {
	if strings.HasPrefix(name, reservedPrefix) {
		if !x.Peer || name == loadField || name == FailedHeader {
			return false
		}
	}
	for i := range x.ResponseHeader {
		if x.ResponseHeader[i].Name == name {
			return false
		}
	}
	return true
}

// keptNames are the names of a Trailer field that may reach the client.
func (x *Exchange) keptNames(list string) string {
	var kept []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.Trim(name, " \t"); x.keepsResponse(http.CanonicalHeaderKey(name)) {
			kept = append(kept, name)
		}
	}
	return strings.Join(kept, ", ")
}

// addResponse completes the head h of a response.
func (x *Exchange) addResponse(h http.Header) {
	for _, f := range x.ResponseHeader {
		h[f.Name] = []string{f.Value}
	}
	if x.SetCookie != "" {
		h["Set-Cookie"] = append(h["Set-Cookie"], x.SetCookie)
	}
	announced := h["Trailer"]
	if announced == nil {
		return
	}
	// net/http's server moves a field of the head to the trailers when it is announced
	// as one. What comes as a trailer is sent without that, too.
	delete(h, "Trailer")
	for _, list := range announced {
		for name := range strings.SplitSeq(list, ",") {
			name = strings.Trim(name, " \t")
			if _, inHead := h[http.CanonicalHeaderKey(name)]; !inHead {
				h.Add("Trailer", name)
			}
		}
	}
}

func shed(status int, load int, retryAfter bool) bool {
	return status == http.StatusTooManyRequests ||
		status == http.StatusServiceUnavailable && (load >= 0 || retryAfter)
}

// parseLoad reads a Ringway-Load value: a decimal number of at most 9 digits.
func parseLoad(v string) int {
	if len(v) == 0 || len(v) > 9 {
		return -1
	}
	n := 0
	for i := 0; i < len(v); i++ {
		if v[i] < '0' || v[i] > '9' {
			return -1
		}
		n = n*10 + int(v[i]-'0')
	}
	return n
}
