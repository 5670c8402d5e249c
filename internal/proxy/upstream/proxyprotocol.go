package upstream

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/pires/go-proxyproto"

	"github.com/ringway/ringway/internal/wire"
)

// proxyHeader returns a header of version 2 with the addresses of the client's connection, as
// the first relay saw them. Without them the header states that the connection has no client.
func proxyHeader(r *http.Request) ([]byte, error) {
	var client, local net.Addr
	if from, to, ok := connectionOf(r); ok {
		client, local = net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to)
	}
	return proxyproto.HeaderProxyFromAddrs(2, client, local).Format()
}

// connectionOf reads wire.ConnectionHeader.
func connectionOf(r *http.Request) (from, to netip.AddrPort, ok bool) {
	values := r.Header[wire.ConnectionHeader]
	if len(values) != 1 {
		return from, to, false
	}
	client, local, _ := strings.Cut(values[0], " ")
	from, err := netip.ParseAddrPort(client)
	if err != nil {
		return from, to, false
	}
	if to, err = netip.ParseAddrPort(local); err != nil {
		return from, to, false
	}
	return netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port()), netip.AddrPortFrom(to.Addr().Unmap().WithZone(""), to.Port()), true
}
