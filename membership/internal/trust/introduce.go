package trust

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// An unknown certificate is requested from the member that announced its holder, because that
// member has checked it, and from the holder itself. Until the certificate arrives, messages
// that depend on it are parked. A stranger can cause requests, so requests for strangers have
// a rate limit, and the number of parked messages is limited.

const (
	// requestAttempts is how often a certificate is requested before the request is dropped.
	requestAttempts = 8
	// requestInterval is the wait before the second attempt; it doubles up to maxRequestInterval.
	requestInterval    = 250 * time.Millisecond
	maxRequestInterval = 2 * time.Second
	// requestDelay is how long requests are collected before they are sent.
	requestDelay = 5 * time.Millisecond
	// dialAttempt is the attempt at which this node also opens a stream to the holder,
	// because its certificates may not fit into a packet. It opens none for a stranger, whose
	// address may be forged, nor for a statement, which any member may have written.
	dialAttempt = 3
	// dialPause is when a stream is tried again for which there was no place.
	dialPause = 50 * time.Millisecond
	// keysPerPacket is how many certificates one packet of earlier releases requests, and
	// keysPerAddress how many are requested of one address in a round.
	keysPerPacket  = 40
	keysPerAddress = 40
	// maxQuestion is the size of a question, in keys: it is padded to pay for the answers.
	maxQuestion = 80
	// unpaidInterval is how often a member gets an answer that its question does not pay for,
	// and all others together: earlier releases do not pad questions.
	unpaidInterval = time.Second
	// packetsPerRound limits the packets of one round.
	packetsPerRound = 64
	// maxStrangers limits the certificates requested because of a packet alone.
	maxStrangers = 512
	// maxAsked is how many addresses are asked for one certificate.
	maxAsked = 4
	// maxParkedPackets is how many packets of one unknown sender are parked.
	maxParkedPackets = 4
	// maxCertificates and maxChain limit the certificates in a message.
	maxCertificates = 4
	maxChain        = 16 << 10
)

// certificateRequest is a requested certificate, or a requested sign of life of its holder.
type certificateRequest struct {
	nonce    uint64
	from     []string // addresses that may have the certificate
	holder   string   // where a stream is opened: only the holder shows its certificate there
	dialled  bool
	attempts int
	due      time.Duration
	stranger bool   // based only on a packet
	author   string // whose statement alone names it, empty if anything else does

	packets []parkedPacket
	alive   map[string][]byte // parked memberlist messages by instance
}

type parkedPacket struct {
	body     []byte
	from     string
	stranger bool // the sender's certificate is not known
}

// requestSource is where to request a certificate.
type requestSource struct {
	from     string // an address that may have it
	also     string // another one: where the holder is, by the word of the member at from
	stranger bool
	author   string // of the statement that names it
}

// request requests a certificate. mu must not be held.
func (g *Guard) request(key keyID, w requestSource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requestLocked(key, w)
}

// requestLocked returns the request for a certificate, nil if it is not requested. mu is held. A
// request that began with a packet of a stranger, or with a statement, becomes one of a member when a
// member names the holder: then it does not count against the limits on these any more.
func (g *Guard) requestLocked(key keyID, w requestSource) *certificateRequest {
	a := g.requested[key]
	switch {
	case a == nil:
		if !g.takePlace(w) {
			return nil
		}
		var nonce [8]byte
		_, _ = rand.Read(nonce[:]) // never fails
		a = &certificateRequest{nonce: binary.BigEndian.Uint64(nonce[:]), due: g.elapsed(), stranger: w.stranger, author: w.author}
		g.requested[key] = a
		g.askSoon()
	case w.author != "":
		return a // a statement that is not checked adds nothing to a request that there is
	case !w.stranger && (a.stranger || a.author != ""):
		g.leavePlace(a)
		a.attempts, a.due, a.holder = 0, g.elapsed(), "" // a member's request also opens a stream
		g.askSoon()
	}
	a.holder = cmp.Or(w.also, a.holder, w.from)
	for _, addr := range []string{w.from, w.also} {
		if addr != "" && len(a.from) < maxAsked && !slices.Contains(a.from, addr) {
			a.from = append(a.from, addr)
		}
	}
	return a
}

