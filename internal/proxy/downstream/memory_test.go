//go:build unix && !race

package downstream_test

import (
	"bytes"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
)

// The memory of the process counts, without that of the kernel's sockets. The race detector
// would have memory of its own.
func TestAnIdleConnectionHoldsNoBuffer(t *testing.T) {
	const conns = 1000
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = plainText
		_, _ = w.Write(short)
	}
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(answer)})
	resting, resters := startResting(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		growStack() // 6,000 bytes without the rest
		answer(w, r)
	})})
	for _, c := range []struct {
		name, addr, request string
		bound               int // bytes
	}{
		{"HTTP/1.1", addr, "GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: test\r\n\r\n", 6 << 10},
		{"HTTP/1.1, at rest", resting, "GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: test\r\n\r\n", 4500},
		// Header tables of both directions and the states of flow control take more.
		{"HTTP/2", addr, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + // SETTINGS, and a request on stream 1
			"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x01x", 14 << 10},
		{"HTTP/2, after a large head", addr, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + largeHead(60<<10, 1), 14 << 10},
		{"HTTP/2, after a head of many fields", addr, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + largeHead(1, 1000), 14 << 10},
	} {
		asked := 0
		idle := func(n int) (bytes int) {
			goroutines := runtime.NumGoroutine()
			for range n {
				askOverSocket(t, c.addr, c.request)
			}
			for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines+n+10 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond) // until the goroutines that served the requests have ended
			}
			if asked += n; c.addr == resting {
				procs.Await(t, "the connections rest", func() bool { return resters.Resting() == asked })
			}
			return inUse()
		}
		before := idle(conns / 10) // with what is made once
		each := (idle(conns) - before) / conns
		t.Logf("%s: %d bytes", c.name, each)
		if each > c.bound {
			t.Errorf("%s: an idle connection takes %d bytes, want at most %d", c.name, each, c.bound)
		}
	}
}

// largeHead returns the frames of a request on stream 1 with n fields of size bytes.
func largeHead(size, n int) string {
	var block, frames bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"}, {":path", "/"}} {
		_ = fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
	}
	for range n {
		_ = fields.WriteField(hpack.HeaderField{Name: "a", Value: strings.Repeat("v", size), Sensitive: true})
	}
	framer, first := http2.NewFramer(&frames, nil), block.Next(10)
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first, EndStream: true})
	for block.Len() > 0 {
		piece := block.Next(16 << 10)
		_ = framer.WriteContinuation(1, block.Len() == 0, piece)
	}
	return frames.String()
}

// growStack takes as much of the stack as the handler of a relay.
//
//go:noinline
func growStack() {
	var frame [3 << 10]byte
	runtime.KeepAlive(&frame)
}

// askOverSocket sends a request and reads the answer over a socket without the memory of package net.
func askOverSocket(t *testing.T, addr, request string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	to := netip.MustParseAddrPort(addr)
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Write(fd, []byte(request)); err != nil {
		t.Fatal(err)
	}
	var answer [8 << 10]byte
	for n := 0; n < len(short) || string(answer[n-len(short):n]) != string(short); {
		m, err := syscall.Read(fd, answer[n:])
		if err != nil || m == 0 {
			t.Fatalf("%d bytes, %v after %q", m, err, answer[:n])
		}
		n += m
	}
}

// inUse returns the bytes of heap and stacks after a collection.
func inUse() int {
	for range 6 { // one collection empties pools, the next frees what they held; each halves the stacks that are too large
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
