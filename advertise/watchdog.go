package advertise

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

const (
	// restartPause is the time between a panic of the loop and its restart: a panic that repeats
	// must not occupy a processor. Until then the last view stays.
	restartPause = time.Second
	// hangAfter is how long a turn of the loop may take: those of the largest fleets take seconds.
	hangAfter = 30 * time.Second
)

// keepLooping runs the loop until ctx ends, again after each panic. Every member merges the records of
// all others, so a record that makes this build panic would otherwise end all processes together, and
// again after each restart. The turn that panicked is lost; exchanges bring its records again.
func (c *Catalogue) keepLooping(ctx context.Context) {
	for c.loopOnce(ctx) {
		select {
		case <-time.After(restartPause):
		case <-ctx.Done():
			return
		}
	}
}

// loopOnce runs the loop and reports whether it ended by a panic.
func (c *Catalogue) loopOnce(ctx context.Context) (panicked bool) {
	ctx, cancel := context.WithCancel(ctx) // ends the subscription to snapshots
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			panicked = true
			c.dirty = true
			c.metrics.restarts.Inc()
			c.logger.Error("restarted the loop that merges records after a panic, a defect of this build: report it", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	c.loop(ctx)
	return false
}

// watch logs once if a turn of the loop takes longer than hangAfter, until it turns again. Go cannot end
// a goroutine that hangs, and a second loop would write the same state: the log asks for a restart of
// the process.
func (c *Catalogue) watch(ctx context.Context) {
	check := time.NewTicker(turnInterval)
	defer check.Stop()
	logged := false
	for {
		select {
		case <-check.C:
		case <-ctx.Done():
			return
		}
		hangs := c.age() > hangAfter.Seconds()
		if hangs && !logged {
			c.logger.Error("the loop that merges records does not turn, a defect of this build: the last view stays; save a debug bundle and restart this process", "for", time.Duration(c.age()*float64(time.Second)).Round(time.Second))
		}
		logged = hangs
	}
}
