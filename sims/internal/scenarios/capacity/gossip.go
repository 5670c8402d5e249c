package capacity

import (
	"math"
	"time"
)

// gossip is the gossip traffic of one member, in bytes per minute, sent and received.
type gossip struct {
	probes, members, changes, repair float64

	packets         float64       // share of the gossip packets that changes use
	spread          time.Duration // until every member knows of a change
	suspect, detect time.Duration // until the first and the last know of a crash
}

func (g gossip) sum() float64 { return g.probes + g.members + g.changes + g.repair }

func gossipOf(f fleet) gossip {
	n := float64(f.members())
	g := gossip{probes: 60 * probeBytes, repair: idleRepair}
	// Each member starts one exchange per interval and answers one; an exchange sends the
	// whole list in both directions.
	interval := pushPullInterval.Minutes()
	if n > pushPullScale {
		interval *= math.Ceil(math.Log2(n)-math.Log2(pushPullScale)) + 1
	}
	g.members = 4 * n * memberBytes / interval
	sends := math.Ceil(math.Log(max(10, n)) + certainty) // of a record; see membership/queue.go
	g.changes = 2 * f.changes * float64(f.record) * sends
	before := greeting
	if f.tls {
		before = handshake
	}
	g.repair += float64(exchangesAMinute * before)
	room := math.Floor(packetBytes / float64(f.record+recordOverhead))
	g.packets = f.changes / 60 * sends / (gossipNodes / gossipInterval.Seconds() * room)
	seconds := func(s float64) time.Duration {
		return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
	}
	g.spread = seconds(gossipInterval.Seconds() * max(1, math.Ceil(math.Log(n)/math.Log(1+gossipNodes))))
	suspicion := suspicionMult * max(1, math.Log10(max(1, n))) * probeInterval.Seconds()
	g.suspect = seconds(1 + suspicion)
	g.detect = seconds(3+suspicion) + g.spread
	return g
}
