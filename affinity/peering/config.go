package peering

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Config is what a [Table] keeps to. Zero fields mean the defaults.
type Config struct {
	// DrainDelay is how long a connection that no service needs any more stays
	// open. It must exceed the time in which all relays learn of a change, or a
	// worker is short of relays in between. Default 30 s; negative closes at once.
	DrainDelay time.Duration
	// MaxOpening is how many connections are being opened at one time, so that a
	// deploy of a thousand workers is not a storm of handshakes. Default 16.
	MaxOpening int
	// RetryDelay is the wait after a first failed opening; it doubles up to
	// MaxRetryDelay. Defaults 1 s and 30 s.
	RetryDelay, MaxRetryDelay time.Duration
}

func (c Config) complete() (Config, error) {
	var problems []error
	if c.MaxOpening < 0 {
		problems = append(problems, fmt.Errorf("peering: MaxOpening %d is negative: give 0 for the default of 16, or more", c.MaxOpening))
	}
	if c.RetryDelay < 0 || c.MaxRetryDelay < 0 {
		problems = append(problems, fmt.Errorf("peering: retry delays %v and %v: want none negative, 0 for the defaults of 1s and 30s", c.RetryDelay, c.MaxRetryDelay))
	}
	c.DrainDelay = max(0, cmp.Or(c.DrainDelay, 30*time.Second))
	c.MaxOpening = cmp.Or(c.MaxOpening, 16)
	c.RetryDelay = cmp.Or(c.RetryDelay, time.Second)
	c.MaxRetryDelay = max(c.RetryDelay, cmp.Or(c.MaxRetryDelay, 30*time.Second))
	return c, errors.Join(problems...)
}
