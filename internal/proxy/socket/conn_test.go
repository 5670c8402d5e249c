package socket_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/proxy/socket"
)

func TestADirectConnectionReadsWritesAndFailsAsTheOneBelow(t *testing.T) {
	near, far := connected(t)
	c := socket.Direct(near)
	if socket.Below(c) != near {
		t.Error("the connection below is another one")
	}
	if n, err := c.Read(nil); n != 0 || err != nil {
		t.Errorf("a read of nothing: %d, %v", n, err)
	}

	large := make([]byte, 4<<20) // more than the system holds
	for i := range large {
		large[i] = byte(i)
	}
	sent := make(chan error, 1)
	go func() { _, err := c.Write(large); sent <- err }()
	got := make([]byte, len(large))
	if _, err := io.ReadFull(far, got); err != nil || string(got) != string(large) {
		t.Errorf("what was written did not arrive: %v", err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	go func() { _, err := far.Write(large); sent <- err }()
	clear(got)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != string(large) {
		t.Errorf("what was sent was not read: %v", err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}

	var op *net.OpError
	_ = c.SetReadDeadline(time.Now().Add(-time.Second))
	if _, err := c.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &op) || op.Op != "read" {
		t.Errorf("after the deadline: %v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	_ = far.(*net.TCPConn).SetLinger(0)
	_ = far.Close()
	if _, err := c.Read(got); !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) || op.Op != "read" {
		t.Errorf("after a reset: %v", err)
	}
	if _, err := c.Write(got); !errors.As(err, &op) || op.Op != "write" {
		t.Errorf("a write after a reset: %v", err)
	}
	_ = c.Close()
	if _, err := c.Read(got); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the close: %v", err)
	}
}

func TestADirectConnectionAllocatesNothing(t *testing.T) {
	near, far := connected(t)
	c, b := socket.Direct(near), make([]byte, 1)
	if n := testing.AllocsPerRun(100, func() {
		_, err := c.Write(b)
		_, errFar := far.Read(b)
		_, errBack := far.Write(b)
		_, errHere := c.Read(b)
		if err := errors.Join(err, errFar, errBack, errHere); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a byte each way", n)
	}
}

func TestTheEndOfADirectConnectionIsTheEnd(t *testing.T) {
	near, far := connected(t)
	_ = far.Close()
	if n, err := socket.Direct(near).Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
}

func TestAConnectionWithoutASocketStaysAsItIs(t *testing.T) {
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	if socket.Direct(near) != near {
		t.Error("it was replaced")
	}
}
