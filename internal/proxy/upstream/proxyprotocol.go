package upstream

import (
	"encoding/binary"
	"net/http"
	"net/netip"
	"strings"

	"github.com/ringway/ringway/internal/wire"
)

// proxySignature begins a header of the PROXY protocol, version 2 (HAProxy's
// doc/proxy-protocol.txt, section 2.2).
const proxySignature = "\r\n\r\n\x00\r\nQUIT\n"

const (
	proxyLocal = 0x20 // version 2, no addresses
	proxyProxy = 0x21 // version 2, the addresses of the client's connection
	proxyTCP4  = 0x11
	proxyTCP6  = 0x21
)

// proxyHeader returns the header with the addresses of the client's connection, as the first
// relay saw them. Without them the header states that the connection has no client.
func proxyHeader(r *http.Request) []byte {
	head := append(make([]byte, 0, 52), proxySignature...)
	from, to, ok := connectionOf(r)
	if !ok {
		return append(head, proxyLocal, 0, 0, 0)
	}
	if from.Addr().Is4() && to.Addr().Is4() {
		head = append(head, proxyProxy, proxyTCP4, 0, 12)
		a, b := from.Addr().As4(), to.Addr().As4()
		head = append(append(head, a[:]...), b[:]...)
	} else {
		head = append(head, proxyProxy, proxyTCP6, 0, 36)
		a, b := from.Addr().As16(), to.Addr().As16() // an IPv4 address is mapped
		head = append(append(head, a[:]...), b[:]...)
	}
	head = binary.BigEndian.AppendUint16(head, from.Port())
	return binary.BigEndian.AppendUint16(head, to.Port())
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
