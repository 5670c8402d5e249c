package discovery

import (
	"net/netip"
	"slices"
	"time"
)

// changes watches how often the whole set of addresses of one name changes. One
// answer is one observation, however many addresses it has: a headless service
// with ten addresses is not in flux (T-HS3).
type changes struct {
	last  []netip.Addr // sorted; nil before the first answer
	times []time.Time  // of the newest changes within the window
}

// fluxLimits say what is too often.
type fluxLimits struct {
	most   int
	window time.Duration
}

// see notes an answer. changed says that the set differs from the last one;
// tooOften that it changed more than limits.most times within the window.
func (c *changes) see(addrs []netip.Addr, now time.Time, limits fluxLimits) (changed, tooOften bool) {
	set := slices.Clone(addrs)
	slices.SortFunc(set, netip.Addr.Compare)
	changed = c.last != nil && !slices.Equal(set, c.last)
	c.last = set
	c.times = slices.DeleteFunc(c.times, func(t time.Time) bool { return now.Sub(t) >= limits.window })
	if changed {
		c.times = append(c.times, now)
		if extra := len(c.times) - (limits.most + 1); extra > 0 { // more are not needed
			c.times = slices.Delete(c.times, 0, extra)
		}
	}
	return changed, len(c.times) > limits.most
}
