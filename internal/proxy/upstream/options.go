package upstream

import (
	"net/http"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

// Options are how to carry one request: the changes to it and to the response, so that the handler need not
// change the request's header map. Begin only reads them, and nothing of them is kept behind the end, so
// their slices may be reused for the next request.
type Options struct {
	// Header is set on the upstream request and replaces the client's fields of the same
	// name. A name or value that is not allowed in a header makes Begin fail before anything
	// is sent.
	Header []wire.Field
	// ForwardedFor is the client's address; it is appended to the client's X-Forwarded-For.
	// Empty leaves that field unchanged. To replace the client's list, put X-Forwarded-For
	// into Header instead.
	ForwardedFor string
	// Drop reports whether a client's field of this canonical name, in the head or in the
	// trailers, is not sent. Nil drops none.
	Drop func(name string) bool
	// ResponseHeader is set on the response and replaces the endpoint's
	// fields of the same name.
	ResponseHeader []wire.Field
	// SetCookie is a cookie that the response carries in addition to those of the endpoint.
	// It comes last, so it wins over one of the same name. Empty adds none. A response that caches
	// may keep for other clients gets none. OnCookie is called with whether this was so.
	SetCookie string
	OnCookie  func(withheld bool)
	// PassRoute means that the endpoint is another relay, and the answer shows the route: its Ringway-* fields are
	// passed on, except Ringway-Load and Ringway-Failed. Those of other endpoints are
	// dropped.
	PassRoute bool
	// Verbatim means that the endpoint passes the request on: its target is sent as it came, also
	// over HTTP/2. Other endpoints get no byte in it that HTTP/2 does not allow.
	Verbatim bool
	// Sidecar means that the endpoint is a worker's sidecar, and trusted: if it reports in
	// wire.FailedHeader that it could not carry the request to its service, that becomes the
	// exchange's own error, and nothing of the answer is passed on.
	Sidecar bool
	// Deadline is when the final response head must have arrived. The rest may last as long
	// as the client waits, because a stream has no deadline. Zero means the deadline of the
	// request's context, which in any case ends the whole exchange. With this field the
	// handler needs no derived context.
	Deadline time.Time
	// AfterBody moves Deadline while the client's body moves: the head may arrive this long
	// after the last byte of the body. So a slow client takes no time from the endpoint. 0
	// means that Deadline does not move. While a client keeps a stream of HTTP/2 open whose
	// length it has not declared, as a call of gRPC that streams, Deadline does not hold: as in
	// Envoy, the time of the endpoint begins when the request is whole.
	AfterBody time.Duration
	// Latest is the limit for the moves by AfterBody and for an open stream, such as the
	// client's own deadline. Zero means no limit.
	Latest time.Time
	// Progress is how long an exchange may go on without a byte in either direction. It ends
	// the exchange of a client that does not read its answer or send its body, of an
	// endpoint that stops in the middle of its answer, an idle tunnel, and, after Deadline, an
	// open stream whose answer has not begun. Otherwise the wait for the head is bounded by
	// Deadline. The exchange may last a fraction of a second longer. 0 means no limit.
	Progress time.Duration
	// Once means that the request is sent at most once, even if its method is idempotent and a
	// kept connection ended before an answer began.
	Once bool
	// ProxyProtocol sends the address of the client to a TCP service before the session, as a
	// header of the PROXY protocol, version 2.
	ProxyProtocol bool
	// Session describes the tunnel that the exchange may become, for Sessions.Tunnels.
	Session Session
	// Moved counts the bytes of a tunnel. Default nil: they are not counted.
	Moved *Moved
	// OnHead, if not nil, is called once with the final response head, before anything of it
	// is written to the client. If it returns false, the response is dropped: the client
	// gets nothing, Begin returns with Result.Dropped and no error, and the handler may try
	// another endpoint. OnHead must not block and not write to the client.
	OnHead func(Result) bool
	// OnBody, if not nil, is called with true when the exchange begins to wait for the next part of
	// the client's body, and with false when it has come. The goroutine that sends the body calls it,
	// and ends before the exchange. It must not block.
	OnBody func(waits bool)
}

// Answer is an exchange whose answer has begun. It ends with Deliver, or, for a program that reads
// the body itself, with End. One goroutine at a time uses it.
type Answer interface {
	// Deliver passes the body to the client, or connects client and endpoint if the answer is a 101.
	Deliver() (Result, *Fault)
	// Read reads from the body. It returns the last bytes together with io.EOF. With an empty p it
	// does not wait. From the first Read on, and between two, the watch of the pool waits for the
	// program and not for the endpoint.
	Read(p []byte) (int, error)
	// End returns no Fault if the whole body has arrived.
	End() (Result, *Fault)
}

// Result describes the response.
type Result struct {
	// Status is the final status code; 0 if there was none.
	Status int
	// Load is the endpoint's own value of Ringway-Load, -1 if absent, repeated or malformed. The
	// client never gets the field.
	Load int
	// Shed reports whether the endpoint refused because of load: 429, or 503 with
	// Ringway-Load or Retry-After.
	Shed bool
	// Failed is the endpoint's value of wire.FailedHeader, empty if absent. The client never
	// gets the field.
	Failed string
	// Again are the fields that state when the request may be sent again, of an answer with Failed.
	Again []wire.Field
	// Call reports whether the answer, over HTTP/2, is one of gRPC. CallStatus is the endpoint's
	// grpc-status there, empty if absent.
	Call       bool
	CallStatus string
	// Dropped reports whether OnHead refused the response.
	Dropped bool
	// Reused reports whether a warm connection carried the exchange.
	Reused bool
	// Upgraded reports whether the connection became a tunnel.
	Upgraded bool
	// Silent is the side that was silent if the exchange or tunnel was ended because nothing
	// moved. Only SilentEndpoint blames the endpoint.
	Silent Silent
	// Broke is the side whose error ended a tunnel.
	Broke Broke
	// Stopped reports whether Sessions has ended the tunnel.
	Stopped bool
	// BytesOut counts the body bytes written to the client, without framing. BytesIn counts
	// those that a tunnel carried from the client; the reader of a body can count others.
	BytesOut, BytesIn int64
	// Waited is how long the exchange waited for a connection to be opened or to become
	// free. It is 0, and costs no clock read, if a warm connection was idle.
	Waited time.Duration
}

// afterBody returns the deadline for the head of an answer to a request whose body last
// moved at that time. It is never before Deadline, so a body that ends early takes no time from the
// endpoint.
func (x *Options) afterBody(moved time.Time) time.Time {
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

// dropped reports whether a client's field is removed or replaced.
func (x *Options) dropped(name string) bool {
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

// againFields are the names of the fields of Result.Again.
var againFields = []string{"Retry-After", "Ratelimit", "Ratelimit-Policy"}

// keepsResponse reports whether the endpoint's response field may reach the client. The
// caller has removed hop-by-hop fields.
func keepsResponse[T string | []byte](x *Options, name T) bool {
	if len(name) >= len(wire.ReservedPrefix) && string(name[:len(wire.ReservedPrefix)]) == wire.ReservedPrefix {
		if !x.PassRoute || string(name) == wire.LoadHeader || string(name) == wire.FailedHeader {
			return false
		}
	}
	for i := range x.ResponseHeader {
		if x.ResponseHeader[i].Name == string(name) {
			return false
		}
	}
	return true
}

// keptNames returns the names of a Trailer field that may reach the client.
func (x *Options) keptNames(list string) string {
	var kept []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.Trim(name, " \t")
		if key := http.CanonicalHeaderKey(name); trailerField(key) && keepsResponse(x, key) {
			kept = append(kept, name)
		}
	}
	return strings.Join(kept, ", ")
}

// addResponse adds the exchange's own fields to the head h of a response. Withheld means that it
// gets no cookie.
func (x *Options) addResponse(h http.Header, withheld bool) {
	for _, f := range x.ResponseHeader {
		h[f.Name] = []string{f.Value}
	}
	if x.SetCookie != "" {
		if !withheld {
			h["Set-Cookie"] = append(h["Set-Cookie"], x.SetCookie)
		}
		if x.OnCookie != nil {
			x.OnCookie(withheld)
		}
	}
	announced := h["Trailer"]
	if announced == nil {
		return
	}
	// net/http's server moves a field of the head to the trailers if the field is announced
	// as a trailer. Trailers that arrive are sent without an announcement as well.
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

// shed reports whether an answer refuses the request because of load. A 503 alone may stand for any
// failure of a service, so it counts only with a field that states this cause.
func shed(status int, load int, retryAfter bool) bool {
	return status == http.StatusTooManyRequests ||
		status == http.StatusServiceUnavailable && (load >= 0 || retryAfter)
}

// parseLoad reads a Ringway-Load value: a decimal number of at most 9 digits, which fit into an int
// of 32 bits.
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
