package sharedkey

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/publish"
)

// Keeper holds the shared key of this relay. Create it with New, run it with Run; all other
// methods may be called from any goroutine at any time.
type Keeper struct {
	cfg     Config
	metrics *metrics
	running atomic.Bool

	ring   atomic.Pointer[keyring] // never nil; written by New, then only by Run
	keys   publish.Value[Key]      // the key of ring, for watchers
	reason atomic.Pointer[string]  // why there is no key yet

	file      fileState       // owned by Run
	lastView  string          // the relays of the previous attempt; owned by Run
	confirmed map[string]bool // instances that hold our key; owned by Run
	// configured has the keys that operators have set, by the instance that holds one. Owned by Run.
	configured map[string]Key
}

// New creates a Keeper. If the key was set by value or file, the Keeper has it immediately.
// It starts no goroutine. The error lists all invalid fields, or the problem of the value
// or the file; it never contains their content.
func New(cfg Config) (*Keeper, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("sharedkey: %w", err)
	}
	k := &Keeper{cfg: cfg, confirmed: map[string]bool{}, configured: map[string]Key{}}
	ring, err := k.given()
	if err != nil {
		return nil, err
	}
	if k.cfg.Fetch == nil {
		k.cfg.Fetch = newHTTPFetch(&k.cfg).fetch
	}
	k.metrics = newMetrics(cfg.Registerer,
		func() float64 {
			if ring := k.ring.Load(); !ring.current.IsZero() {
				return time.Since(ring.since).Seconds()
			}
			return 0
		},
		func() float64 { return float64(len(k.ring.Load().expire(k.now()).retired)) })
	k.explain("it is not being looked for yet")
	k.ring.Store(&keyring{})
	k.publish(ring)
	return k, nil
}

// given returns the key that an operator set, if there is one.
func (k *Keeper) given() (keyring, error) {
	var ring keyring
	switch {
	case len(k.cfg.Value) > 0:
		material, err := parseMaterial(k.cfg.Value)
		if err != nil {
			return ring, fmt.Errorf("sharedkey: the configured key is bad: %w", err)
		}
		return ring.use(newKey(material, "", 0), sourceValue, k.now(), time.Time{}), nil
	case k.cfg.File != "":
		material, warning, err := readKeyFile(k.cfg.File)
		if errors.Is(err, errNoFile) {
			k.cfg.Logger.Info("shared key file is not there; asking the other relays, and taking it when it appears", "file", k.cfg.File)
			return ring, nil
		}
		if err != nil {
			return ring, fmt.Errorf("sharedkey: file %s: %w", k.cfg.File, err)
		}
		if warning != "" {
			k.cfg.Logger.Warn("shared key file " + warning)
		}
		key := newKey(material, "", 0)
		k.file.inUse = key
		return ring.use(key, sourceFile, k.now(), time.Time{}), nil
	}
	return ring, nil
}

// now returns the time. It is monotonic, so that a change of the wall clock expires no key.
func (k *Keeper) now() time.Time { return time.Now() }

// Run gets a key and then keeps checking the other relays, and the file, until ctx ends. It
// then returns nil, after every request that it made has ended. Call it once, on a
// goroutine of the caller, after the listener that serves Handler is bound.
func (k *Keeper) Run(ctx context.Context) error {
	if k.running.Swap(true) {
		return errors.New("sharedkey: Run was called twice")
	}
	if k.resolve(ctx) {
		k.refreshLoop(ctx)
	}
	return nil
}

// Key returns the key with which this relay signs; false while there is none.
func (k *Keeper) Key() (Key, bool) {
	key := k.ring.Load().current
	return key, !key.IsZero()
}

// Watch delivers the key with which this relay signs, immediately if there is one, and then
// after each change; only the newest. The channel is closed when ctx ends.
func (k *Keeper) Watch(ctx context.Context) <-chan *Key { return k.keys.Watch(ctx) }

