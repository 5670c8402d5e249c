package sharedkey

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// settings are the settings with which an operator sets the key.
const settings = "--shared-key (RINGWAY_SHARED_KEY) or --shared-key-file (RINGWAY_SHARED_KEY_FILE)"

// resolve attempts to get a key until there is one, and reports whether there is: false if
// ctx ended first. Attempts count from when this relay joined: before that it knows no
// relay to ask.
func (k *Keeper) resolve(ctx context.Context) bool {
	for attempt := 1; ; attempt++ {
		if !k.cfg.Joined() {
			attempt = 1
		}
		if _, ok := k.Key(); ok {
			return true
		}
		k.checkFile()
		if _, ok := k.Key(); ok {
			return true
		}
		k.attempt(ctx, attempt)
		if _, ok := k.Key(); ok {
			return true
		}
		if !sleep(ctx, k.cfg.Interval) {
			return false
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// attempt asks all relays once, and generates a key if that is this relay's task.
func (k *Keeper) attempt(ctx context.Context, number int) {
	k.metrics.attempts.Inc()
	v := k.view() // read again: the oldest relay may be gone
	before := 0
	for before < len(v.others) && older(v.others[before], membership.Member{ID: k.cfg.ID, Epoch: k.cfg.Epoch}) < 0 {
		before++
	}
	replies := k.ask(ctx, v.others[:before])
	found := k.learn(replies)
	if !found {
		rest := k.ask(ctx, v.others[before:])
		found = k.learn(rest)
		replies = append(replies, rest...)
	}
	if found || ctx.Err() != nil {
		return
	}

	same := k.lastView == v.String()
	k.lastView = v.String()
	last := number >= k.cfg.Attempts
	blocked := k.blocked(v, replies)
	if blocked == nil && !same && !last {
		blocked = errors.New("it is the oldest relay and generates it, once it sees the same relays twice")
	}
	switch {
	case blocked == nil:
		k.generate(sourceGenerated)
	case !last, !v.joined:
		// A relay that never joined has never served. Its own key would be older than the fleet's
		// key when it does join, and would replace that.
		k.explain("attempt %d of %d: %v", number, k.cfg.Attempts, blocked)
	case k.cfg.Role == identity.RoleGate:
		k.explain("attempt %d: %v", number, blocked)
		if number == k.cfg.Attempts {
			k.cfg.Logger.Error("no relay gave this gate the shared key; it cannot verify session cookies and keeps asking: check that the relays run and that it may reach their peer addresses, or set "+settings+" on all relays and gates",
				"attempts", number, "last", blocked)
		}
	default:
		k.generate(sourceFallback)
		key, _ := k.Key()
		k.cfg.Logger.Error("no relay gave the shared key; this relay signs with its own key, and other relays may refuse its sessions until they have contact: check that relays reach each other's peer addresses, or set "+settings+" on all relays",
			"attempts", number, "fingerprint", key, "last", blocked)
	}
}

// blocked returns why this relay must not generate a key now.
func (k *Keeper) blocked(v view, replies []reply) error {
	if !v.joined {
		return errors.New("waiting to join the cluster")
	}
	staying := v.staying()
	leads := k.cfg.Role == identity.RoleRelay &&
		(len(staying) == 0 || older(membership.Member{ID: k.cfg.ID, Epoch: k.cfg.Epoch}, staying[0]) < 0)
	for _, r := range replies {
		if r.member.Leaving || errors.Is(r.err, ErrNoKey) {
			continue
		}
		return fmt.Errorf("%s, which may have it, did not answer: %w", r.member.ID, r.err)
	}
	switch {
	case v.degraded:
		return errors.New("this relay seems to be cut off from the cluster")
	case !leads && len(staying) == 0:
		return errors.New("there is no relay to ask")
	case !leads:
		return fmt.Errorf("%s is the oldest relay and generates it; it has none yet", staying[0].ID)
	}
	return nil
}

// generate generates a key of 32 random bytes with the stamp of this instance.
func (k *Keeper) generate(source Source) {
	material := make([]byte, minSecret)
	_, _ = rand.Read(material) // never fails
	now := k.now()
	k.publish(k.ring.Load().use(newKey(material, k.cfg.ID, k.cfg.Epoch), source, now, now.Add(k.cfg.Retire)))
}
