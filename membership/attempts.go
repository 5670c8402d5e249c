package membership

import (
	"net/netip"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// maxWait bounds the pause between two attempts at an address that never
// answers, in rejoin intervals: five minutes, ± 25 %, by default.
const maxWait = 10

// attempts spaces those at addresses that do not answer, so that a seed that is
// gone for good is not asked at the pace of one that may be back. It belongs to the
// rejoin loop.
type attempts struct {
	interval time.Duration
	waits    map[netip.AddrPort]*wait
}

type wait struct {
	pauses *backoff.ExponentialBackOff
	until  time.Time
	given  uint64 // by which answer of DNS the address was known; see Finder.Given
}

func newAttempts(interval time.Duration) *attempts {
	return &attempts{interval: interval, waits: make(map[netip.AddrPort]*wait)}
}

// due says whether addr may be tried. An address that DNS has given anew may be: who
// is there now need not be who was silent.
func (a *attempts) due(addr netip.AddrPort, given uint64, now time.Time) bool {
	w := a.waits[addr]
	if w != nil && w.given != given {
		delete(a.waits, addr)
		return true
	}
	return w == nil || !now.Before(w.until)
}

// silent notes that addr did not answer, so its next pause is twice the last one.
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

// keep forgets all but the addresses that are still looked for.
func (a *attempts) keep(lookedFor func(netip.AddrPort) bool) {
	for addr := range a.waits {
		if !lookedFor(addr) {
			delete(a.waits, addr)
		}
	}
}
