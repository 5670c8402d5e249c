package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// replaceAfter is how long a killed worker stays away: long enough to be missed.
const replaceAfter = 700 * time.Millisecond

// killer kills a random worker every so often, and replaces it.
type killer struct {
	// every is the time between deaths.
	every time.Duration
	// seed decides the victims.
	seed uint64
	// places is how many workers there are.
	places int
	fleet  *fleet
	// tell is called with each death and return.
	tell func(event string)
}

// run kills until ctx ends. Every victim is replaced before it returns, so the
// fleet is whole afterwards.
func (k *killer) run(ctx context.Context) error {
	if k.every == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(k.seed, streamVictims))
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		place := rng.IntN(k.places)
		k.tell("killed " + workerID(place))
		if err := k.fleet.kill(place); err != nil {
			return err
		}
		sleep(ctx, replaceAfter)
		if err := k.fleet.startWorker(place); err != nil {
			return fmt.Errorf("replace a killed worker: %w", err)
		}
		k.tell("replaced " + workerID(place))
	}
}
