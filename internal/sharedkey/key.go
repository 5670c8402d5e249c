package sharedkey

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"
)

const (
	// minSecret and maxSecret limit the size of a key, in bytes. HMAC-SHA-256 gains nothing from
	// more than 32; the upper limit keeps an answer small.
	minSecret = 32
	maxSecret = 512
	// redacted replaces a secret wherever it would be printed.
	redacted = "[secret]"
)

// Secret is a sequence of bytes that must not be shown: printed, logged or marshalled, it
// appears as "[secret]".
type Secret []byte

// Format implements [fmt.Formatter] for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue implements [slog.LogValuer].
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements [encoding.TextMarshaler].
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Key is a signing key with its origin. It is an immutable value; the zero Key is not a
// key. Printed, logged or marshalled, it appears as its fingerprint.
type Key struct {
	// A function, because fmt prints a Key in an unexported field of another type without calling
	// Format, and the target of a pointer for a wrong verb. For a function it always prints only
	// the address. Keys cannot be compared with ==; use Equal.
	body func() *keyBody
}

type keyBody struct {
	material    []byte
	epoch       uint64 // 0: an operator set the key
	generatedBy string // empty: an operator set the key
	digest      [sha256.Size]byte
}

// newKey creates a key from the material, of which it takes ownership.
func newKey(material []byte, generatedBy string, epoch uint64) Key {
	body := &keyBody{material: material, epoch: epoch, generatedBy: generatedBy, digest: sha256.Sum256(material)}
	return Key{func() *keyBody { return body }}
}

// IsZero reports whether k is the zero Key.
func (k Key) IsZero() bool { return k.body == nil }

// Fingerprint returns the first 8 hex digits of the SHA-256 of the key, and "none" for the
// zero Key.
func (k Key) Fingerprint() string {
	if k.IsZero() {
		return "none"
	}
	return hex.EncodeToString(k.body().digest[:4])
}

// generatedBy returns the id and epoch of the instance that generated the key: empty and 0
// for a key that an operator set.
func (k Key) generatedBy() (id string, epoch uint64) {
	if k.IsZero() {
		return "", 0
	}
	return k.body().generatedBy, k.body().epoch
}

// Equal reports whether both have the same material, whatever their origin.
func (k Key) Equal(other Key) bool {
	if k.IsZero() || other.IsZero() {
		return k.IsZero() == other.IsZero()
	}
	return k.body().digest == other.body().digest
}

// older reports whether k wins over other: a total order on which all relays agree, by
// epoch and id of the generator, then SHA-256. The zero Key loses.
func (k Key) older(other Key) bool {
	if k.IsZero() || other.IsZero() {
		return !k.IsZero() && other.IsZero()
	}
	a, b := k.body(), other.body()
	return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.generatedBy, b.generatedBy), bytes.Compare(a.digest[:], b.digest[:])) < 0
}

// given reports whether an operator set the key.
func (k Key) given() bool { return !k.IsZero() && k.body().epoch == 0 }

// sign returns the HMAC-SHA-256 of message.
func (k Key) sign(message []byte) []byte {
	h := hmac.New(sha256.New, k.body().material)
	_, _ = h.Write(message) // never fails
	return h.Sum(nil)
}

// String returns the fingerprint.
func (k Key) String() string { return k.Fingerprint() }

// Format implements [fmt.Formatter]: the fingerprint for every verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.Fingerprint()) }

// LogValue implements [slog.LogValuer].
func (k Key) LogValue() slog.Value { return slog.StringValue(k.Fingerprint()) }

// MarshalText implements [encoding.TextMarshaler]: the fingerprint.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.Fingerprint()), nil }

// Source is where the current key came from.
type Source string

// The sources of a key.
const (
	// sourceValue is Config.Value.
	sourceValue Source = "value"
	// sourceFile is Config.File.
	sourceFile Source = "file"
	// sourcePeer is another relay.
	sourcePeer Source = "peer"
	// sourceGenerated is this relay, as the oldest one, when none had a key.
	sourceGenerated Source = "generated"
	// sourceFallback is this relay, after no relay gave it a key in all attempts.
	sourceFallback Source = "fallback"
)

var sources = []Source{sourceValue, sourceFile, sourcePeer, sourceGenerated, sourceFallback}

