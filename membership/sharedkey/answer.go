package sharedkey

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode"
)

// What can be wrong with asking a relay. ErrNoKey is an answer, and the only one
// that lets this relay generate a key; all others may hide a relay that has it.
var (
	// ErrNoKey says that the relay answered and has no key yet.
	ErrNoKey = errors.New("it has no key yet")
	// ErrRefused says that the relay did not admit this process.
	ErrRefused = errors.New("it refused")
	// ErrMalformed says that the answer is not one of this protocol, or was
	// changed or replayed on the way.
	ErrMalformed = errors.New("malformed answer")
	// ErrForeign says that the answer is another cluster's.
	ErrForeign = errors.New("answer of another cluster")
)

// Answer is what a relay that holds a key tells another. Its fields print as
// fingerprints.
type Answer struct {
	// Key is what the relay signs with; never the zero Key in an answer without
	// error.
	Key Key
	// Retired are keys that the relay still verifies with, at most 8.
	Retired []RetiredKey
}

// RetiredKey is a key accepted for verification only.
type RetiredKey struct {
	Key Key `json:"fingerprint"`
	// For is how much longer. A duration, because no clock of two hosts is
	// compared.
	For time.Duration `json:"for_ns"`
}

const (
	answerFormat = 1
	noKeyYet     = "no key yet"
	// maxAnswer bounds the bytes of an answer that are read: the largest one, with
	// 9 keys of MaxSecret in hex and sealed in base64, stays below 14 KiB.
	maxAnswer = 32 << 10
	// maxGenerator bounds the id in a key's stamp, in bytes.
	maxGenerator = 255
)

// The answer as JSON. Readers skip fields they do not know; what changes the
// meaning of the others gets a new format number.
type wireAnswer struct {
	Format  int           `json:"format"`
	Label   string        `json:"label"`
	Error   string        `json:"error,omitempty"`
	Key     *wireKey      `json:"key,omitempty"`
	Retired []wireRetired `json:"retired,omitempty"`
}

type wireKey struct {
	Material    string `json:"material"` // hex
	Epoch       uint64 `json:"epoch"`
	GeneratedBy string `json:"generated_by"`
}

type wireRetired struct {
	wireKey
	ExpiresInMS int64 `json:"expires_in_ms"`
}

// encodeAnswer makes the JSON of an answer; that of "no key yet" for one without
// a key.
func encodeAnswer(label string, a Answer) ([]byte, error) {
	w := wireAnswer{Format: answerFormat, Label: label}
	if a.Key.IsZero() {
		w.Error = noKeyYet
		return json.Marshal(w)
	}
	key := encodeKey(a.Key)
	w.Key = &key
	for _, r := range a.Retired {
		w.Retired = append(w.Retired, wireRetired{encodeKey(r.Key), r.For.Milliseconds()})
	}
	return json.Marshal(w)
}

func encodeKey(k Key) wireKey {
	id, epoch := k.GeneratedBy()
	return wireKey{Material: hex.EncodeToString(k.body().material), Epoch: epoch, GeneratedBy: id}
}

// decodeAnswer reads what encodeAnswer made. Its error is or wraps ErrNoKey,
// ErrForeign or ErrMalformed and shows nothing of the keys.
func decodeAnswer(label string, data []byte) (Answer, error) {
	var w wireAnswer
	if err := json.Unmarshal(data, &w); err != nil {
		// The cause may quote the data, and with it a key.
		return Answer{}, fmt.Errorf("%w: not JSON of the expected form", ErrMalformed)
	}
	switch {
	case w.Format != answerFormat:
		return Answer{}, fmt.Errorf("%w: format %d, this version reads %d", ErrMalformed, w.Format, answerFormat)
	case w.Label != label:
		return Answer{}, fmt.Errorf("%w: ours %q, theirs %.100q", ErrForeign, label, w.Label)
	case w.Key == nil && w.Error == noKeyYet:
		return Answer{}, ErrNoKey
	case w.Key == nil:
		return Answer{}, fmt.Errorf("%w: no key in it", ErrMalformed)
	case len(w.Retired) > maxRetired:
		return Answer{}, fmt.Errorf("%w: %d retired keys, at most %d are allowed", ErrMalformed, len(w.Retired), maxRetired)
	}
	var a Answer
	var err error
	if a.Key, err = w.Key.decode(); err != nil {
		return Answer{}, err
	}
	for _, r := range w.Retired {
		key, err := r.decode()
		if err != nil {
			return Answer{}, fmt.Errorf("retired key: %w", err)
		}
		if r.ExpiresInMS < 0 {
			return Answer{}, fmt.Errorf("%w: a retired key expires in %d ms", ErrMalformed, r.ExpiresInMS)
		}
		left := min(r.ExpiresInMS, math.MaxInt64/int64(time.Millisecond))
		a.Retired = append(a.Retired, RetiredKey{key, time.Duration(left) * time.Millisecond})
	}
	return a, nil
}

func (w wireKey) decode() (Key, error) {
	material, err := hex.DecodeString(w.Material)
	switch {
	case err != nil:
		return Key{}, fmt.Errorf("%w: the key is not hex", ErrMalformed)
	case len(material) < MinSecret || len(material) > MaxSecret:
		return Key{}, fmt.Errorf("%w: a key of %d bytes, %d to %d are allowed", ErrMalformed, len(material), MinSecret, MaxSecret)
	case (w.Epoch == 0) != (w.GeneratedBy == ""):
		return Key{}, fmt.Errorf("%w: a key has an epoch and an id of its generator, or neither", ErrMalformed)
	case len(w.GeneratedBy) > maxGenerator:
		return Key{}, fmt.Errorf("%w: the id of a generator has %d bytes, at most %d are allowed", ErrMalformed, len(w.GeneratedBy), maxGenerator)
	}
	for _, r := range w.GeneratedBy {
		if !unicode.IsPrint(r) {
			return Key{}, fmt.Errorf("%w: the id of a generator is not printable", ErrMalformed)
		}
	}
	return newKey(material, w.GeneratedBy, w.Epoch), nil
}
