package trust

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// Guard filters the packets between the socket and memberlist if members have certificates.
// Outgoing packets are signed and, with a gossip key, sealed. An incoming packet reaches
// memberlist only if a proven member signed it, for this member, recently, and only once.
//
// A packet is the label, 'R', a format byte, and a body, which is sealed with
// AES-256-GCM when there is a gossip key:
//
//	gossip       1, epoch 6, tick 6, memberlist's message, signature 72
//	ask          2, n times: certificate 8, nonce 8
//	answer       3, nonce 8, epoch 6, tick 6, own certificates, signature 72
//	certificate  4, certificates of another member
//
// A tick is the time since the sender's boot in microseconds, made unique. The signature of
// gossip covers the destination, which the packet does not contain.
//
// Packets of a sender count once a session with it has begun: by the hello of a stream, or by
// its answer to a nonce. So neither recorded nor delayed packets count, whatever the clocks of
// the two hosts show: the session knows the offset between both clocks from the fastest packet
// so far.
type Guard struct {
	cfg    Config
	proofs *proofs
	header []byte // the label as memberlist writes it
	booted time.Time
	// exchanges bounds the streams that other members open for memberlist.
	exchanges *exchanges

	// As in the configuration.
	self, addr string
	epoch      uint64
	send       func(packet []byte, to string)
	deliver    func(packet []byte, from string)

	tick atomic.Uint64 // the last one used

	mu                 sync.Mutex
	sessions           map[sessionKey]*session
	epochs             map[keyID][]uint64 // of the sessions of each certificate
	requested          map[keyID]*certificateRequest
	leaves             map[string][]signedLeave // by node, oldest first
	strangerRequests   int                      // number of requests that are based only on a packet
	authors            map[string]struct{}      // of requests that are based only on a statement
	parked             int                      // messages about instances that wait for a certificate
	packets            int                      // packets that wait for a certificate
	announcements      map[string]int           // names announced by each member in this minute
	announcementsSince time.Time
	wake               chan struct{} // capacity 1: certificates must be requested now

	// Rates of certificates sent to members, sent to strangers, and requested because of
	// strangers.
	answers, strangersAnswers, strangers *rate.Limiter

	// When a member of an earlier release last got an answer that its question was too short
	// for, by its address, and the rate of such answers to strangers.
	unpaid        map[string]time.Duration
	unpaidAnswers *rate.Limiter

	own     ownStatement
	doubts  doubts
	doubted chan struct{} // capacity 1: see answerDoubt

	sealing sync.Mutex // guards sealers
	sealers map[string]cipher.AEAD
}

const (
	packetMagic  = 'R'
	packetFormat = 1

	packetGossip      = 1
	packetAsk         = 2
	packetAnswer      = 3
	packetCertificate = 4

	// maxSealers is above the number of keys in use during a rotation.
	maxSealers   = 8
	sealOverhead = 12 + 16 // nonce and tag of AES-GCM
	// packetOverhead is the size that the guard adds to a packet of memberlist.
	packetOverhead = 2 + sealOverhead + 1 + 12 + MaxSignature
	// maxDatagram is the largest UDP payload that is not fragmented on Ethernet,
	// over IPv6.
	maxDatagram = 1452
	// MaxPacket is the largest packet of memberlist that is not fragmented when it is signed and
	// sealed.
	MaxPacket = maxDatagram - packetOverhead

	// maxDelay is how much longer a packet may take than the fastest of its sender. It
	// is longer than the pauses of a busy host and shorter than the time after which
	// memberlist forgets that a member died.
	maxDelay = 15 * time.Second
	// parkedTicks is how much older a parked packet may be than the answer that begins
	// the session.
	parkedTicks = uint64(5 * time.Second / time.Microsecond)
)

// New returns the guard of a node. ctx ends with the node, and with it the waits of exchanges.
func New(ctx context.Context, cfg Config) *Guard {
	p := newProofs(cfg)
	g := &Guard{
		cfg: cfg, proofs: p, booted: time.Now(),
		self: cfg.Self, addr: cfg.Addr, epoch: cfg.Epoch, send: cfg.Send, deliver: cfg.Deliver,
		header:    gossip.LabelHeader(cfg.Label),
		exchanges: newExchanges(ctx, cfg.MaxMembers, p.count),
		sessions:  make(map[sessionKey]*session), epochs: make(map[keyID][]uint64), requested: make(map[keyID]*certificateRequest), leaves: make(map[string][]signedLeave), unpaid: make(map[string]time.Duration), announcements: make(map[string]int), authors: make(map[string]struct{}),
		wake: make(chan struct{}, 1), doubted: make(chan struct{}, 1),
		answers: rate.NewLimiter(5000, 5000), strangersAnswers: rate.NewLimiter(500, 500), strangers: rate.NewLimiter(100, 100),
		unpaidAnswers: rate.NewLimiter(rate.Every(unpaidInterval), 1),
	}
	p.fleetTime = g.fleetTime
	return g
}

