package membership

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/handshake"
)

// The keys/1 protocol changes the keyring of another member:
//
//	acceptor  ──► 16 random bytes
//	initiator ──► request
//	acceptor  ──► reply
//
// Over TLS both messages are sent as they are. Without certificates they are sealed with a
// gossip key that both members have. The request is bound to the random bytes, and the reply to
// these and to the whole request, which contains the initiator's own random bytes (the nonce of
// the seal): a recorded message cannot be replayed to either side.
//
// Only relays and gates may change keys: a worker or an observer under the control of an attacker must not be
// able to rotate the fleet's keys.

// KeyOperation is an operation on a keyring.
type KeyOperation string

// The operations on keyrings.
const (
	ListKeys   KeyOperation = "list"
	InstallKey KeyOperation = "install"
	UseKey     KeyOperation = "use"
	RemoveKey  KeyOperation = "remove"
	fetchKeys  KeyOperation = "fetch" // by a member that missed a rotation
	giveKeys   KeyOperation = "give"  // to a member that missed a rotation and cannot ask
)

const (
	// keysTimeout limits the exchange with one member.
	keysTimeout = 5 * time.Second
	// useTimeout is how long UseKey waits until all members have the key.
	useTimeout = 10 * time.Second
	// keysAtOnce limits the simultaneous exchanges.
	keysAtOnce = 16
)

// KeyResult is the answer of one member.
type KeyResult struct {
	Member string `json:"member"`
	// Fingerprints are the member's keys after the operation, the primary key first.
	Fingerprints []string `json:"fingerprints,omitempty"`
	// Error is empty if the operation succeeded.
	Error string `json:"error,omitempty"`
}

type keysRequest struct {
	Operation   KeyOperation `json:"operation"`
	Key         string       `json:"key,omitempty"`
	Fingerprint string       `json:"fingerprint,omitempty"`
	// Since is one value for the whole fleet, for UseKey and giveKeys.
	Since time.Time `json:"since,omitzero"`
	// Keys are all keys of the giver, the primary key first.
	Keys []string `json:"keys,omitempty"`
}

type keysReply struct {
	Fingerprints []string `json:"fingerprints,omitempty"`
	Keys         []string `json:"keys,omitempty"`
	// Since is when the first of Keys was put to use.
	Since time.Time `json:"since,omitzero"`
	Error string    `json:"error,omitempty"`
}

// ErrNoKeyring is returned by Keys on a node without gossip keys.
var ErrNoKeyring = errors.New("this member has no gossip keys: start the fleet with a gossip key file")

// Keys carries out an operation on this member and on every other live member, and returns their
// answers, sorted by id. argument is the key in text form for InstallKey, a fingerprint for
// UseKey and RemoveKey. UseKey changes nothing until every live member has the key; after ten
// seconds it returns an error with the members that do not have it. RemoveKey changes nothing while
// a live member still encrypts with the key, or does not answer. The error is nil if the operation
// succeeded on all members.
func (n *Node) Keys(ctx context.Context, operation KeyOperation, argument string) ([]KeyResult, error) {
	if n.cfg.Keyring == nil {
		return nil, ErrNoKeyring
	}
	request := keysRequest{Operation: operation}
	switch operation {
	case ListKeys:
	case InstallKey:
		key, err := ParseKey(argument)
		if err != nil {
			return nil, err
		}
		request.Key = base64.StdEncoding.EncodeToString(key)
	case UseKey, RemoveKey:
		request.Fingerprint = argument
	default:
		return nil, fmt.Errorf("key operation %q: allowed are list, install, use, remove", operation)
	}
	// A use has two phases: a member without the key could not decrypt what the others send from
	// then on, and would be cut off.
	if operation == UseKey {
		if results, err := n.awaitKey(ctx, argument); err != nil {
			return results, err
		}
		request.Since = n.cfg.Keyring.next()
	}
	// So has a remove: a member that still encrypts with the key, such as one that was down during the
	// use, would refuse to remove it, and could not be read by the others from then on.
	if operation == RemoveKey {
		results := n.askAll(ctx, keysRequest{Operation: ListKeys})
		for i, r := range results {
			if len(r.Fingerprints) > 0 && r.Fingerprints[0] == argument {
				results[i].Error = keyInUse(argument).Error()
			}
		}
		if err := failed(operation, results); err != nil {
			return results, fmt.Errorf("%w: no member has removed it, because one that encrypts with it would be cut off: have all use another key with `relay keys use`, stop a member that does not answer or deny its certificate, then repeat this", err)
		}
	}
	results := n.askAll(ctx, request)
	return results, failed(operation, results)
}

