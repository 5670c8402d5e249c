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
)

const (
	// MinSecret and MaxSecret bound a key, in bytes. 32 is what HMAC-SHA-256 can
	// make use of; the upper bound keeps an answer small.
	MinSecret = 32
	MaxSecret = 512
	// hidden stands for a secret wherever it would be printed.
	hidden = "[secret]"
)

// Secret is bytes that must not be shown: however it is printed, logged or
// marshalled, "[secret]" comes out.
type Secret []byte

// Format implements [fmt.Formatter] for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// LogValue implements [slog.LogValuer].
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText implements [encoding.TextMarshaler].
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Key is a signing key and who made it. It is an immutable value; the zero Key
// is no key. However it is printed, logged or marshalled, its fingerprint comes
// out.
type Key struct {
	// A function, because fmt prints a Key in somebody's unexported field without
	// asking Format, and what a pointer points to under a verb it takes for wrong.
	// Of a function it prints the address, always. Keys cannot be compared by ==;
	// use Equal.
	body func() *keyBody
}

type keyBody struct {
	material    []byte
	epoch       uint64 // 0: an operator gave the key
	generatedBy string // empty: an operator gave the key
	digest      [sha256.Size]byte
}

// newKey makes a key of the material, which it takes ownership of.
func newKey(material []byte, generatedBy string, epoch uint64) Key {
	body := &keyBody{material: material, epoch: epoch, generatedBy: generatedBy, digest: sha256.Sum256(material)}
	return Key{func() *keyBody { return body }}
}

// IsZero reports that k is no key.
func (k Key) IsZero() bool { return k.body == nil }

// Fingerprint is the first 8 hex digits of the SHA-256 of the key, and "none"
// for the zero Key.
func (k Key) Fingerprint() string {
	if k.IsZero() {
		return "none"
	}
	return hex.EncodeToString(k.body().digest[:4])
}

// GeneratedBy is the id and epoch of the instance that generated the key: empty
// and 0 for a key that an operator gave.
func (k Key) GeneratedBy() (id string, epoch uint64) {
	if k.IsZero() {
		return "", 0
	}
	return k.body().generatedBy, k.body().epoch
}

// Equal reports that both are the same key, whoever made it.
func (k Key) Equal(other Key) bool {
	if k.IsZero() || other.IsZero() {
		return k.IsZero() == other.IsZero()
	}
	return k.body().digest == other.body().digest
}

// Older reports that k wins over other: a total order that all relays agree on,
// by epoch and id of the generator, then SHA-256. The zero Key loses.
func (k Key) Older(other Key) bool {
	if k.IsZero() || other.IsZero() {
		return !k.IsZero() && other.IsZero()
	}
	a, b := k.body(), other.body()
	return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.generatedBy, b.generatedBy), bytes.Compare(a.digest[:], b.digest[:])) < 0
}

// given reports that an operator gave the key.
func (k Key) given() bool { return !k.IsZero() && k.body().epoch == 0 }

// sign is the HMAC-SHA-256 of message.
func (k Key) sign(message []byte) []byte {
	h := hmac.New(sha256.New, k.body().material)
	_, _ = h.Write(message) // never fails
	return h.Sum(nil)
}

// String is the fingerprint.
func (k Key) String() string { return k.Fingerprint() }

// Format implements [fmt.Formatter]: the fingerprint for every verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.Fingerprint()) }

// LogValue implements [slog.LogValuer].
func (k Key) LogValue() slog.Value { return slog.StringValue(k.Fingerprint()) }

// MarshalText implements [encoding.TextMarshaler]: the fingerprint.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.Fingerprint()), nil }
