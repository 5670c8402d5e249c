package routing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// errOwnListener is why an endpoint that leads back to this relay is of no use: the
// admin API, for one, trusts those who connect from this host.
var errOwnListener = errors.New("this relay itself listens there: its worker offers what is not its own")

// ownListeners are the listeners of this process, so that no request is sent to them
// as if they were a worker's.
type ownListeners struct {
	ports []uint16
	hosts []netip.Addr // what other members call this host, besides its own addresses
}

func newOwnListeners(listeners, hosts []string) (own ownListeners) {
	for _, address := range listeners {
		if a, err := netip.ParseAddrPort(address); err == nil && !slices.Contains(own.ports, a.Port()) {
			own.ports = append(own.ports, a.Port())
		}
	}
	for _, host := range hosts {
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			own.hosts = append(own.hosts, ip.Unmap())
		}
	}
	return own
}

// listens reports whether an address is an IP of this host with the port of one of
// its listeners. What a host name means is known when it is dialled.
func (o ownListeners) listens(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && slices.Contains(o.ports, a.Port()) && o.local(a.Addr().Unmap().WithZone(""))
}

func (o ownListeners) local(ip netip.Addr) bool {
	if ip.IsLoopback() || ip.IsUnspecified() || slices.Contains(o.hosts, ip) {
		return true
	}
	interfaces, err := net.InterfaceAddrs() // asked for when a port is the same, which is rare
	return err == nil && slices.ContainsFunc(interfaces, func(a net.Addr) bool {
		host, _, _ := strings.Cut(a.String(), "/")
		own, err := netip.ParseAddr(host)
		return err == nil && own.Unmap().WithZone("") == ip
	})
}

// dial connects to a service, which may go by a name.
func (o ownListeners) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, resolved string, _ syscall.RawConn) error {
		if o.listens(resolved) {
			return fmt.Errorf("%s: %w", resolved, errOwnListener)
		}
		return nil
	}}
	return d.DialContext(ctx, network, address)
}