// Doubted receives a value when this node must raise its incarnation; see answerDoubt.
func (g *Guard) Doubted() <-chan struct{} { return g.doubted }

// elapsed is the time since this node's boot, which does not depend on changes of the clock.
func (g *Guard) elapsed() time.Duration { return time.Since(g.booted) }

// NextTick returns the current tick, or the last one plus one if that is higher. Packets are sent
// by several goroutines, and a receiver refuses a tick that it has seen.
func (g *Guard) NextTick() uint64 {
	for {
		last := g.tick.Load()
		next := max(last+1, uint64(g.elapsed()/time.Microsecond))
		if g.tick.CompareAndSwap(last, next) {
			return next
		}
	}
}

// Wrap signs and seals a packet of memberlist for sending.
func (g *Guard) Wrap(packet []byte, to string) ([]byte, error) {
	if len(packet) < len(g.header) {
		return nil, fmt.Errorf("packet of %d bytes without a label", len(packet))
	}
	payload, err := g.outgoing(packet[len(g.header):])
	if err != nil {
		return nil, err
	}
	return g.wrapPayload(payload, to)
}

func (g *Guard) wrapPayload(payload []byte, to string) ([]byte, error) {
	body := make([]byte, 0, 1+12+len(payload)+MaxSignature)
	body = appendUint48(append(body, packetGossip), g.epoch)
	body = append(appendUint48(body, g.NextTick()), payload...)
	body = append(body, g.proofs.sign(statementPacket, forDestination(to, body))...)
	return g.seal(body)
}

// forDestination returns the bytes that the signature of a gossip packet covers. Without the
// destination, a member could pass a signed packet on to another one, which would take it as sent
// to itself.
func forDestination(addr string, body []byte) []byte {
	return append(append(append(make([]byte, 0, len(addr)+1+len(body)), addr...), 0), body...)
}

// seal adds the label to a body and encrypts it if there is a gossip key. The label and the format
// are bound to the ciphertext, so a packet does not count under the label of another cluster that
// has the same key.
func (g *Guard) seal(body []byte) ([]byte, error) {
	out := make([]byte, 0, len(g.header)+2+sealOverhead+len(body))
	out = append(append(out, g.header...), packetMagic, packetFormat)
	if g.cfg.Keys == nil {
		return append(out, body...), nil
	}
	box, err := g.sealer(g.cfg.PrimaryKey())
	if err != nil {
		return nil, err
	}
	bound := slices.Clip(out)
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return box.Seal(append(out, nonce...), nonce, body, bound), nil
}

// open reverses seal. If the packet was sealed, the body shares no memory with it. A packet does
// not name its key, so each installed one is tried, the primary first.
func (g *Guard) open(packet []byte) (body []byte, reason string) {
	head := len(g.header) + 2
	if len(packet) <= head || packet[head-2] != packetMagic || packet[head-1] != packetFormat {
		return nil, dropUnsigned
	}
	bound, rest := packet[:head:head], packet[head:]
	if g.cfg.Keys == nil {
		return rest, ""
	}
	for _, key := range g.cfg.Keys() {
		box, err := g.sealer(key)
		if err != nil || len(rest) < box.NonceSize() {
			continue
		}
		if body, err := box.Open(nil, rest[:box.NonceSize()], rest[box.NonceSize():], bound); err == nil && len(body) > 0 {
			return body, ""
		}
	}
	return nil, dropSeal
}

