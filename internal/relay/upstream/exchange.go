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
	// DropPrefix lists canonical name prefixes; client fields that begin with
	// one of them are not sent.
	DropPrefix []string
	// ResponseHeader is set on the response and replaces the endpoint's
	// fields of the same name.
	ResponseHeader []Field
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
	// BytesOut counts the body bytes written to the client, without framing.
	BytesOut int64
}

const loadField = LoadHeader

// The headers with which endpoints speak to relays. They never reach a client.
const (
	// LoadHeader is how many other requests an endpoint has in flight.
	LoadHeader = "Ringway-Load"
	// FailedHeader is on a sidecar's own answer to a request that its service did
	// not answer: FailedUnsent when no byte of it had been sent to the service,
	// anything else when the service may have acted on it.
	FailedHeader = "Ringway-Failed"
	FailedUnsent = "unsent"
	FailedSent   = "sent"
)

// reservedPrefix is the name space of header fields that belong to relays.
const reservedPrefix = "Ringway-"

func (x *Exchange) dropped(name string) bool {
	for _, p := range x.DropPrefix {
		if strings.HasPrefix(name, p) {
			return true
		}
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
	if len(name) > len(reservedPrefix) && name[:len(reservedPrefix)] == reservedPrefix {
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

func (x *Exchange) addResponse(h http.Header) {
	for _, f := range x.ResponseHeader {
		h[f.Name] = []string{f.Value}
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