// maxRetired limits the retired keys: each costs a try in Verify and space in an answer. If
// a fleet splits into more parts than this, the sessions of the keys that this relay used for the
// shortest time are lost: a relay that states one older key after the other ends no session of before.
const maxRetired = 8

// keyring holds the current key and the keys accepted in addition. It is an immutable
// value: methods return a changed copy. It is pure: no clock, no lock.
type keyring struct {
	current Key // the zero Key: none yet
	source  Source
	since   time.Time    // when current came into use here
	retired []retiredKey // never contains current
}

type retiredKey struct {
	key   Key
	until time.Time
	used  time.Duration // how long this relay signed with it
}

// pinned reports whether the key was configured on this relay: then it signs with no other.
func (r keyring) pinned() bool { return r.source == sourceValue || r.source == sourceFile }

func (r keyring) find(k Key) int {
	return slices.IndexFunc(r.retired, func(o retiredKey) bool { return o.key.Equal(k) })
}

// knows reports whether k is accepted for verification.
func (r keyring) knows(k Key) bool { return r.current.Equal(k) || r.find(k) >= 0 }

// use makes k the signing key; the previous one is accepted until retiredUntil.
func (r keyring) use(k Key, source Source, now, retiredUntil time.Time) keyring {
	old := r.current
	r.retired = slices.DeleteFunc(slices.Clone(r.retired), func(o retiredKey) bool { return o.key.Equal(k) })
	r.current, r.source = k, source
	if old.Equal(k) {
		return r // only the source has changed
	}
	used := now.Sub(r.since)
	r.since = now
	if old.IsZero() {
		return r
	}
	return r.keep(retiredKey{old, retiredUntil, used}, now)
}

// accept adds k for verification, or extends the time of a key that is already accepted.
func (r keyring) accept(k Key, now, until time.Time) keyring {
	return r.keep(retiredKey{key: k, until: until}, now)
}

func (r keyring) keep(one retiredKey, now time.Time) keyring {
	if !one.until.After(now) || r.current.Equal(one.key) {
		return r
	}
	r.retired = slices.Clone(r.retired)
	if i := r.find(one.key); i < 0 {
		r.retired = append(r.retired, one)
	} else if one.until.After(r.retired[i].until) {
		r.retired[i].until = one.until
	}
	if len(r.retired) > maxRetired { // by one
		least := slices.MinFunc(r.retired, func(a, b retiredKey) int { return cmp.Or(cmp.Compare(a.used, b.used), a.until.Compare(b.until)) })
		i := r.find(least.key)
		r.retired = slices.Delete(r.retired, i, i+1)
	}
	slices.SortStableFunc(r.retired, func(a, b retiredKey) int { return b.until.Compare(a.until) }) // the last to expire first
	return r
}

// expire drops keys that have expired.
func (r keyring) expire(now time.Time) keyring {
	gone := func(o retiredKey) bool { return !o.until.After(now) }
	if slices.ContainsFunc(r.retired, gone) {
		r.retired = slices.DeleteFunc(slices.Clone(r.retired), gone)
	}
	return r
}

// peerAnswer is an answer with the data that is needed to apply it.
type peerAnswer struct {
	answer Answer
	asked  time.Time // when the request was sent: counting from then, no deadline can grow in transit
	now    time.Time
	retire time.Duration // Config.Retire
	only   bool          // accept its key and do not use it: a configured one is in use
}

// learn applies the answer of a relay, and reports whether its key was unknown to this
// relay although this relay had a key: a fork.
func (r keyring) learn(l peerAnswer) (out keyring, fork bool) {
	theirs, until := l.answer.Key, l.now.Add(l.retire)
	fork = !r.current.IsZero() && !r.knows(theirs)
	switch {
	case r.current.IsZero(), !r.pinned() && !l.only && theirs.older(r.current):
		// Also for an equal key with a lower stamp: all relays must see the same stamp, or they
		// would order two keys differently.
		source := sourcePeer
		if r.current.Equal(theirs) {
			source = r.source
		}
		r = r.use(theirs, source, l.now, until)
	default:
		r = r.accept(theirs, l.now, until)
	}
	for _, o := range l.answer.Retired {
		r = r.accept(o.Key, l.now, l.asked.Add(min(o.For, l.retire)))
	}
	return r, fork
}
