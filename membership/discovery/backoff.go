package discovery

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff returns the pauses between attempts to join while no seed answers:
// 500 ms, doubled up to 15 s, each ± 25 % so that members that started together
// do not return together (HS-A16). The caller owns it: it is not safe for
// concurrent use. It never ends.
func Backoff() *backoff.ExponentialBackOff {
	b := &backoff.ExponentialBackOff{
		InitialInterval:     500 * time.Millisecond,
		RandomizationFactor: 0.25,
		Multiplier:          2,
		MaxInterval:         15 * time.Second,
	}
	b.Reset()
	return b
}
