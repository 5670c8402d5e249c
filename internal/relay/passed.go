package relay

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/ringway/ringway/internal/relay/activation"
)

// passedName is the name of a socket that is meant for the ingress.
const passedName = "ingress"

// fitPassed returns for each address of the ingress, and then of TCP sessions, the socket that
// was passed for it, nil without one. A socket fits the address that it listens at; with the
// name of the ingress, the only socket that is left also fits the only address of the ingress
// that is left. The others are an error.
func fitPassed(ingress []ingressAddr, sessions []TCPListener, sockets []activation.Socket) ([]net.Listener, error) {
	var addrs []string
	for _, a := range ingress {
		addrs = append(addrs, a.addr)
	}
	for _, l := range sessions {
		addrs = append(addrs, l.Addr)
	}
	fitting := make([]net.Listener, len(addrs))
	var left []activation.Socket
	for _, s := range sockets {
		i := slices.IndexFunc(addrs, func(addr string) bool { return sameAddr(addr, s.Addr()) })
		if i < 0 || fitting[i] != nil {
			left = append(left, s)
			continue
		}
		fitting[i] = s.Listener
	}
	if len(left) == 0 {
		return fitting, nil
	}
	free := slices.Index(fitting[:len(ingress)], nil)
	if s := left[0]; len(left) > 1 || s.Name != passedName || free < 0 || slices.Contains(fitting[free+1:len(ingress)], nil) {
		return nil, fmt.Errorf("the socket %q on %s was passed to this process and fits no --ingress-addr, --tcp-ingress or --tls-passthrough: give the relay this address, or remove it from the socket unit", s.Name, s.Addr())
	}
	fitting[free] = left[0].Listener
	return fitting, nil
}

// sameAddr reports whether a socket listens at an address of the settings.
func sameAddr(addr string, socket net.Addr) bool {
	want, err := net.ResolveTCPAddr("tcp", addr)
	got, ok := socket.(*net.TCPAddr)
	if err != nil || !ok || want.Port != got.Port {
		return false
	}
	a, _ := netip.AddrFromSlice(want.IP)
	b, _ := netip.AddrFromSlice(got.IP)
	a, b = a.Unmap(), b.Unmap()
	every := func(ip netip.Addr) bool { return !ip.IsValid() || ip.IsUnspecified() }
	return a == b || every(a) && every(b)
}
