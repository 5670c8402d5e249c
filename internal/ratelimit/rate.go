package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is how many requests all relays of a fleet together let pass.
type Rate struct {
	// Requests are allowed in each Per.
	Requests int
	Per      time.Duration
	// Burst is how many may come together. Default 0: those of DefaultBurst, or LeastBurst at each relay.
	// At least one may at each relay, or a relay with a small share would let none pass.
	Burst int
}

const (
	// DefaultBurst is the time of whose requests a burst may consist. A longer one would let more pass
	// in ten seconds than the rate; with a shorter one, requests that arrive by chance would be refused
	// although fewer arrive than the rate allows.
	DefaultBurst = 500 * time.Millisecond
	// LeastBurst is how many requests may come together at a relay where DefaultBurst has fewer: of
	// requests that arrive by chance, as many as the rate allows, a bucket of n refuses about 1/2n.
	// They are at most those of the unit of the rate and of longestBurst: otherwise many relays would
	// let the requests of minutes pass together.
	LeastBurst   = 5
	longestBurst = LeastBurst * time.Second
)

// maxRequests is the greatest number in a Rate.
const maxRequests = 1_000_000_000

var units = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// Parse parses the text of a rate, such as 100/s, 30/m or 1000/h.
func Parse(text string) (Rate, error) {
	count, unit, _ := strings.Cut(text, "/")
	per, known := units[unit]
	n, err := strconv.ParseUint(count, 10, 31)
	switch {
	case !known || err != nil && !errors.Is(err, strconv.ErrRange):
		return Rate{}, fmt.Errorf("rate %.40q: want a whole number of requests per second, minute or hour, such as 100/s, 30/m or 1000/h", text)
	case err != nil || n > maxRequests:
		return Rate{}, fmt.Errorf("rate %.40q: more than %d: leave the limit out", text, maxRequests)
	case n == 0:
		return Rate{}, fmt.Errorf("rate %.40q: would refuse all requests: block the caller or the service instead", text)
	}
	return Rate{Requests: int(n), Per: per}, nil
}

// String returns the text that Parse parses.
func (r Rate) String() string {
	for unit, per := range units {
		if per == r.Per {
			return strconv.Itoa(r.Requests) + "/" + unit
		}
	}
	return fmt.Sprintf("%d/%v", r.Requests, r.Per)
}

// PerSecond returns the requests per second that are allowed.
func (r Rate) PerSecond() float64 { return float64(r.Requests) / r.Per.Seconds() }

// Part is the part of a Rate that one relay lets pass.
type Part struct {
	interval time.Duration // between two requests
	depth    time.Duration // by how much requests may be ahead of the interval
}

// maxInterval bounds the time between two requests at a relay with a tiny share.
const maxInterval = 24 * time.Hour

// For returns the part of a relay with this share of the requests, between 0 and 1.
func (r Rate) For(share float64) Part {
	interval := float64(r.Per) / float64(r.Requests)
	own := math.Min(interval/share, float64(maxInterval))
	depth := float64(r.Burst) * interval // the burst and the rate of this relay are the same part of those of the fleet
	if r.Burst == 0 {
		depth = math.Max(float64(DefaultBurst), math.Min(LeastBurst*own, float64(max(r.Per, longestBurst))))
	}
	return Part{interval: time.Duration(math.Max(own, 1)), depth: time.Duration(math.Max(own, depth))}
}

// after returns the state of a bucket after one more request, or how long it must wait. A state is
// the time at which the bucket is full.
func (p Part) after(full, now time.Duration) (next, wait time.Duration) {
	next = max(full, now) + p.interval
	if early := next - now - p.depth; early > 0 {
		return full, early
	}
	return next, 0
}
