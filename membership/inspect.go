package membership

import (
	"bytes"
	"errors"
	"slices"
	"time"
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

// incarnationAllowed reports whether an honest member can claim this incarnation.
func (g *guard) incarnationAllowed(instance string, incarnation uint32) bool {
	_, epoch, ok := splitInstance(instance)
	if !ok {
		return false
	}
	age := max(0, g.cfg.clock().UnixMilli()-int64(min(epoch, 1<<50))) / 1000
	return int64(incarnation) <= min(maxIncarnation, incarnationHeadStart+incarnationsASecond*age)
}

// mayLeave reports whether a message may state that an instance left on purpose: the instance
// itself sent it, or its signed leave notice is known. Members that left receive no gossip, so
// such an instance could not contradict a forged message.
func (g *guard) mayLeave(instance string, by announcer) bool {
	if id, _, ok := splitInstance(instance); !ok || id == by.id {
		return ok
	}
	return g.hasLeft(instance)
}

func (g *guard) hasLeft(instance string) bool {
	id, epoch, _ := splitInstance(instance)
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.leaves[id], func(l signedLeave) bool { return l.epoch == epoch })
}

// signedLeave is a boot whose signed leave notice was checked.
type signedLeave struct {
	epoch uint64
	at    time.Duration
}

// recordLeave records a signed leave notice, and forgets the oldest of its author that is too many.
func (g *guard) recordLeave(id string, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	notices := slices.DeleteFunc(g.leaves[id], func(l signedLeave) bool { return l.epoch == epoch })
	if len(notices) >= leavesPerNode {
		notices = slices.Delete(notices, 0, 1)
		g.count(dropTooMany)
	}
	if len(notices) == 0 && len(g.leaves) >= 2*g.cfg.maxMembers {
		g.count(dropTooMany)
		return
	}
	g.leaves[id] = append(notices, signedLeave{epoch, g.elapsed()})
}

// announcer is the proven member that a message came from.
type announcer struct{ id, addr string }

// inspect returns the parts of a message that memberlist may receive: the message itself if
// all parts are valid, else the valid parts; nil if there are none.
func (g *guard) inspect(payload []byte, by announcer) []byte {
	message := payload
	if len(message) > 5 && message[0] == messageChecksum {
		message = message[5:]
	}
	kept, whole := g.filter(message, by, false)
	if whole {
		return payload
	}
	return kept
}

// filter returns the valid parts of a message, and whether these are all parts.
func (g *guard) filter(message []byte, by announcer, inside bool) (kept []byte, whole bool) {
	if len(message) == 0 {
		return nil, false
	}
	reason := ""
	switch message[0] {
	case messageUser:
		return message, true
	case messagePing, messageIndirectPing, messageAck, messageNack, messageError:
		if decodeMessage(message[1:], &struct{}{}) != nil {
			reason = dropMessageFormat
		}
	case messageSuspect, messageDead:
		var d doubtMessage
		if decodeMessage(message[1:], &d) != nil || len(d.From) > maxAccuser {
			reason = dropMessageFormat
			break
		}
		var kind byte
		if kind, reason = g.checkDoubt(message[0], &d, by); reason == "" {
			checked := encodeMessage(kind, &d)
			return checked, bytes.Equal(checked, message)
		}
	case messageAlive:
		var a aliveMessage
		if decodeMessage(message[1:], &a) != nil {
			reason = dropMessageFormat
		} else {
			reason = g.checkAlive(a, by)
		}
	case messageCompound:
		if inside {
			reason = dropMessageFormat // memberlist never nests compound messages
			break
		}
		return g.filterCompound(message, by)
	default: // compressed or encrypted: members do not send these here
		reason = dropMessageFormat
	}
	if reason != "" {
		g.refuse(reason)
		return nil, false
	}
	return message, true
}

// refuse counts what memberlist does not receive.
func (g *guard) refuse(reason string) {
	if reason != dropIdle {
		g.count(reason)
	}
}

// checkState returns why memberlist must not receive a state; "" if it may. memberlist takes the
// states that are neither alive nor left as suspicions.
func (g *guard) checkState(s *pushPullState, by announcer) (reason string) {
	if s.State == stateAlive {
		return g.checkAlive(aliveMessage{s.Incarnation, s.Name, s.Addr, s.Port, s.Meta, s.Vsn}, by)
	}
	kind, d := byte(messageSuspect), doubtMessage{Incarnation: s.Incarnation, Node: s.Name, From: by.id}
	if s.State == stateLeft {
		kind, d.From = messageDead, s.Name
	}
	_, reason = g.checkDoubt(kind, &d, by)
	s.Incarnation = d.Incarnation
	return reason
}

// checkAlive returns why memberlist must not receive an alive message; "" if it may.
func (g *guard) checkAlive(a aliveMessage, by announcer) (reason string) {
	if !g.incarnationAllowed(a.Node, a.Incarnation) {
		return dropIncarnation
	}
	if tooLong(a.Node, a.Addr, a.Vsn) {
		return dropMessageFormat
	}
	if a.Node == g.self {
		return g.checkOwn(a)
	}
	t := announced{name: a.Node, addr: addrPort(a.Addr, a.Port), metadata: a.Meta, incarnation: a.Incarnation}
	m, err := g.proofs.prove(t)
	if err == nil {
		g.endDisplaced(false)
		return g.checkIncarnation(a, m)
	}
	var unproven *unprovenError
	if errors.As(err, &unproven) {
		g.cfg.unproven.WithLabelValues(unproven.kind).Inc()
		if unproven.missing != nil {
			if !g.parkAlive(*unproven.missing, a.Node, encodeMessage(messageAlive, &a), requestSource{from: by.addr, also: t.addr}, by.id) {
				return dropTooMany
			}
		}
	}
	return dropUnproven
}

func (g *guard) filterCompound(message []byte, by announcer) (kept []byte, whole bool) {
	all, whole := splitCompound(message)
	if !whole {
		g.count(dropMessageFormat)
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
	return joinCompound(parts), false
}
