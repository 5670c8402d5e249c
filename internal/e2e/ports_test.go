//go:build unix

package e2e

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// Ports are taken from below the range of outgoing connections (from 32768 on
// Linux): between our look at a port and the process that binds it, nothing else
// on the machine takes it by chance.
const (
	firstPort = 20000
	ports     = 12000
)

var portsUsed atomic.Uint32

// freeAddr is a loopback address that is free for TCP and UDP.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range ports {
		// Two runs at the same time begin at different places.
		place := (uint32(os.Getpid())*97 + portsUsed.Add(1)) % ports
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+place)
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		pc, err := net.ListenPacket("udp", addr)
		_ = ln.Close()
		if err != nil {
			continue
		}
		_ = pc.Close()
		return addr
	}
	t.Fatalf("no port of %d to %d is free", firstPort, firstPort+ports)
	return ""
}