// takePlace takes a place for a request, and returns false if there is none. mu is held.
//
// Any member can write statements in the name of another one, each with a key that no certificate
// has. So an author has one place for those in its name, which is none of the members'. That is
// enough: a member announces a new certificate in its metadata, too.
func (g *Guard) takePlace(w requestSource) bool {
	if w.author != "" {
		_, taken := g.authors[w.author]
		g.authors[w.author] = struct{}{}
		return !taken
	}
	if w.stranger && (g.strangerRequests >= maxStrangers || !g.strangers.Allow()) || len(g.requested)-g.strangerRequests-len(g.authors) >= g.cfg.MaxMembers {
		return false
	}
	if w.stranger {
		g.strangerRequests++
	}
	return true
}

// leavePlace gives back the place of a stranger or of an author. mu is held.
func (g *Guard) leavePlace(a *certificateRequest) {
	if a.stranger {
		g.strangerRequests--
	}
	delete(g.authors, a.author)
	a.stranger, a.author = false, ""
}

// drop ends the request for a certificate. mu is held.
func (g *Guard) drop(key keyID, a *certificateRequest) {
	g.parked -= len(a.alive)
	g.packets -= len(a.packets)
	g.leavePlace(a)
	delete(g.requested, key)
}

// park keeps a packet until its sender's session has begun, and requests a sign of life.
func (g *Guard) park(key keyID, p parkedPacket) (reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.requestLocked(key, requestSource{from: p.from, stranger: p.stranger})
	if a == nil || len(a.packets) >= maxParkedPackets || g.packets >= maxStrangers*maxParkedPackets*2 {
		return dropStranger
	}
	// Without a gossip key the body is part of the socket's buffer.
	p.body = bytes.Clone(p.body)
	a.packets = append(a.packets, p)
	g.packets++
	return ""
}

// parkAlive keeps a memberlist message about an instance until its certificate is known. It
// reports false if the member that sent it announces too many instances. Announcements count for
// the member that sends them: the instances that they name may be invented, and then have no
// certificate to count for.
func (g *Guard) parkAlive(key keyID, name string, message []byte, w requestSource, by string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.announcementsSince) > time.Minute {
		clear(g.announcements)
		g.announcementsSince = now
	}
	if g.announcements[by] >= g.cfg.MaxNewMembers || g.parked >= g.cfg.MaxMembers {
		return false
	}
	g.announcements[by]++
	a := g.requestLocked(key, w)
	if a == nil {
		return false
	}
	if a.alive == nil {
		a.alive = make(map[string][]byte)
	}
	if _, waits := a.alive[name]; !waits {
		if len(a.alive) >= maxParkedPackets {
			return false // one certificate belongs to few instances
		}
		g.parked++
	}
	a.alive[name] = bytes.Clone(message)
	return true
}

// release delivers the messages that waited for a certificate. They are inspected again: only the
// certificate shows whether they are true.
func (g *Guard) release(key keyID) {
	g.mu.Lock()
	a := g.requested[key]
	if a == nil {
		g.mu.Unlock()
		return
	}
	alive := a.alive
	g.parked -= len(alive)
	a.alive = nil
	var packets, waiting []parkedPacket
	for _, p := range a.packets {
		if g.sessions[sessionKey{key, uint48(p.body[1:])}] != nil {
			packets = append(packets, p)
		} else {
			waiting = append(waiting, p)
		}
	}
	g.packets -= len(packets)
	a.packets = waiting
	if len(waiting) == 0 {
		g.drop(key, a)
	}
	g.mu.Unlock()
	for _, message := range alive {
		if payload := g.inspect(message, announcer{}); len(payload) > 0 {
			g.deliver(append(slices.Clone(g.header), payload...), g.addr)
		}
	}
	for _, p := range packets {
		if reason := g.gossip(p.body, p.from, true); reason != "" {
			g.count(reason)
		}
	}
}

