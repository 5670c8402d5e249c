//go:build unix

package procs

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// Ports are below the range for outgoing connections (from 32768 on Linux), so that no
// other program takes a port by chance between the check here and the bind of the process.
const (
	firstPort = 20000
	ports     = 12000
)

var portsUsed atomic.Uint32

// FreeAddr returns a loopback address that is free for TCP and UDP.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return FreeAddrOn(t, "127.0.0.1")
}

// FreeAddrOn is FreeAddr for another address of this host: Linux has all of 127.0.0.0/8, so
// that each member can have its own address.
func FreeAddrOn(t testing.TB, host string) string {
	t.Helper()
	addr, err := Free(host)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// Free returns an address of a host that is free for TCP and UDP.
func Free(host string) (addr string, err error) {
	for range ports {
		// Concurrent runs begin at different ports.
		place := (uint32(os.Getpid())*97 + portsUsed.Add(1)) % ports
		addr := net.JoinHostPort(host, strconv.Itoa(firstPort+int(place)))
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
		return addr, nil
	}
	return "", fmt.Errorf("no port of %d to %d is free on %s", firstPort, firstPort+ports, host)
}
