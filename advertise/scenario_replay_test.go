package advertise

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/clusterscript"
	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership"
)

// packetLog keeps the packets that members received while it ran, each once: what an
// eavesdropper on the network could send again.
type packetLog struct {
	mu      sync.Mutex
	on      bool
	known   map[string]bool
	packets [][]byte
}

func (t *packetLog) run(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on, t.known = on, map[string]bool{}
}

func (t *packetLog) hear(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on && !t.known[string(b)] {
		t.known[string(b)] = true
		t.packets = append(t.packets, append([]byte(nil), b...))
	}
}

// replay sends the whole packet log to every one of the processes, in the order in which
// it was heard, from an address that is no member's.
func (f *cluster) replay(a clusterscript.Args) error {
	to, err := f.Resolve(a[0])
	if err != nil {
		return err
	}
	if len(f.packetLog.packets) == 0 {
		return errors.New("the packet log is empty")
	}
	conn, err := f.FreshHost().ListenPacket("0.0.0.0:7400")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, packet := range f.packetLog.packets {
		for _, p := range to {
			if _, err := conn.WriteTo(packet, net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.Host.IP(), membership.DefaultGossipPort))); err != nil {
				return err
			}
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// recordedNetwork is a host on which the packet log listens.
type recordedNetwork struct {
	*memnet.Host
	packetLog *packetLog
}

func (h recordedNetwork) ListenPacket(addr string) (net.PacketConn, error) {
	conn, err := h.Host.ListenPacket(addr)
	return recordedConn{conn, h.packetLog}, err
}

type recordedConn struct {
	net.PacketConn
	packetLog *packetLog
}

func (c recordedConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.PacketConn.ReadFrom(b)
	if err == nil {
		c.packetLog.hear(b[:n])
	}
	return n, from, err
}