// Run requests certificates until ctx ends. greet opens a stream to an address and exchanges
// hellos, in the background. It returns false if it has no place for another stream.
func (g *Guard) Run(ctx context.Context, greet func(addr string) bool) {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
			// One packet can cause many requests: collect them.
			select {
			case <-time.After(requestDelay):
			case <-ctx.Done():
				return
			}
		case <-retry.C:
		}
		next, dial := g.sendRequests()
		refused := make(map[string]bool)
		for _, addr := range dial {
			if !greet(addr) {
				refused[addr] = true
			}
		}
		if len(refused) > 0 {
			g.dialLater(refused)
			next = min(next, dialPause)
		}
		retry.Reset(next)
	}
}

// dialLater notes that no stream was opened to these holders.
func (g *Guard) dialLater(holders map[string]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.requested {
		if holders[a.holder] {
			a.dialled = false
		}
	}
}

// sendRequests sends the requests that are due. It returns when the next ones are due, and the
// addresses to which a stream should be opened. The attempts go to all addresses in turn, since any
// of them may be dead, or not have the certificate.
func (g *Guard) sendRequests() (next time.Duration, dial []string) {
	questions := make(map[string][]byte)
	now := g.elapsed()
	g.mu.Lock()
	next = time.Hour
	for key, a := range g.requested {
		if a.attempts >= dialAttempt && !a.dialled && !a.stranger && a.author == "" { // there was no place
			a.dialled = true
			dial = append(dial, a.holder)
		}
		if a.due > now {
			next = min(next, a.due-now)
			continue
		}
		if a.attempts >= requestAttempts || len(a.from) == 0 {
			g.drop(key, a)
			continue
		}
		to := a.from[a.attempts%len(a.from)]
		if _, open := questions[to]; !open && len(questions) >= packetsPerRound || len(questions[to]) >= keysPerAddress*16 {
			next = min(next, 10*time.Millisecond) // in the next round
			continue
		}
		questions[to] = binary.BigEndian.AppendUint64(append(questions[to], key[:]...), a.nonce)
		wait := min(requestInterval<<min(a.attempts, 8), maxRequestInterval)
		a.attempts++
		a.due = now + wait
		next = min(next, wait)
		if a.attempts == dialAttempt && !a.stranger && a.author == "" {
			a.dialled = true
			dial = append(dial, a.holder)
		}
	}
	g.mu.Unlock()
	for to, keys := range questions {
		for _, question := range g.padded(keys) {
			if packet, err := g.seal(append([]byte{packetAsk}, question...)); err == nil {
				g.send(packet, to)
			}
		}
	}
	return max(next, time.Millisecond), dial
}

// padded splits keys into questions that pay for their answers, which are about as long as an
// answer of this node. The padding consists of keys that are 0, which no member has.
func (g *Guard) padded(keys []byte) (questions [][]byte) {
	const margin = 64 // other members have longer names
	answer := margin + g.sizeOf(answerOverhead+len(appendChain(nil, g.cfg.Identity.Chain())))
	paid := answersPerByte * g.sizeOf(1+16*keysPerPacket) / answer
	for chunk := range slices.Chunk(keys, 16*max(1, paid)) {
		question := bytes.Clone(chunk)
		for answersPerByte*g.sizeOf(1+len(question)) < answer*len(chunk)/16 && len(question) < 16*maxQuestion {
			question = append(question, make([]byte, 16)...)
		}
		questions = append(questions, question)
	}
	return questions
}

// sizeOf returns the size of a packet with a body of that many bytes.
func (g *Guard) sizeOf(body int) int {
	if g.cfg.Keys != nil {
		body += sealOverhead
	}
	return len(g.header) + 2 + body
}

// answerOverhead is the size of a sign of life without the certificates.
const answerOverhead = 1 + 8 + 12 + MaxSignature

