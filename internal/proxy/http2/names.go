package http2

import (
	"net/http"
	"strings"

	"github.com/ringway/ringway/internal/wire"
)

// lowerNames and canonicalNames translate the names of common fields without an allocation.
// HTTP/2 has lower-case names, http.Header canonical ones.
var lowerNames, canonicalNames = func() (lower, canonical map[string]string) {
	lower, canonical = map[string]string{}, map[string]string{}
	for _, name := range []string{
		"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Accept-Ranges", "Access-Control-Allow-Credentials",
		"Access-Control-Allow-Headers", "Access-Control-Allow-Methods", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers",
		"Access-Control-Max-Age", "Access-Control-Request-Headers", "Access-Control-Request-Method", "Age", "Allow", "Alt-Svc",
		"Authorization", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length",
		"Content-Location", "Content-Range", "Content-Security-Policy", "Content-Type", "Cookie", "Date", "Etag", "Expect", "Expires",
		"Forwarded", "From", "Grpc-Accept-Encoding", "Grpc-Encoding", "Grpc-Message", "Grpc-Status", "Grpc-Status-Details-Bin",
		"Grpc-Timeout", "Host", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Last-Modified",
		"Link", "Location", "Max-Forwards", "Origin", "Pragma", "Priority", "Proxy-Authenticate", "Proxy-Authorization", "Range", "Referer",
		"Refresh", "Retry-After", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User", "Server", "Server-Timing",
		"Set-Cookie", "Strict-Transport-Security", "Te", "Traceparent", "Tracestate", "Trailer", "Upgrade-Insecure-Requests",
		"User-Agent", "Vary", "Via", "Www-Authenticate", "X-Content-Type-Options", "X-Forwarded-For", "X-Forwarded-Host",
		"X-Forwarded-Proto", "X-Frame-Options", "X-Real-Ip", "X-Request-Id", "X-Requested-With",
		wire.ServiceHeader, wire.KeyHeader, wire.TimeoutHeader, wire.CallerHeader, wire.HopHeader, wire.ExposeHeader,
		wire.RelayHeader, wire.EndpointHeader, wire.AttemptsHeader, wire.LoadHeader, wire.FailedHeader,
	} {
		l := strings.ToLower(name)
		lower[name], canonical[l] = l, name
	}
	return lower, canonical
}()

// LowerName returns the name of a field in HTTP/2.
func LowerName(name string) string {
	if lower, ok := lowerNames[name]; ok {
		return lower
	}
	return strings.ToLower(name)
}

// CanonicalName returns the name of a field as http.Header has it.
func CanonicalName(name string) string {
	if canonical, ok := canonicalNames[name]; ok {
		return canonical
	}
	return http.CanonicalHeaderKey(name)
}
