package process

import (
	"net"

	"github.com/ringway/ringway/internal/settings"
)

// Listener is an address that a process binds, and the setting that has it.
type Listener struct{ Setting, Addr string }

// CheckListeners reports those of which only one can be bound. Empty addresses are not bound.
func CheckListeners(all ...Listener) (problems []settings.Problem) {
	for i, l := range all {
		for _, before := range all[:i] {
			if l.Addr != "" && before.Addr != "" && Collide(l.Addr, before.Addr) {
				problems = append(problems, settings.Problem{Setting: l.Setting, Value: l.Addr, Related: []string{before.Setting},
					Reason: "only one of it and " + before.Addr + " of --" + before.Setting + " can be bound", Allowed: "addresses that differ in host or port"})
				break
			}
		}
	}
	return problems
}

// Collide reports whether only one of two addresses can be bound. A socket of Unix has no port.
func Collide(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	if portA != portB || portA == "0" {
		return false
	}
	ipA, ipB := net.ParseIP(hostA), net.ParseIP(hostB)
	return hostA == hostB || ipA != nil && ipA.Equal(ipB) || unspecified(hostA) || unspecified(hostB)
}

// unspecified reports whether a host means all addresses of this machine.
func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}
