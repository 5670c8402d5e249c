//go:build unix

package procs

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// Ports are below the range for outgoing connections (from 32768 on Linux), so that no
// other program takes a port by chance between the check here and the bind of the process.
// A run of tests takes them from a block of its own, whose first port it holds: another run
// on this machine takes another block.
const (
	firstPort = 20000
	blocks    = 12
	blockSize = 1000
)

var (
	portsUsed atomic.Uint32
	taken     sync.Map // the addresses of tests that run: a process may be gone for some time and come back
)

// claimBlock returns a listener on the first port of a block that no other run has. It stays
// until the process ends.
var claimBlock = sync.OnceValues(func() (net.Listener, error) {
	for n := range blocks {
		first := firstPort + (os.Getpid()+n)%blocks*blockSize
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("all %d blocks of ports from %d are taken: do other tests run?", blocks, firstPort)
})

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
	taken.Store(addr, nil)
	t.Cleanup(func() { taken.Delete(addr) })
	return addr
}

// Free returns an address of a host that is free for TCP and UDP.
func Free(host string) (addr string, err error) {
	claimed, err := claimBlock()
	if err != nil {
		return "", err
	}
	for range blockSize {
		port := claimed.Addr().(*net.TCPAddr).Port + 1 + int(portsUsed.Add(1)%(blockSize-1))
		addr := net.JoinHostPort(host, strconv.Itoa(port))
		if _, ok := taken.Load(addr); ok {
			continue
		}
		if isFree(addr) {
			return addr, nil
		}
	}
	return "", fmt.Errorf("no port of %d is free on %s", blockSize, host)
}

// isFree binds an address and releases it.
func isFree(addr string) bool {
	if runtime.GOOS == "linux" { // elsewhere net takes this lock itself
		// A process that is started meanwhile would hold the sockets until it executes its program,
		// and the address with them.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer ln.Close()
	pc, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	_ = pc.Close()
	return true
}
