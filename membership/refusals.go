package membership

import (
	"sync"
	"time"
)

const (
	// maxRefusals bounds what strangers can make us remember.
	maxRefusals = 256
	// refusalQuiet is how long one address is not worth another log line.
	refusalQuiet = time.Minute
)

// refusals remembers the last refusal by the address that we dialled or, for
// those who dialled us, by host and node: memberlist flattens the errors of a
// join, and this is where the reason is found again.
type refusals struct {
	mu    sync.Mutex
	byKey map[string]notedRefusal
}

type notedRefusal struct {
	err    *RefusalError
	logged time.Time
}

// note stores a refusal and reports whether it deserves a log line.
func (r *refusals) note(key string, err *RefusalError) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil {
		r.byKey = make(map[string]notedRefusal)
	}
	now := time.Now()
	old, known := r.byKey[key]
	if known && now.Sub(old.logged) < refusalQuiet && old.err.Field == err.Field {
		r.byKey[key] = notedRefusal{err, old.logged}
		return false
	}
	if !known && len(r.byKey) >= maxRefusals {
		for any := range r.byKey { // whichever: the newest is the one that matters
			delete(r.byKey, any)
			break
		}
	}
	r.byKey[key] = notedRefusal{err, now}
	return true
}

func (r *refusals) get(key string) *RefusalError {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byKey[key].err
}

func (r *refusals) clear(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byKey, key)
}
