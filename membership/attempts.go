package membership

import (
	"net/netip"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// maxWait limits the pause between two attempts at an address that never answers, in
// rejoin intervals: five minutes, ± 25 %, by default.
const maxWait = 10

// attempts spaces the attempts at addresses that do not answer, so that a seed that is
// permanently gone is tried less often than one that may return. It belongs to the rejoin
// loop.
type attempts struct {
	interval time.Duration
	waits    map[netip.AddrPort]*wait
}

type wait struct {
	pauses *backoff.ExponentialBackOff
	until  time.Time
	given  uint64 // the DNS answer that contained the address; see Finder.Given
}

func newAttempts(interval time.Duration) *attempts {
	return &attempts{interval: interval, waits: make(map[netip.AddrPort]*wait)}
}

// due reports whether addr may be tried. An address from a new DNS answer may always be
// tried, because another process may run there now.
func (a *attempts) due(addr netip.AddrPort, given uint64, now time.Time) bool {
	w := a.waits[addr]
	if w != nil && w.given != given {
		delete(a.waits, addr)
		return true
	}
	return w == nil || !now.Before(w.until)
}

// silent records that addr did not answer: its next pause is twice the last one.
func (a *attempts) silent(addr netip.AddrPort, given uint64, now time.Time) {
	w := a.waits[addr]
	if w == nil {
		w = &wait{given: given, pauses: &backoff.ExponentialBackOff{
			InitialInterval: a.interval, RandomizationFactor: 0.25, Multiplier: 2, MaxInterval: maxWait * a.interval,
		}}
		w.pauses.Reset()
		a.waits[addr] = w
	}
	w.until = now.Add(w.pauses.NextBackOff())
}

// keep drops all addresses except those that are still looked for.
func (a *attempts) keep(lookedFor func(netip.AddrPort) bool) {
	for addr := range a.waits {
		if !lookedFor(addr) {
			delete(a.waits, addr)
		}
	}
}
