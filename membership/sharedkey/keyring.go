package sharedkey

import (
	"slices"
	"time"
)

// Source says where the key in use came from.
type Source string

// The sources of a key.
const (
	// SourceValue is Config.Value.
	SourceValue Source = "value"
	// SourceFile is Config.File.
	SourceFile Source = "file"
	// SourcePeer is another relay.
	SourcePeer Source = "peer"
	// SourceGenerated is this relay, the oldest one, while none had a key.
	SourceGenerated Source = "generated"
	// SourceFallback is this relay, after nobody gave it a key in all attempts.
	SourceFallback Source = "fallback"
)

var sources = []Source{SourceValue, SourceFile, SourcePeer, SourceGenerated, SourceFallback}

// maxRetired bounds the retired keys: each costs a try in Verify and room in an
// answer. A fleet that split into more parts than this loses the sessions of
// those that expire first.
const maxRetired = 8

// keyring is the key in use and those accepted beside it. It is an immutable
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
}

// pinned reports that the key was given to this relay: it signs with no other.
func (r keyring) pinned() bool { return r.source == SourceValue || r.source == SourceFile }

func (r keyring) find(k Key) int {
	return slices.IndexFunc(r.retired, func(o retiredKey) bool { return o.key.Equal(k) })
}

// knows reports that k is accepted for verification.
func (r keyring) knows(k Key) bool { return r.current.Equal(k) || r.find(k) >= 0 }

// use makes k the key that signs; the one before it is accepted until retiredUntil.
func (r keyring) use(k Key, source Source, now, retiredUntil time.Time) keyring {
	old := r.current
	r.retired = slices.DeleteFunc(slices.Clone(r.retired), func(o retiredKey) bool { return o.key.Equal(k) })
	r.current, r.source = k, source
	if old.Equal(k) {
		return r // only where it comes from has changed
	}
	r.since = now
	if old.IsZero() {
		return r
	}
	return r.accept(old, now, retiredUntil)
}

// accept adds k for verification, or lengthens the time of one that is there.
func (r keyring) accept(k Key, now, until time.Time) keyring {
	if !until.After(now) || r.current.Equal(k) {
		return r
	}
	r.retired = slices.Clone(r.retired)
	if i := r.find(k); i < 0 {
		r.retired = append(r.retired, retiredKey{k, until})
	} else if until.After(r.retired[i].until) {
		r.retired[i].until = until
	}
	// Last to expire first, so that the bound drops the one that expires first.
	slices.SortStableFunc(r.retired, func(a, b retiredKey) int { return b.until.Compare(a.until) })
	r.retired = r.retired[:min(len(r.retired), maxRetired)]
	return r
}

// expire drops what is no longer accepted.
func (r keyring) expire(now time.Time) keyring {
	gone := func(o retiredKey) bool { return !o.until.After(now) }
	if slices.ContainsFunc(r.retired, gone) {
		r.retired = slices.DeleteFunc(slices.Clone(r.retired), gone)
	}
	return r
}

// lesson is an answer and what is needed to judge it.
type lesson struct {
	answer Answer
	asked  time.Time // when the request went out: no deadline can grow on its way
	now    time.Time
	retire time.Duration // Config.Retire
}

// learn takes in what a relay holds, and reports whether its key was one that
// this relay did not know although it had one: a fork.
func (r keyring) learn(l lesson) (out keyring, fork bool) {
	theirs, until := l.answer.Key, l.now.Add(l.retire)
	fork = !r.current.IsZero() && !r.knows(theirs)
	switch {
	case r.current.IsZero(), !r.pinned() && theirs.Older(r.current):
		// Also with an equal key that a lower stamp came with: all relays must see
		// the same stamp, or they order two keys differently.
		source := SourcePeer
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
