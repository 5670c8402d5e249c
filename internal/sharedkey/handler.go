package sharedkey

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"
	"unicode"
)

const (
	// Path is where Handler is served on the peer listener.
	Path = "/ringway/v1/shared-key"
	// nonceHeader contains the asker's nonce, 32 bytes in hex, if answers are sealed.
	nonceHeader = "Ringway-Nonce"
)

// Results of the answers counter.
const (
	answeredKey     = "key"
	answeredNone    = "none"
	answeredRefused = "refused"
)

// Handler answers other relays on the peer listener, at [Path]: 200 with the key, 404 while
// there is none, 403 for peers that are not admitted, 405 for methods other than GET. All
// bodies are JSON; the first two are sealed if answers are. It works before, during and
// after Run; it never blocks.
func (k *Keeper) Handler() http.Handler { return http.HandlerFunc(k.serve) }

func (k *Keeper) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		writeJSON(w, http.StatusMethodNotAllowed, errorBody("only GET is allowed"))
		return
	}
	nonce, refusal := k.admit(r)
	if refusal != "" {
		k.metrics.answers.WithLabelValues(answeredRefused).Inc()
		k.cfg.Logger.Debug("shared key refused", "asker", r.RemoteAddr, "reason", refusal)
		writeJSON(w, http.StatusForbidden, errorBody(refusal))
		return
	}
	answer, err := k.Answer()
	status, result := http.StatusOK, answeredKey
	if err != nil {
		status, result = http.StatusNotFound, answeredNone
	}
	body, err := encodeAnswer(k.cfg.Label, answer)
	if err == nil && k.cfg.sealing() {
		body, err = seal(k.cfg.Seal()[0], k.cfg.Label, nonce, body)
	}
	if err != nil {
		k.cfg.Logger.Error("shared key not answered", "error", err)
		writeJSON(w, http.StatusInternalServerError, errorBody("internal error"))
		return
	}
	k.metrics.answers.WithLabelValues(result).Inc()
	writeJSON(w, status, body)
}

// admit returns why the asker is refused; with "" it returns the nonce for sealing.
func (k *Keeper) admit(r *http.Request) (nonce []byte, refusal string) {
	switch {
	case k.cfg.Authorize != nil:
		if r.TLS == nil {
			return nil, "the key does not travel in clear text: use TLS"
		}
		if err := k.cfg.Authorize(r); err != nil {
			return nil, "not authorised: " + err.Error()
		}
	case k.cfg.sealing():
		nonce, err := hex.DecodeString(r.Header.Get(nonceHeader))
		if err != nil || len(nonce) != nonceBytes {
			return nil, "answers are sealed here: send " + nonceHeader + " with 32 bytes in hex"
		}
		return nonce, ""
	}
	return nil, ""
}

// Answer returns the answer of Handler to an admitted peer: the key and the retired keys,
// or [ErrNoKey]. It can be used as another keeper's Config.Fetch to connect two keepers in
// one process. Safe for concurrent use.
func (k *Keeper) Answer() (Answer, error) {
	now := k.now()
	ring := k.ring.Load().expire(now)
	if ring.current.IsZero() {
		return Answer{}, ErrNoKey
	}
	a := Answer{Key: ring.current, Configured: ring.pinned()}
	for _, r := range ring.retired {
		a.Retired = append(a.Retired, RetiredKey{r.key, r.until.Sub(now)})
	}
	return a, nil
}

func errorBody(text string) []byte {
	body, _ := json.Marshal(map[string]string{"error": text}) // cannot fail
	return body
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the asker may have disconnected
}

// Errors of asking a relay. ErrNoKey is an answer, and the only error after which this
// relay may generate a key; after any other error the relay may still have a key.
var (
	// ErrNoKey: the relay answered and has no key yet.
	ErrNoKey = errors.New("it has no key yet")
	// ErrRefused: the relay did not admit this process.
	ErrRefused = errors.New("it refused")
	// ErrMalformed: the answer does not follow the protocol, or was changed or replayed in transit.
	ErrMalformed = errors.New("malformed answer")
	// ErrForeign: the answer is from another cluster.
	ErrForeign = errors.New("answer of another cluster")
)

// Answer is the answer of a relay that holds a key. Its fields print as fingerprints.
type Answer struct {
	// Key is the key with which the relay signs; never the zero Key in an answer without error.
	Key Key
	// Configured is whether an operator has set Key on this relay itself.
	Configured bool
	// Retired are keys that the relay still accepts for verification, at most 8.
	Retired []RetiredKey
}

// RetiredKey is a key accepted for verification only.
type RetiredKey struct {
	Key Key `json:"fingerprint"`
	// For is the remaining time. It is a duration, so that the clocks of two hosts are never
	// compared.
	For time.Duration `json:"for_ns"`
}

const (
	answerFormat = 1
	noKeyYet     = "no key yet"
	// maxAnswer limits how many bytes of an answer are read: the largest answer, with 9 keys of
	// maxSecret in hex and sealed in base64, stays below 14 KiB.
	maxAnswer = 32 << 10
	// maxGenerator limits the size of the id in a key's stamp, in bytes.
	maxGenerator = 255
)

// The answer as JSON. Readers skip unknown fields; a change of the meaning of a field
// requires a new format number.
type wireAnswer struct {
	Format     int           `json:"format"`
	Label      string        `json:"label"`
	Error      string        `json:"error,omitempty"`
	Key        *wireKey      `json:"key,omitempty"`
	Configured bool          `json:"configured,omitempty"`
	Retired    []wireRetired `json:"retired,omitempty"`
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

// encodeAnswer returns the JSON of an answer. An answer without a key becomes "no key yet".
func encodeAnswer(label string, a Answer) ([]byte, error) {
	w := wireAnswer{Format: answerFormat, Label: label}
	if a.Key.IsZero() {
		w.Error = noKeyYet
		return json.Marshal(w)
	}
	key := encodeKey(a.Key)
	w.Key, w.Configured = &key, a.Configured
	for _, r := range a.Retired {
		w.Retired = append(w.Retired, wireRetired{encodeKey(r.Key), r.For.Milliseconds()})
	}
	return json.Marshal(w)
}

func encodeKey(k Key) wireKey {
	id, epoch := k.generatedBy()
	return wireKey{Material: hex.EncodeToString(k.body().material), Epoch: epoch, GeneratedBy: id}
}

// decodeAnswer decodes the result of encodeAnswer. Its error is or wraps ErrNoKey,
// ErrForeign or ErrMalformed and contains no part of a key.
func decodeAnswer(label string, data []byte) (Answer, error) {
	var w wireAnswer
	if err := json.Unmarshal(data, &w); err != nil {
		// The cause is left out, because it may quote the data and with it a key.
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
	a := Answer{Configured: w.Configured}
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
	case len(material) < minSecret || len(material) > maxSecret:
		return Key{}, fmt.Errorf("%w: a key of %d bytes, %d to %d are allowed", ErrMalformed, len(material), minSecret, maxSecret)
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