// failed returns an error with the members on which an operation failed, or nil.
func failed(operation KeyOperation, results []KeyResult) error {
	var members []string
	for _, r := range results {
		if r.Error != "" {
			members = append(members, r.Member)
		}
	}
	if len(members) == 0 {
		return nil
	}
	return fmt.Errorf("key %s failed on %d of %d members: %s", operation, len(members), len(results), strings.Join(members, ", "))
}

// awaitKey waits until every live member has the key.
func (n *Node) awaitKey(ctx context.Context, fingerprint string) ([]KeyResult, error) {
	deadline := time.Now().Add(useTimeout)
	for {
		results := n.askAll(ctx, keysRequest{Operation: ListKeys})
		var lacking []string
		for _, r := range results {
			if !slices.Contains(r.Fingerprints, fingerprint) {
				lacking = append(lacking, r.Member)
			}
		}
		if len(lacking) == 0 {
			return results, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return results, fmt.Errorf("key %s is not in use yet, because these members lack it: %s: install it there first", fingerprint, strings.Join(lacking, ", "))
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// KeyFingerprints requests the fingerprints of the gossip keys of the named live members, and
// returns them like Keys. Members that are not alive are left out.
func (n *Node) KeyFingerprints(ctx context.Context, ids []string) ([]KeyResult, error) {
	if n.cfg.Keyring == nil {
		return nil, ErrNoKeyring
	}
	var members []Member
	for _, id := range ids {
		if m, alive := n.Snapshot().Get(id); alive {
			members = append(members, m)
		}
	}
	return n.askEach(ctx, members, keysRequest{Operation: ListKeys}), nil
}

func (n *Node) askAll(ctx context.Context, request keysRequest) []KeyResult {
	return n.askEach(ctx, n.Snapshot().Members(), request)
}

func (n *Node) askEach(ctx context.Context, members []Member, request keysRequest) []KeyResult {
	results := make([]KeyResult, len(members))
	places := make(chan struct{}, keysAtOnce)
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			reply := keysReply{}
			if m.ID == n.cfg.ID {
				reply = n.changeKeys(request)
			} else if r, err := n.askOne(ctx, m, request); err != nil {
				reply.Error = err.Error()
			} else {
				reply = r
			}
			results[i] = KeyResult{Member: m.ID, Fingerprints: reply.Fingerprints, Error: reply.Error}
		})
	}
	wg.Wait()
	return results
}

func (n *Node) askOne(ctx context.Context, m Member, request keysRequest) (keysReply, error) {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	conn, err := n.OpenStream(ctx, m.ID, protocolKeys)
	if err != nil {
		return keysReply{}, err
	}
	defer conn.Close()
	return n.exchangeKeys(ctx, conn, request)
}

func (n *Node) exchangeKeys(ctx context.Context, conn net.Conn, request keysRequest) (reply keysReply, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return reply, err
		}
	}
	challenge, err := readFrame(conn)
	if err != nil {
		return reply, fmt.Errorf("read challenge: %w", err)
	}
	sent, err := n.sendKeys(conn, request, append(challenge, "request"...))
	if err != nil {
		return reply, err
	}
	answer, err := readFrame(conn)
	if err != nil {
		return reply, err
	}
	err = n.openKeys(answer, &reply, boundReply(challenge, sent))
	return reply, err
}

