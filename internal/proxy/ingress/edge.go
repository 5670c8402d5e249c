package ingress

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
)

// origin is the kind of sender of a request. It decides which of the fields X-Forwarded-*, those of
// origins, and wire.CallerHeader are trusted.
type origin uint8

const (
	fromClient  origin = iota // not trusted: the fields are replaced or dropped
	fromFront                 // a trusted proxy: the fields pass, and X-Forwarded-For is extended
	fromRelay                 // the first relay has decided: the fields pass unchanged
	fromProgram               // this process: the fields pass unchanged
)

// forwardedFor is the field that lists the addresses through which a request came.
const forwardedFor = "X-Forwarded-For"

// clientAddr returns the address by which limits and circuits count a client: without a
// port, and for IPv6 the /64 network, because one client usually gets a /64. The result is
// not valid if the remote address is none.
func clientAddr(remote string) netip.Addr {
	return handshake.SourceOf(remoteAddr(remote)).Addr()
}

// remoteAddr returns the address of a connection's other end, not valid if there is none. It does not
// read the port, which has no use here and would cost each request as much as the address.
func remoteAddr(remote string) netip.Addr {
	host := remote[:max(strings.LastIndexByte(remote, ':'), 0)]
	if strings.HasPrefix(host, "[") {
		host = strings.TrimSuffix(host[1:], "]")
	}
	peer, _ := netip.ParseAddr(host)
	return peer.Unmap().WithZone("")
}

// originOf returns the kind of sender of a request.
func (h *Handler) originOf(r *http.Request) origin {
	switch {
	case h.cfg.FromRelay:
		return fromRelay
	case h.cfg.Local:
		return fromProgram
	}
	if len(h.cfg.TrustedProxies) == 0 {
		return fromClient
	}
	addr := remoteAddr(r.RemoteAddr)
	for _, network := range h.cfg.TrustedProxies {
		if network.Contains(addr) {
			return fromFront
		}
	}
	return fromClient
}

// forwarded adds the fields that show the service where the request comes from.
func (t *request) forwarded(x *upstream.Options, headers []wire.Field) []wire.Field {
	switch t.from {
	case fromProgram:
		return headers
	case fromRelay:
		if values := t.r.Header[wire.CallerHeader]; len(values) > 0 {
			headers = append(headers, wire.Field{Name: wire.CallerHeader, Value: values[0]})
		}
		return headers
	case fromClient: // the certificate of a proxy is not that of its clients
		if name := certifiedName(t.r); name != "" {
			headers = append(headers, wire.Field{Name: wire.CallerHeader, Value: name})
		}
	}
	if t.handler.cfg.Via {
		headers = append(headers, t.handler.via(t.r))
	}
	client, trusted := addrOnly(t.r.RemoteAddr), t.from == fromFront
	if trusted {
		x.ForwardedFor = client
	} else {
		headers = append(headers, wire.Field{Name: forwardedFor, Value: client})
	}
	if !trusted || t.r.Header["X-Forwarded-Host"] == nil {
		headers = append(headers, wire.Field{Name: "X-Forwarded-Host", Value: t.r.Host})
	}
	if !trusted || t.r.Header["X-Forwarded-Proto"] == nil {
		proto := "http"
		if t.r.TLS != nil {
			proto = "https"
		}
		headers = append(headers, wire.Field{Name: "X-Forwarded-Proto", Value: proto})
	}
	return headers
}

// drops reports whether a field of the request is not passed on.
func (t *request) drops(name string) bool {
	switch name[0] {
	case 'R', 'r':
		return wire.Reserved(name)
	case 'T', 't':
		return t.trace != nil && name == tracestateHeader || t.hidesOrigin(name)
	case 'X', 'x', 'F', 'f', 'C', 'c':
		if t.record != nil && t.record.passes && isRequestID(name) {
			return true // the relay sends its own
		}
		return t.hidesOrigin(name)
	}
	return false
}

// hidesOrigin reports whether a field is not passed on because its sender may not state where a
// request comes from.
func (t *request) hidesOrigin(name string) bool {
	switch t.from {
	case fromClient:
		return saysOrigin(name)
	case fromFront: // a proxy that sets the field may let the client's variant pass
		return strings.IndexByte(name, '_') >= 0 && saysOrigin(name)
	}
	return false
}

// origins are the fields in which proxies and content delivery networks name the client, in
// addition to those that begin with x-forwarded. Services believe them because their own proxies
// set them. Their first letters are those in request.drops.
var origins = [...]string{
	"forwarded", "x-real-ip", "true-client-ip", "x-client-ip", "x-cluster-client-ip", "client-ip", "cf-connecting-ip", "cf-connecting-ipv6",
	"fastly-client-ip", "fly-client-ip", "x-original-forwarded-for", "x-envoy-external-address", "x-originating-ip", "x-remote-ip", "x-remote-addr",
}

// originsOfLength has the origins by their length, so that most fields of a request are compared with none.
var originsOfLength = func() (t [32][]string) {
	for _, origin := range origins {
		t[len(origin)] = append(t[len(origin)], origin)
	}
	return t
}()

// saysOrigin reports whether a field describes where a request comes from.
func saysOrigin(name string) bool {
	if wire.Begins(name, "x-forwarded") {
		return true
	}
	if len(name) >= len(originsOfLength) {
		return false
	}
	for _, origin := range originsOfLength[len(name)] {
		if wire.Begins(name, origin) {
			return true
		}
	}
	return false
}

// addrOnly removes the port from a remote address.
func addrOnly(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