func (g *Guard) sealer(key []byte) (cipher.AEAD, error) {
	g.sealing.Lock()
	defer g.sealing.Unlock()
	if box, known := g.sealers[string(key)]; known {
		return box, nil
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	box, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	if g.sealers == nil || len(g.sealers) >= maxSealers {
		g.sealers = make(map[string]cipher.AEAD) // keys that were rotated out must go
	}
	g.sealers[string(key)] = box
	return box, nil
}

// Receive handles one packet from the socket and delivers its permitted parts to memberlist.
func (g *Guard) Receive(packet []byte, from string) {
	body, reason := g.open(packet)
	if reason == "" {
		switch body[0] {
		case packetGossip:
			reason = g.gossip(body, from, false)
		case packetAsk:
			reason = g.answer(body[1:], from)
		case packetAnswer:
			reason = g.answered(body, from)
		case packetCertificate:
			reason = g.receiveCertificate(body[1:])
		default:
			reason = dropUnsigned
		}
	}
	if reason != "" {
		g.count(reason)
	}
}

// count counts what memberlist does not receive.
func (g *Guard) count(reason string) { g.cfg.Dropped.WithLabelValues(reason).Inc() }

// gossip checks a signed packet of memberlist. waited is true if the packet was parked until
// the session began.
//
// The checks are in the order of their cost, and each one needs the one before: the certificate
// gives the author, its session shows that the packet is new and recent, the signature that the
// author sent it here. Only then is the content read, because memberlist's messages name no author
// that can be checked.
func (g *Guard) gossip(body []byte, from string, waited bool) (reason string) {
	if len(body) <= 1+12+MaxSignature {
		return dropUnsigned
	}
	signature := body[len(body)-MaxSignature:]
	key, _ := signer(signature)
	epoch, tick := uint48(body[1:]), uint48(body[7:])
	certificate, err := g.proofs.certificate(key)
	switch {
	case errors.Is(err, ErrUnproven):
		return g.park(key, parkedPacket{body, from, true})
	case err != nil:
		return dropCertificate
	}
	id := sessionKey{key, epoch}
	g.mu.Lock()
	s := g.sessions[id]
	verdict := sessionUnknown
	if s != nil {
		verdict = s.checkReplay(tick, g.elapsed(), waited)
	}
	g.mu.Unlock()
	// Replays are refused before the signature is checked, because that check is the costly part.
	// The tick is recorded only after it: else a forged packet would use up the tick of
	// an honest one.
	switch verdict {
	case sessionReplayed:
		return dropReplayed
	case sessionUnknown, sessionStale:
		if waited {
			return dropStale
		}
		return g.park(key, parkedPacket{body, from, false})
	}
	statement := Claim{certificate.Claims.Node, statementPacket, forDestination(g.addr, body[:len(body)-MaxSignature]), signature}
	if err := g.proofs.verify(certificate, statement); err != nil {
		return dropSignature
	}
	g.mu.Lock()
	fresh := s.record(tick, g.elapsed())
	g.mu.Unlock()
	if !fresh {
		return dropReplayed
	}
	payload := g.inspect(body[1+12:len(body)-MaxSignature], announcer{certificate.Claims.Node, from})
	if len(payload) > 0 {
		g.deliver(append(slices.Clone(g.header), payload...), from)
	}
	return ""
}

// fleetTime returns the median of the senders' clocks, as their packets show them: a single
// wrong clock does not change it. It is zero without sessions. A sender's clock is its boot time
// and the ticks since, so later changes of the clock of its host do not count.
func (g *Guard) fleetTime() time.Time {
	now := g.elapsed()
	g.mu.Lock()
	clocks := make([]int64, 0, len(g.sessions))
	for id, s := range g.sessions {
		clocks = append(clocks, int64(min(id.epoch, 1<<50))+(now-s.fastest).Milliseconds())
	}
	g.mu.Unlock()
	if len(clocks) == 0 {
		return time.Time{}
	}
	slices.Sort(clocks)
	return time.UnixMilli(clocks[len(clocks)/2])
}

// Sweep forgets all that was not used for keepProof, and requests without an answer.
func (g *Guard) Sweep() {
	g.proofs.sweep()
	g.endDisplaced(true)
	g.exchanges.sweep()
	g.doubts.sweep()
	now := g.elapsed()
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, s := range g.sessions {
		if now-s.used > keepProof {
			g.endSession(id)
		}
	}
	for id, notices := range g.leaves {
		if !slices.ContainsFunc(notices, func(l signedLeave) bool { return now-l.at <= keepProof }) {
			delete(g.leaves, id)
		}
	}
	maps.DeleteFunc(g.unpaid, func(_ string, at time.Duration) bool { return now-at > unpaidInterval })
}

func appendUint48(b []byte, n uint64) []byte {
	var full [8]byte
	binary.BigEndian.PutUint64(full[:], n)
	return append(b, full[2:]...)
}

func uint48(b []byte) uint64 {
	var full [8]byte
	copy(full[2:], b[:6])
	return binary.BigEndian.Uint64(full[:])
}

// Certified processes a TLS handshake: it stores the peer's certificates and, because the
// hello proves that the peer is alive, begins its session.
func (g *Guard) Certified(chain [][]byte, epoch, tick uint64) error {
	_, err := g.proofs.learn(chain)
	if err != nil {
		return err
	}
	key := identity.KeyID(chain[0])
	g.begin(sessionKey{key, epoch}, tick)
	g.release(key)
	return nil
}

// askSoon makes Run look for requests that are due.
func (g *Guard) askSoon() {
	publish.Notify(g.wake)
}
