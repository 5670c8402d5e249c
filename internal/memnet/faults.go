package memnet

import (
	"fmt"
	"net/netip"
	"sync/atomic"
)

type path struct{ from, to netip.Addr }

// faults are the current cuts.
type faults struct {
	group     map[netip.Addr]int
	blocked   map[path]struct{}
	blackhole map[netip.Addr]struct{}
}

func (f *faults) cut(from, to netip.Addr) bool {
	if from == to {
		return false
	}
	if _, hole := f.blackhole[from]; hole {
		return true
	}
	if _, hole := f.blackhole[to]; hole {
		return true
	}
	if _, blocked := f.blocked[path{from, to}]; blocked {
		return true
	}
	a, inA := f.group[from]
	b, inB := f.group[to]
	return inA && inB && a != b
}

// open reports whether data sent now from one host reaches the other.
func (n *Network) open(from, to netip.Addr) bool {
	if !n.faulty.Load() {
		return true
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return !n.faults.cut(from, to)
}

// Partition splits hosts into groups that cannot reach each other. A host in no group
// reaches all. It replaces an earlier partition.
func (n *Network) Partition(groups ...[]netip.Addr) {
	n.change(func(f *faults) {
		f.group = make(map[netip.Addr]int)
		for i, hosts := range groups {
			for _, h := range hosts {
				f.group[h] = i
			}
		}
	})
}

// Block cuts one direction: data sent by from does not reach to. New streams need both
// directions; established ones carry data in the other.
func (n *Network) Block(from, to netip.Addr) {
	n.change(func(f *faults) {
		if f.blocked == nil {
			f.blocked = make(map[path]struct{})
		}
		f.blocked[path{from, to}] = struct{}{}
	})
}

// Blackhole cuts a host off from every other, in both directions and silently: connections
// are not refused, they hang.
func (n *Network) Blackhole(host netip.Addr) {
	n.change(func(f *faults) {
		if f.blackhole == nil {
			f.blackhole = make(map[netip.Addr]struct{})
		}
		f.blackhole[host] = struct{}{}
	})
}

// Heal ends every partition, block and black hole. Loss and latency stay.
func (n *Network) Heal() { n.change(func(f *faults) { *f = faults{} }) }

func (n *Network) change(edit func(*faults)) {
	n.mu.Lock()
	edit(&n.faults)
	n.faulty.Store(len(n.faults.group)+len(n.faults.blocked)+len(n.faults.blackhole) > 0)
	close(n.changed)
	n.changed = make(chan struct{})
	conns := make([]*conn, 0, len(n.conns))
	for c := range n.conns {
		conns = append(conns, c)
	}
	n.mu.Unlock()
	for _, c := range conns { // wake stalled connections
		c.in.wake()
		c.out.wake()
	}
}

// Counters are totals since the network was made.
type Counters struct {
	// Packets were passed to WriteTo, PacketBytes are their sizes. Each packet was Delivered, Lost
	// (by chance), Blocked (the path was cut), Unbound (no socket on the address) or Overflowed
	// (the receiver's queue was full), or is still in flight.
	Packets, PacketBytes                          uint64
	Delivered, Lost, Blocked, Unbound, Overflowed uint64
	Dials, DialsOK, DialsRefused, DialsTimedOut   uint64
	// StreamBytes were accepted by the Write of a stream.
	StreamBytes uint64
}

// String returns one line for a test log.
func (c Counters) String() string {
	return fmt.Sprintf("packets %d (%d B): delivered %d, lost %d, blocked %d, unbound %d, overflowed %d; dials %d: ok %d, refused %d, timed out %d; stream bytes %d",
		c.Packets, c.PacketBytes, c.Delivered, c.Lost, c.Blocked, c.Unbound, c.Overflowed,
		c.Dials, c.DialsOK, c.DialsRefused, c.DialsTimedOut, c.StreamBytes)
}

type counters struct {
	packets, packetBytes                          atomic.Uint64
	delivered, lost, blocked, unbound, overflowed atomic.Uint64
	dials, dialsOK, dialsRefused, dialsTimedOut   atomic.Uint64
	streamBytes                                   atomic.Uint64
}

func (c *counters) read() Counters {
	return Counters{
		Packets: c.packets.Load(), PacketBytes: c.packetBytes.Load(),
		Delivered: c.delivered.Load(), Lost: c.lost.Load(), Blocked: c.blocked.Load(),
		Unbound: c.unbound.Load(), Overflowed: c.overflowed.Load(),
		Dials: c.dials.Load(), DialsOK: c.dialsOK.Load(),
		DialsRefused: c.dialsRefused.Load(), DialsTimedOut: c.dialsTimedOut.Load(),
		StreamBytes: c.streamBytes.Load(),
	}
}
