package trust

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/ringway/ringway/membership/internal/gossip"
)

// A member answers each doubt by raising its incarnation by one. An incarnation has 32 bits
// and wraps around, and a member cannot answer above the maximum. Doubts arrive at most a few
// times per second, so an honest incarnation stays far below the limit that follows from the
// age of its instance. This alone bounds the doubts about an instance that does not sign its
// incarnation (see incarnation.go).
const (
	maxIncarnation       = 1 << 31
	incarnationHeadStart = 100_000
	incarnationsASecond  = 10
)

// incarnationAllowed reports whether an honest member can claim this incarnation. An instance that
// booted in the future, by the clock of this host, has the head start only.
func (g *Guard) incarnationAllowed(instance string, incarnation uint32) bool {
	_, epoch, ok := gossip.SplitInstance(instance)
	if !ok {
		return false
	}
	age := max(0, g.cfg.Clock().UnixMilli()-int64(min(epoch, 1<<50))) / 1000
	return int64(incarnation) <= min(maxIncarnation, incarnationHeadStart+incarnationsASecond*age)
}

// mayLeave reports whether a message may state that an instance left on purpose: the instance
// itself sent it, or its signed leave notice is known. Members that left receive no gossip, so
// such an instance could not contradict a forged message.
func (g *Guard) mayLeave(instance string, by announcer) bool {
	if id, _, ok := gossip.SplitInstance(instance); !ok || id == by.id {
		return ok
	}
	return g.HasLeft(instance)
}

func (g *Guard) HasLeft(instance string) bool {
	id, epoch, _ := gossip.SplitInstance(instance)
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.leaves[id], func(l signedLeave) bool { return l.epoch == epoch })
}

// signedLeave is a boot whose signed leave notice was checked.
type signedLeave struct {
	epoch uint64
	at    time.Duration
}

// RecordLeave records a signed leave notice, and forgets that of the oldest boot of its author if it is one too
// many: another member may repeat those of old boots at any time.
func (g *Guard) RecordLeave(id string, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	notices := slices.DeleteFunc(g.leaves[id], func(l signedLeave) bool { return l.epoch == epoch })
	if len(notices) == 0 && len(g.leaves) >= 2*g.cfg.MaxMembers {
		g.count(dropTooMany)
		return
	}
	notices = append(notices, signedLeave{epoch, g.elapsed()})
	slices.SortFunc(notices, func(a, b signedLeave) int { return cmp.Compare(a.epoch, b.epoch) })
	if len(notices) > leavesPerNode {
		notices = slices.Delete(notices, 0, 1)
		g.count(dropTooMany)
	}
	g.leaves[id] = notices
}

// announcer is the proven member that a message came from.
type announcer struct{ id, addr string }

// inspect returns the parts of a message that memberlist may receive: the message itself if
// all parts are valid, else the valid parts; nil if there are none.
func (g *Guard) inspect(payload []byte, by announcer) []byte {
	message := payload
	if len(message) > 5 && message[0] == gossip.KindChecksum {
		message = message[5:]
	}
	kept, whole := g.filter(message, by, false)
	if whole {
		return payload
	}
	return kept
}

// filter returns the valid parts of a message, and whether these are all parts. Kinds that are not
// listed are refused, because what they would change at memberlist is not checked.
func (g *Guard) filter(message []byte, by announcer, inside bool) (kept []byte, whole bool) {
	if len(message) == 0 {
		return nil, false
	}
	reason := ""
	switch message[0] {
	case gossip.KindUser:
		return message, true
	case gossip.KindPing, gossip.KindIndirectPing, gossip.KindAck, gossip.KindNack, gossip.KindError:
		if gossip.Decode(message[1:], &struct{}{}) != nil {
			reason = DropMessageFormat
		}
	case gossip.KindSuspect, gossip.KindDead:
		var d gossip.Doubt
		if gossip.Decode(message[1:], &d) != nil || len(d.From) > maxAccuser {
			reason = DropMessageFormat
			break
		}
		var kind byte
		if kind, reason = g.checkDoubt(message[0], &d, by); reason == "" {
			checked := gossip.Encode(kind, &d)
			return checked, bytes.Equal(checked, message)
		}
	case gossip.KindAlive:
		var a gossip.Alive
		if gossip.Decode(message[1:], &a) != nil {
			reason = DropMessageFormat
		} else {
			reason = g.checkAlive(a, by)
		}
	case gossip.KindCompound:
		if inside {
			reason = DropMessageFormat // memberlist never nests compound messages
			break
		}
		return g.filterCompound(message, by)
	default: // compressed or encrypted: members do not send these here
		reason = DropMessageFormat
	}
	if reason != "" {
		g.refuse(reason)
		return nil, false
	}
	return message, true
}

// refuse counts what memberlist does not receive.
func (g *Guard) refuse(reason string) {
	if reason != dropIdle {
		g.count(reason)
	}
}

// checkState returns why memberlist must not receive a state; "" if it may. memberlist takes the
// states that are neither alive nor left as suspicions.
func (g *Guard) checkState(s *gossip.State, by announcer) (reason string) {
	if s.State == gossip.StateAlive {
		return g.checkAlive(gossip.Alive{Incarnation: s.Incarnation, Node: s.Name, Addr: s.Addr, Port: s.Port, Meta: s.Meta, Vsn: s.Vsn}, by)
	}
	kind, d := byte(gossip.KindSuspect), gossip.Doubt{Incarnation: s.Incarnation, Node: s.Name, From: by.id}
	if s.State == gossip.StateLeft {
		kind, d.From = gossip.KindDead, s.Name
	}
	_, reason = g.checkDoubt(kind, &d, by)
	s.Incarnation = d.Incarnation
	return reason
}

// checkAlive returns why memberlist must not receive an alive message; "" if it may.
func (g *Guard) checkAlive(a gossip.Alive, by announcer) (reason string) {
	if !g.incarnationAllowed(a.Node, a.Incarnation) {
		return dropIncarnation
	}
	if gossip.TooLong(a.Node, a.Addr, a.Vsn) {
		return DropMessageFormat
	}
	if a.Node == g.self {
		return g.checkOwn(a)
	}
	t := announced{name: a.Node, addr: gossip.AddrPort(a.Addr, a.Port), metadata: a.Meta, incarnation: a.Incarnation}
	m, err := g.proofs.prove(t)
	if err == nil {
		g.endDisplaced(false)
		return g.checkIncarnation(a, m)
	}
	var unproven *unprovenError
	if errors.As(err, &unproven) {
		g.cfg.Unproven.WithLabelValues(unproven.kind).Inc()
		if unproven.missing != nil {
			if !g.parkAlive(*unproven.missing, a.Node, gossip.Encode(gossip.KindAlive, &a), requestSource{from: by.addr, also: t.addr}, by.id) {
				return dropTooMany
			}
		}
	}
	return dropUnproven
}

// filterCompound keeps the valid parts: one that is refused, such as a doubt too many, shows
// nothing about the others.
func (g *Guard) filterCompound(message []byte, by announcer) (kept []byte, whole bool) {
	all, whole := gossip.SplitCompound(message)
	if !whole {
		g.count(DropMessageFormat)
	}
	var parts [][]byte
	for _, one := range all {
		part, unchanged := g.filter(one, by, true)
		whole = whole && unchanged
		if part != nil {
			parts = append(parts, part)
		}
	}
	if whole {
		return message, true
	}
	if len(parts) == 0 {
		return nil, false
	}
	return gossip.JoinCompound(parts), false
}