// answer answers a request for certificates: with a sign of life for this node's own, with
// the certificates only for those of other members. Each is answered once, and all answers together
// are at most answersPerByte as long as the question.
func (g *Guard) answer(keys []byte, from string) (reason string) {
	if len(keys) == 0 || len(keys)%16 != 0 || len(keys) > maxQuestion*16 {
		return dropUnsigned
	}
	member := g.proofs.gossipsAt(from)
	limit := g.answers // separate from strangers, so that a flood of these does not block answers to members
	if !member {
		limit = g.strangersAnswers
	}
	left := answersPerByte * g.sizeOf(1+len(keys))
	var answered []keyID
	ours := g.cfg.Identity.Chain()
	for ; len(keys) > 0; keys = keys[16:] {
		key, nonce := keyID(keys[:8]), binary.BigEndian.Uint64(keys[8:16])
		if key == (keyID{}) || slices.Contains(answered, key) {
			continue
		}
		if !limit.Allow() {
			return dropTooMany
		}
		chain, own := g.proofs.chain(key), identity.KeyID(ours[0]) == key
		size := g.sizeOf(1 + len(appendChain(nil, chain)))
		if own {
			chain, size = ours, g.sizeOf(answerOverhead+len(appendChain(nil, ours)))
		}
		if chain == nil {
			continue
		}
		if size > left && (len(answered) > 0 || !g.answersUnpaid(from, member)) {
			return dropShort
		}
		left -= size
		answered = append(answered, key)
		body := []byte{packetCertificate}
		if own {
			body = binary.BigEndian.AppendUint64([]byte{packetAnswer}, nonce)
			body = appendUint48(appendUint48(body, g.epoch), g.NextTick())
		}
		body = appendChain(body, chain)
		if own {
			body = append(body, g.proofs.sign(statementAnswer, body)...)
		}
		if packet, err := g.seal(body); err == nil {
			g.send(packet, from)
		}
	}
	return ""
}

// answersUnpaid reports whether a question that is too short gets its first answer nevertheless.
func (g *Guard) answersUnpaid(from string, member bool) bool {
	if !member {
		return g.unpaidAnswers.Allow()
	}
	now := g.elapsed()
	g.mu.Lock()
	defer g.mu.Unlock()
	if last, known := g.unpaid[from]; known && now-last < unpaidInterval {
		return false
	}
	g.unpaid[from] = now
	return true
}

// answered handles a sign of life. The nonce shows that it was made after the request, which begins
// the session. If only this address got the nonce, the answer also proves that the holder lives
// there.
func (g *Guard) answered(body []byte, from string) (reason string) {
	if len(body) < 1+8+12+MaxSignature {
		return dropUnsigned
	}
	signature := body[len(body)-MaxSignature:]
	statement := body[:len(body)-MaxSignature]
	key, _ := signer(signature)
	g.mu.Lock()
	a := g.requested[key]
	asked := a != nil && a.nonce == binary.BigEndian.Uint64(body[1:])
	alone := asked && len(a.from) == 1 && a.from[0] == from // no other address received the nonce
	g.mu.Unlock()
	if !asked {
		return dropStranger
	}
	chain, err := decodeChain(statement[1+8+12:])
	if err != nil || identity.KeyID(chain[0]) != key {
		return dropCertificate
	}
	certificate, err := g.proofs.learn(chain)
	if err != nil {
		return dropCertificate
	}
	if err := g.proofs.verify(certificate, Claim{certificate.Claims.Node, statementAnswer, statement, signature}); err != nil {
		return dropSignature
	}
	id := sessionKey{key, uint48(body[9:])}
	g.begin(id, uint48(body[15:]))
	g.release(key)
	if alone {
		g.cfg.Answered(certificate.Claims.Node, id.epoch, from)
	}
	return ""
}

// receiveCertificate handles a requested certificate of another member. It needs no nonce and no
// signature: its authority has signed it. Only a requested one is taken, so that others cannot fill
// the memory for certificates.
func (g *Guard) receiveCertificate(body []byte) (reason string) {
	chain, err := decodeChain(body)
	if err != nil {
		return dropCertificate
	}
	key := identity.KeyID(chain[0])
	g.mu.Lock()
	_, asked := g.requested[key]
	g.mu.Unlock()
	if !asked {
		return dropStranger
	}
	if _, err := g.proofs.learn(chain); err != nil {
		return dropCertificate
	}
	g.release(key)
	return ""
}
