package handshake

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// knock is a connection from the address to the listener of all; writes of the other end
// are read immediately.
func knock(t *testing.T, all *Pending, addr string) (*PendingConn, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return all.Add(&from{Conn: ours, addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))}), theirs
}

type from struct {
	net.Conn
	addr net.Addr
}

func (f *from) RemoteAddr() net.Addr { return f.addr }

// says makes the other end send a byte.
func says(t *testing.T, one *PendingConn, other net.Conn) {
	t.Helper()
	go func() { _, _ = other.Write([]byte{22}) }()
	if _, err := io.ReadFull(one, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// stays reports whether the connection is open.
func stays(one *PendingConn) bool {
	_ = one.Conn.SetReadDeadline(time.Now())
	_, err := one.Conn.Read(make([]byte, 1))
	netErr, ok := err.(net.Error)
	return ok && netErr.Timeout()
}

func TestTheOldestSilentOneGivesWay(t *testing.T) {
	all := NewPending(PendingConfig{Total: 4, PerSource: 4})
	busy, other := knock(t, all, "10.0.0.1:1")
	says(t, busy, other)
	var silent []*PendingConn
	for i := range 3 {
		one, _ := knock(t, all, fmt.Sprintf("10.0.0.2:%d", i))
		silent = append(silent, one)
	}
	fresh, _ := knock(t, all, "10.0.0.3:1")
	if stays(silent[0]) || !stays(busy) || !stays(silent[1]) || !stays(silent[2]) || !stays(fresh) {
		t.Errorf("not the oldest silent one went: %t %t %t %t %t", stays(busy), stays(silent[0]), stays(silent[1]), stays(silent[2]), stays(fresh))
	}
	if reason := silent[0].Remove(); reason != pendingTooMany {
		t.Errorf("it was told %q", reason)
	}
	if reason := fresh.Remove(); reason != "" {
		t.Errorf("the new one was told %q", reason)
	}
}

func TestASourceOverItsShareCostsNoOther(t *testing.T) {
	all := NewPending(PendingConfig{Total: 100, PerSource: 4})
	member, _ := knock(t, all, "[2001:db8:1:2::1]:1")
	var last *PendingConn
	for i := range 50 { // a host can choose 64 bits of its address
		last, _ = knock(t, all, fmt.Sprintf("[2001:db8:1:1::%x]:1", i+1))
	}
	if !stays(member) || !stays(last) {
		t.Error("a flood from one source closed the connection of another, or its newest")
	}
	if len(all.waiting) != 5 || len(all.sources) != 2 {
		t.Errorf("%d connections of %d sources, want 5 of 2", len(all.waiting), len(all.sources))
	}
	if a, b := originOf(&net.TCPAddr{IP: net.ParseIP("10.0.0.1")}), originOf(&net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.1")}); a != b {
		t.Errorf("%v and %v are the same host", a, b)
	}
}

// One that has just connected has had no time to send anything.
func TestConnectionsThatStallInTheMiddleBlockNoNewOne(t *testing.T) {
	all := NewPending(PendingConfig{Total: 8, PerSource: 8})
	stall := func() *PendingConn {
		one, other := knock(t, all, "10.0.0.1:1")
		says(t, one, other)
		return one
	}
	for range 8 {
		stall()
	}
	member, _ := knock(t, all, "10.0.0.2:1")
	for range 6 {
		stall()
	}
	if !stays(member) {
		t.Error("the new connection went before those that stall")
	}
	if len(all.waiting) != 8 {
		t.Errorf("%d connections, want 8", len(all.waiting))
	}
}

func TestAStrangerHasSoMuchTimeAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewPending(PendingConfig{})
		slow, _ := knock(t, all, "10.0.0.1:1")
		quick, _ := knock(t, all, "10.0.0.1:2")
		time.Sleep(2 * time.Second)
		if reason := quick.Remove(); reason != "" {
			t.Errorf("ended as %q after 2 s", reason)
		}
		time.Sleep(2 * time.Second)
		if stays(slow) || slow.Remove() != pendingTimeout {
			t.Error("it stays for longer than the limit")
		}
		if !stays(quick) {
			t.Error("one that has proven who it is was closed")
		}
		if len(all.waiting)+len(all.sources) != 0 {
			t.Error("something of them is left")
		}
	})
}
