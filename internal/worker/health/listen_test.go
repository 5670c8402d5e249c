package health

import (
	"net"
	"strings"
	"testing"
)

// listenOn binds a loopback address. Only a machine without IPv6 is excused, and only
// from what needs it.
func listenOn(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return listener
	case strings.HasPrefix(address, "[::1]"):
		t.Skipf("this machine has no IPv6 on loopback: %v", err)
	}
	t.Fatalf("listen on %s: %v", address, err)
	return nil
}