// Sign returns the HMAC-SHA-256 of message, 32 bytes, with the current key. It is nil while
// there is no key, and Verify never accepts nil: do not serve before Ready returns nil.
// Callers with more than one use of the key must include a name of the use in message.
func (k *Keeper) Sign(message []byte) []byte {
	key, ok := k.Key()
	if !ok {
		return nil
	}
	return key.sign(message)
}

// Verify reports whether mac was made by Sign, here or on another relay, with the current
// key or a retired key that has not expired. Its duration does not depend on the content of
// mac. To let a session outlive a retired key, compare mac with Sign(message) using
// hmac.Equal and sign again.
func (k *Keeper) Verify(message, mac []byte) bool {
	ring, now := k.ring.Load(), k.now()
	if ring.current.IsZero() {
		return false
	}
	good := hmac.Equal(ring.current.sign(message), mac)
	for _, r := range ring.retired {
		// A match does not end the loop, so that the duration does not reveal which key it
		// was.
		if hmac.Equal(r.key.sign(message), mac) && r.until.After(now) {
			good = true
		}
	}
	return good
}

// notResolvedError is the error of Ready while there is no key.
type notResolvedError struct{ reason string }

func (e *notResolvedError) Error() string { return "Session key not resolved yet: " + e.reason }

// Ready returns nil once there is a key, and until then an error with the reason, for /readyz.
func (k *Keeper) Ready() error {
	if _, ok := k.Key(); ok {
		return nil
	}
	return &notResolvedError{*k.reason.Load()}
}

func (k *Keeper) explain(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	k.reason.Store(&reason)
}

// Format implements [fmt.Formatter]: the fields of a Keeper must not be printed.
func (k *Keeper) Format(f fmt.State, _ rune) {
	key, _ := k.Key()
	_, _ = fmt.Fprintf(f, "sharedkey.Keeper(%s)", key)
}

// Status describes the keys without showing them.
type Status struct {
	// Key is the key in use; the zero Key while there is none.
	Key Key `json:"fingerprint"`
	// GeneratedBy and Epoch identify the instance that generated the key; empty and 0 if an
	// operator set it.
	GeneratedBy string `json:"generated_by,omitempty"`
	Epoch       uint64 `json:"epoch,omitempty"`
	// Source is the source of the key; empty while there is none.
	Source Source `json:"source,omitempty"`
	// Since is when this relay began to use it.
	Since time.Time `json:"since,omitzero"`
	// Retired are the keys accepted for verification only.
	Retired []RetiredKey `json:"retired,omitempty"`
	// Reason is why there is no key yet; empty if there is one.
	Reason string `json:"reason,omitempty"`
}

// Status describes the current keys.
func (k *Keeper) Status() Status {
	now := k.now()
	ring := k.ring.Load().expire(now)
	s := Status{Key: ring.current, Source: ring.source, Since: ring.since}
	if ring.current.IsZero() {
		s.Reason = *k.reason.Load()
		return s
	}
	s.GeneratedBy, s.Epoch = ring.current.generatedBy()
	for _, r := range ring.retired {
		s.Retired = append(s.Retired, RetiredKey{r.key, r.until.Sub(now)})
	}
	return s
}

// publish publishes ring, and reports whether the current key has changed. Only New and
// Run's goroutine call it.
func (k *Keeper) publish(ring keyring) (changed bool) {
	old := k.ring.Load()
	k.ring.Store(&ring)
	if ring.current.IsZero() {
		return false
	}
	if ring.source != old.source {
		k.metrics.setSource(ring.source)
	}
	if ring.current.Equal(old.current) {
		return false
	}
	k.keys.Store(&ring.current)
	clear(k.confirmed)
	id, epoch := ring.current.generatedBy()
	attrs := []any{"fingerprint", ring.current, "source", ring.source, "generated_by", id, "epoch", epoch}
	switch {
	case ring.source == sourceFallback: // the caller logs it, as an error
	case old.current.IsZero():
		k.cfg.Logger.Info("shared key resolved", attrs...)
	default:
		k.cfg.Logger.Warn("shared key replaced; what the old one signed stays good until it expires",
			append(attrs, "old_fingerprint", old.current, "accepted_for", k.cfg.Retire)...)
	}
	return true
}
