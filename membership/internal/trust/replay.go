package trust

import (
	"cmp"
	"slices"
	"time"

	"github.com/ringway/ringway/membership/internal/gossip"
)

type sessionKey struct {
	key   keyID
	epoch uint64
}

// session holds the ticks received from one sender, as the window of IPsec against replays does
// (RFC 4303, 3.4.3): what is newer than floor and not among recent is new. Ticks are times and not
// consecutive numbers, so the window is a list and not a bitmap. Unlike IPsec a session also
// refuses what is late: a packet that was held back is new by its tick, but what it reports about
// other members is not true any more.
type session struct {
	// fastest is the smallest difference between this node's time and the sender's ticks:
	// that of the packet with the shortest delay.
	fastest time.Duration
	// recent are the newest ticks, in order; floor is the newest tick that was dropped.
	recent []uint64
	floor  uint64
	used   time.Duration // last use, in this node's time
}

// keptTicks is how far packets of one sender may be reordered.
const keptTicks = 64

type sessionVerdict uint8

const (
	sessionFresh sessionVerdict = iota
	sessionReplayed
	sessionStale
	sessionUnknown
)

func offset(tick uint64, now time.Duration) time.Duration {
	return now - time.Duration(min(tick, 1<<53))*time.Microsecond
}

// checkReplay decides whether a tick can be of a packet that was sent recently. It changes nothing,
// because the signature is checked later. A packet that was parked is measured against the answer
// that began the session, which is newer than the packet.
func (s *session) checkReplay(tick uint64, now time.Duration, waited bool) sessionVerdict {
	_, seen := slices.BinarySearch(s.recent, tick)
	delay := offset(tick, now) - s.fastest
	limit := maxDelay
	if waited {
		limit = time.Duration(parkedTicks) * time.Microsecond
	}
	switch {
	case seen || tick <= s.floor:
		return sessionReplayed
	case delay > limit:
		return sessionStale
	}
	return sessionFresh
}

// record stores a tick and reports false if it was already known. The signature is checked without
// the lock, so another copy of the packet may have been recorded since checkReplay.
func (s *session) record(tick uint64, now time.Duration) bool {
	at, seen := slices.BinarySearch(s.recent, tick)
	if seen || tick <= s.floor {
		return false
	}
	s.recent = slices.Insert(s.recent, at, tick)
	if len(s.recent) > keptTicks {
		s.floor = s.recent[0]
		s.recent = slices.Delete(s.recent, 0, 1)
	}
	s.fastest = min(s.fastest, offset(tick, now))
	s.used = now
	return true
}

// begin starts a session, or renews its clock offset. The sender must be known to be alive: it
// signed a nonce of this node, or holds the other end of a TLS connection.
func (g *Guard) begin(id sessionKey, tick uint64) {
	now := g.elapsed()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[id]
	if s == nil {
		g.displaceSession(id.key)
		if len(g.sessions) >= 2*sessionsPerCertificate*g.cfg.MaxMembers {
			g.count(dropTooMany)
			return
		}
		floor := uint64(0)
		if tick > parkedTicks {
			floor = tick - parkedTicks // packets that waited for this session are still accepted
		}
		s = &session{floor: floor, fastest: offset(tick, now)}
		g.sessions[id] = s
		g.epochs[id.key] = append(g.epochs[id.key], id.epoch)
	}
	// The offset is replaced, because a drifting clock would make all packets late in time.
	s.fastest = offset(tick, now)
	s.used = now
}

// endDisplaced makes memberlist take displaced instances for dead; with again, also those that it
// should have ended before: it may have lost the message. A message is the way to do so, because
// memberlist has no function that ends another member.
func (g *Guard) endDisplaced(again bool) {
	deaths, news := g.proofs.displaced(again)
	g.cfg.Unproven.WithLabelValues(unprovenSuperseded).Add(float64(news))
	for _, death := range deaths {
		death.From = g.self
		g.deliver(append(slices.Clone(g.header), gossip.Encode(gossip.KindDead, &death)...), g.addr)
	}
}

// displaceSession ends the session of a certificate that was unused for longest if another one
// would be too many: boots cost their author nothing. mu is held.
func (g *Guard) displaceSession(key keyID) {
	epochs := g.epochs[key]
	if len(epochs) < sessionsPerCertificate {
		return
	}
	oldest := slices.MinFunc(epochs, func(a, b uint64) int {
		return cmp.Compare(g.sessions[sessionKey{key, a}].used, g.sessions[sessionKey{key, b}].used)
	})
	g.endSession(sessionKey{key, oldest})
	g.count(dropSessions)
}

// endSession forgets a session. mu is held.
func (g *Guard) endSession(id sessionKey) {
	delete(g.sessions, id)
	left := slices.DeleteFunc(g.epochs[id.key], func(epoch uint64) bool { return epoch == id.epoch })
	if g.epochs[id.key] = left; len(left) == 0 {
		delete(g.epochs, id.key)
	}
}