// serveKeys is the acceptor's side. Any member may read fingerprints. Whole keyrings are exchanged
// between certified members only: without certificates a member that missed a rotation cannot be
// distinguished from a stranger.
func (n *Node) serveKeys(_ context.Context, peer Peer, conn net.Conn) {
	challenge := make([]byte, 16)
	_, _ = rand.Read(challenge) // never fails
	var request keysRequest
	asked, fault, err := n.awaitRequest(peer, conn, challenge, &request)
	if err != nil {
		n.metrics.refused(inbound, fault)
		n.logger.Debug("a request to change gossip keys was refused", "peer", peer.ID, "reason", fault, "err", err)
		return
	}
	var reply keysReply
	switch {
	case (request.Operation == fetchKeys || request.Operation == giveKeys) && !peer.Certified:
		reply.Error = "whole keyrings are exchanged between certified members only"
	case request.Operation != fetchKeys && request.Operation != ListKeys && !peer.Role.Relays():
		reply.Error = "only relays and gates may change gossip keys"
	default:
		reply = n.changeKeys(request)
	}
	switch {
	case request.Operation == giveKeys && reply.Error == "":
		n.logger.Info("caught up with the fleet's gossip keys", "from", peer.ID, "keys", reply.Fingerprints)
	case request.Operation != ListKeys:
		n.logger.Info("gossip keys", "operation", request.Operation, "by", peer.ID, "error", reply.Error, "keys", reply.Fingerprints)
	}
	if _, err := n.sendKeys(conn, reply, boundReply(challenge, asked)); err != nil {
		n.logger.Debug("cannot answer a request about gossip keys", "peer", peer.ID, "err", err)
	}
}

// awaitRequest sends the challenge and receives the request. fault is for what a request is refused.
func (n *Node) awaitRequest(peer Peer, conn net.Conn, challenge []byte, request *keysRequest) (asked []byte, fault string, err error) {
	n.asking.Await(peer.ID, conn)
	if err = conn.SetDeadline(time.Now().Add(keysTimeout)); err == nil {
		err = writeFrame(conn, challenge)
	}
	if err == nil {
		asked, err = readFrame(conn)
	}
	switch placed := n.asking.Heard(conn); {
	case !placed:
		return nil, fieldSilent, fmt.Errorf("no request came while its peer opened more than %d streams, or members more than %d", handshake.MaxSilentPerPeer, handshake.MaxSilent)
	case errors.Is(err, errHello) || errors.Is(err, errTLS):
		return nil, fieldMalformed, err
	case err != nil:
		return nil, fieldSilent, err
	}
	err = n.openKeys(asked, request, append(challenge, "request"...))
	if errors.Is(err, errSealed) {
		return nil, fieldKey, err
	}
	return asked, fieldMalformed, err
}

