package trust

import (
	"sync"
	"time"

	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// A doubt is a message that a member is suspected, or dead by the word of another one. Any member
// may send one, so with certificates
//
//   - it counts only up to the highest incarnation that its subject has signed. The subject
//     answers with the next one, which every member accepts;
//   - a death is taken as a suspicion: each member waits for the answer of the subject;
//   - a member begins few doubts a minute.
//
// What a member sends beyond these limits is counted, and the member is named.

const (
	// maxAhead is how many incarnations of a subject the sender of a doubt may know before this
	// node: an answer takes a second or two to reach all members. Such a doubt counts at the
	// newest incarnation that is known here, one further ahead is false.
	maxAhead = 16
	// doubtsPerSubject limits the doubts about one member that another one begins in a minute.
	// A doubt begins when it is about a later incarnation than those before.
	doubtsPerSubject = 6
	// spareDoubts limits, with the number of members, the doubts that a member begins in a
	// minute: all others may fail at the same time, and some may be doubted again.
	spareDoubts = 64
	// denialsUnnamed is how many denied doubts do not make a member suspect: releases and
	// views differ for some time.
	denialsUnnamed = 10
	// maxAccuser limits the name of the member that began a doubt, so that a doubt that is
	// encoded again fits into a compound message.
	maxAccuser = 128
)

// denials counts the denied doubts of one member. It ends ten minutes after the last one.
type denials struct {
	count uint64
	last  time.Time
}

// doubts counts what members state about others.
type doubts struct {
	mu     sync.Mutex
	minute time.Time           // start of the interval of begun and by
	begun  map[string]uint32   // the highest incarnation at which each subject is doubted
	by     map[doubtKey]int    // doubts that each author began
	denied map[string]*denials // by author
}

// doubtKey is an author and a subject; without a subject it stands for all.
type doubtKey struct{ author, subject string }

// checkDoubt decides what memberlist receives of a doubt: the kind of message, with the
// incarnation that it sets in d; or nothing, with the reason.
//
// A goodbye is checked for its author, any other doubt for its number. Both count at most at the
// incarnation that the subject has signed: at a higher one the subject could not answer.
func (g *Guard) checkDoubt(kind byte, d *gossip.Doubt, by announcer) (as byte, reason string) {
	goodbye := kind == gossip.KindDead && d.From == d.Node
	limit, proven, all := g.proofs.signedUpTo(d.Node)
	if d.Node == g.self {
		limit, proven = g.own.signedUpTo(), true
	} else if limit == 0 {
		limit = d.Incarnation // of a release that signs none
	}
	switch {
	case !g.incarnationAllowed(d.Node, d.Incarnation):
		reason = dropIncarnation
	case !proven:
		return 0, dropIdle // memberlist does not know it either, and must not learn of the doubt first
	case goodbye && !g.mayLeave(d.Node, by):
		reason = DropForged
	case d.Incarnation > limit && d.Incarnation-limit > maxAhead:
		reason = dropIncarnation
	}
	d.Incarnation = min(d.Incarnation, limit)
	if reason == "" && !goodbye && !g.doubts.begin(doubtKey{by.id, d.Node}, d.Incarnation, all+spareDoubts) {
		reason = dropDoubts
		if d.Node == g.self && d.Incarnation == limit {
			g.answerDoubt()
		}
	}
	if reason != "" {
		g.deny(by.id)
		return 0, reason
	}
	if goodbye {
		return gossip.KindDead, ""
	}
	return gossip.KindSuspect, ""
}

// answerDoubt raises this node's incarnation without memberlist, which would probe others less
// often after each answer. A doubt that others may have accepted must be answered, whatever its
// author has sent before.
func (g *Guard) answerDoubt() {
	publish.Notify(g.doubted) // one answer is for all doubts
}

// begin reports whether a doubt may count: it is not the first one about this incarnation, or its
// author may begin another one. Confirmations are free, because memberlist shortens a suspicion by
// those of other members.
func (d *doubts) begin(key doubtKey, incarnation uint32, limit int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); d.begun == nil || now.Sub(d.minute) > time.Minute {
		d.begun, d.by, d.minute = make(map[string]uint32), make(map[doubtKey]int), now
	}
	if highest, doubted := d.begun[key.subject]; doubted && incarnation <= highest {
		return true
	}
	all := doubtKey{author: key.author}
	if d.by[key] >= doubtsPerSubject || d.by[all] >= limit {
		return false
	}
	d.by[key]++
	d.by[all]++
	d.begun[key.subject] = incarnation
	return true
}

// deny counts a denied doubt. Authors are proven members, so their number is limited.
func (g *Guard) deny(author string) {
	d, now := &g.doubts, time.Now()
	d.mu.Lock()
	one := d.denied[author]
	if one == nil {
		if d.denied == nil {
			d.denied = make(map[string]*denials)
		}
		one = &denials{}
		d.denied[author] = one
	}
	one.count++
	one.last = now
	named := one.count == denialsUnnamed+1
	d.mu.Unlock()
	if named {
		g.cfg.Logger.Warn("a member doubts others without a cause, or passes on such doubts; they are ignored: if it goes on, examine its host and replace its certificate", "member", author)
	}
}

// sweep forgets members whose last denied doubt is old.
func (d *doubts) sweep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for author, one := range d.denied {
		if time.Since(one.last) > keepProof {
			delete(d.denied, author)
		}
	}
}

// Doubters returns, by id, the members whose doubts about others were denied more than
// denialsUnnamed times and lately, with the number. It is nil if there are none.
func (g *Guard) Doubters() map[string]uint64 {
	d := &g.doubts
	d.mu.Lock()
	defer d.mu.Unlock()
	var out map[string]uint64
	for author, one := range d.denied {
		if one.count > denialsUnnamed {
			if out == nil {
				out = make(map[string]uint64)
			}
			out[author] = one.count
		}
	}
	return out
}
