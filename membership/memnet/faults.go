package memnet

import "net/netip"

type path struct{ from, to netip.Addr }

// faults are the cuts of the moment.
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

// open reports whether what is sent now from one host reaches the other.
func (n *Network) open(from, to netip.Addr) bool {
	if !n.faulty.Load() {
		return true
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return !n.faults.cut(from, to)
}

// Partition splits hosts into groups that do not reach each other. A host in no
// group reaches all. It replaces an earlier partition.
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

// Block cuts one direction: nothing sent by from reaches to. New streams need
// both directions, established ones carry data in the other.
func (n *Network) Block(from, to netip.Addr) {
	n.change(func(f *faults) {
		if f.blocked == nil {
			f.blocked = make(map[path]struct{})
		}
		f.blocked[path{from, to}] = struct{}{}
	})
}

// Blackhole cuts a host off from every other, in both directions and without a
// word: nothing is refused, everything hangs.
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
	for _, c := range conns { // who stalled looks again
		c.in.wake()
		c.out.wake()
	}
}
