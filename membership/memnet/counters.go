package memnet

import (
	"fmt"
	"sync/atomic"
)

// Counters are totals since the network was made.
type Counters struct {
	// Packets were handed to WriteTo, PacketBytes with them. Each was Delivered or
	// Lost (by chance), Blocked (the path was cut), Unbound (nobody listened) or
	// Overflowed (the receiver's queue was full), or is still on its way.
	Packets, PacketBytes                          uint64
	Delivered, Lost, Blocked, Unbound, Overflowed uint64
	Dials, DialsOK, DialsRefused, DialsTimedOut   uint64
	// StreamBytes were accepted by the Write of a stream.
	StreamBytes uint64
}

// String is one line for a test log.
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
