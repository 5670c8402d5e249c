package advertise

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/memnet"
)

// tape keeps the packets that members received while it ran, each once: what an
// eavesdropper on the network could send again.
type tape struct {
	mu      sync.Mutex
	on      bool
	known   map[string]bool
	packets [][]byte
}

func (t *tape) run(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on, t.known = on, map[string]bool{}
}

func (t *tape) hear(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on && !t.known[string(b)] {
		t.known[string(b)] = true
		t.packets = append(t.packets, append([]byte(nil), b...))
	}
}

// replay sends the whole tape to every one of the processes, in the order in which
// it was heard, from an address that is no member's.
func (f *flotilla) replay(to []*process) error {
	conn, err := f.freshHost().ListenPacket("0.0.0.0:7400")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, packet := range f.tape.packets {
		for _, p := range to {
			if _, err := conn.WriteTo(packet, net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.host.IP(), membership.DefaultGossipPort))); err != nil {
				return err
			}
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// taped is a host on which the tape listens.
type taped struct {
	*memnet.Host
	tape *tape
}

func (h taped) ListenPacket(addr string) (net.PacketConn, error) {
	conn, err := h.Host.ListenPacket(addr)
	return tapedConn{conn, h.tape}, err
}

type tapedConn struct {
	net.PacketConn
	tape *tape
}

func (c tapedConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.PacketConn.ReadFrom(b)
	if err == nil {
		c.tape.hear(b[:n])
	}
	return n, from, err
}