// changeKeys carries out an operation on this member's keyring.
func (n *Node) changeKeys(request keysRequest) (reply keysReply) {
	var err error
	switch request.Operation {
	case ListKeys:
	case fetchKeys:
		reply.Keys, reply.Since = n.cfg.Keyring.texts(), n.cfg.Keyring.inUseSince()
	case giveKeys:
		if !request.Since.After(n.cfg.Keyring.inUseSince()) {
			err = errors.New("the keys in use here are no older")
		} else {
			err = n.cfg.Keyring.adopt(request.Keys, request.Since)
		}
	case InstallKey:
		var key []byte
		if key, err = ParseKey(request.Key); err == nil {
			err = n.cfg.Keyring.install(key)
		}
	case UseKey:
		err = n.cfg.Keyring.useSince(request.Fingerprint, request.Since)
	case RemoveKey:
		err = n.cfg.Keyring.remove(request.Fingerprint)
	default:
		err = fmt.Errorf("unknown operation %.20q", request.Operation)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	reply.Fingerprints = n.cfg.Keyring.Fingerprints()
	return reply
}

var errOlderKeys = errors.New("that member has to catch up, not this one")

// catchUpKeys fetches the keys of a relay or gate that refused this member: this member missed a
// rotation. It requires certificates: without them a member that was away cannot be
// distinguished from a stranger.
func (n *Node) catchUpKeys(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	conn, peer, err := n.transport.dial(ctx, addr, protocolKeys)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // this node may close meanwhile
	defer conn.Close()
	if !peer.Certified || !peer.Role.Relays() {
		return fmt.Errorf("%s is a %s: gossip keys are taken from relays and gates only", peer.ID, peer.Role)
	}
	reply, err := n.exchangeKeys(ctx, conn, keysRequest{Operation: fetchKeys})
	switch {
	case err != nil:
		return err
	case reply.Error != "":
		return errors.New(reply.Error)
	case len(reply.Keys) == 0:
		return fmt.Errorf("%s sent no keys", peer.ID)
	}
	// If two keyrings differ, the member that missed the last use follows. If no use is
	// recorded on either, the member that has not joined follows.
	if ours := n.cfg.Keyring.inUseSince(); reply.Since.Before(ours) || reply.Since.Equal(ours) && n.Status().Joined {
		return fmt.Errorf("%w: %s has keys that were in use before ours", errOlderKeys, peer.ID)
	}
	if err := n.cfg.Keyring.adopt(reply.Keys, reply.Since); err != nil {
		return fmt.Errorf("keys of %s: %w", peer.ID, err)
	}
	n.logger.Info("caught up with the fleet's gossip keys", "from", peer.ID, "keys", n.cfg.Keyring.Fingerprints())
	return nil
}

// bringKeys gives this node's keys to a member that missed a rotation and has no other member to
// fetch them from, such as the seed of all others.
func (n *Node) bringKeys(ctx context.Context, addr string) error {
	if !n.cfg.Role.Relays() {
		return errors.New("only relays and gates give keys")
	}
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	conn, peer, err := n.transport.dial(ctx, addr, protocolKeys)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	if !peer.Certified {
		return fmt.Errorf("%s has no certificate", peer.ID)
	}
	reply, err := n.exchangeKeys(ctx, conn, keysRequest{Operation: giveKeys, Keys: n.cfg.Keyring.texts(), Since: n.cfg.Keyring.inUseSince()})
	if err == nil && reply.Error != "" {
		err = errors.New(reply.Error)
	}
	if err == nil {
		n.logger.Info("brought the fleet's gossip keys to a member that missed a rotation", "member", peer.ID)
	}
	return err
}

// boundReply returns the data that a reply is bound to: the challenge and the request as it was
// sent.
func boundReply(challenge, request []byte) []byte {
	return slices.Concat(challenge, []byte("reply"), request)
}

// sendKeys sends one message, sealed unless TLS is used. It returns the message as it was sent.
func (n *Node) sendKeys(conn net.Conn, message any, bound []byte) (sent []byte, err error) {
	body, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	if n.cfg.Identity == nil {
		if body, err = seal(n.cfg.Keyring.primary(), body, bound); err != nil {
			return nil, err
		}
	}
	if len(body) > maxHello {
		return nil, fmt.Errorf("key message of %d bytes, %d are allowed", len(body), maxHello)
	}
	return body, writeFrame(conn, body)
}

// openKeys reads a message of sendKeys.
func (n *Node) openKeys(body []byte, message any, bound []byte) (err error) {
	if n.cfg.Identity == nil {
		if body, err = n.cfg.Keyring.unseal(body, bound); err != nil {
			return err
		}
	}
	return json.Unmarshal(body, message)
}

// seal encrypts with a key derived from a gossip key, so that this use and memberlist's use never
// share a key. The fingerprint at the front identifies the key.
func seal(key, plain, bound []byte) ([]byte, error) {
	box, err := sealer(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return box.Seal(append([]byte(fingerprintOf(key)), nonce...), nonce, plain, bound), nil
}

var errSealed = errors.New("sealed with a gossip key that is not installed here, or damaged")

func (k *Keyring) unseal(sealed, bound []byte) ([]byte, error) {
	if len(sealed) < fingerprintSize {
		return nil, errSealed
	}
	key, ok := k.key(string(sealed[:fingerprintSize]))
	if !ok {
		return nil, errSealed
	}
	box, err := sealer(key)
	if err != nil {
		return nil, err
	}
	sealed = sealed[fingerprintSize:]
	if len(sealed) < box.NonceSize() {
		return nil, errSealed
	}
	plain, err := box.Open(nil, sealed[:box.NonceSize()], sealed[box.NonceSize():], bound)
	if err != nil {
		return nil, errSealed
	}
	return plain, nil
}

func sealer(key []byte) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, key, nil, "ringway keys/1", keySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
