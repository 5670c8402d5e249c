//go:build unix

package http2_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/proxy/http2"
)

// In order, the system would go on sending to a client that does not read, for minutes.
func TestAConnectionWhoseLastBytesAreNotReadIsReset(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	// Not later: a window that was announced must not shrink.
	small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) }), err)
	}}
	client, err := small.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.(*net.TCPConn).SetWriteBuffer(4 << 10)
	server := http2.NewServer(nc, http2.Config{MaxHead: 8 << 10, MaxStreams: 1, Serve: func(s *http2.Stream) { s.Close() }}, nil)
	ended := make(chan error, 1)
	go func() { ended <- server.Run() }()
	_, _ = io.WriteString(client, http2.Preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and SETTINGS
	for range 1900 {
		_, _ = io.WriteString(client, "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678") // PING
	}
	_, _ = io.WriteString(client, "\x00\x00\x00\x00\x00\x00\x00\x00\x00") // DATA for stream 0
	if err := <-ended; http2.WhyEnded(err) != http2.WhyMalformed {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d bytes and %v, want a reset", n, err)
	}
}
