package validation

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// reality holds the measurements of the fleet of processes.
type reality struct {
	observation
	errors      []error       // the first errors of failed requests
	overhead    time.Duration // median latency of requests without work
	overheadP99 time.Duration
	late        time.Duration // p99 of the delay between due time and sending
	overslept   time.Duration // median of how much too long backends slept
	inRelay     time.Duration // mean time until the relay had the head of the answer
	planned     bool          // the relays have the same plan as the model

	connections, opened int           // open connections of the whole fleet; opened after a worker's death
	noticed             time.Duration // from the death until all relays plan without the worker
}

// nullFor is the longest time for which requests without work are sent.
const nullFor = 4 * time.Second

// observeReality runs the case with processes. step is called after each of the realitySteps
// parts.
func observeReality(ctx context.Context, c Case, requests []request, victim int, step func()) (out reality, err error) {
	f, err := startFleet(ctx, c)
	if err != nil {
		return out, err
	}
	defer f.stop()
	step()
	if out.planned, err = f.plansAlike(ctx, c); err != nil {
		return out, err
	}
	const seconds, count = `ringway_relay_request_duration_seconds_sum{service="` + service + `"}`, `ringway_relay_request_duration_seconds_count{service="` + service + `"}`
	null, err := replay(ctx, withoutWork(requests, min(nullFor, c.Measured)), f.ingress())
	if err != nil {
		return out, err
	}
	var overheads []time.Duration
	for _, a := range null[len(null)/4:] { // the first quarter also opened connections
		if a.err != nil {
			return out, fmt.Errorf("a request without work failed: %w", a.err)
		}
		overheads = append(overheads, a.took)
	}
	out.overhead, out.overheadP99 = quantile(overheads, 0.5), quantile(overheads, 0.99)
	step()

	var before, after [2]float64
	scrape := func(to *[2]float64) {
		for i, name := range []string{seconds, count} {
			var scrapeErr error
			to[i], scrapeErr = f.sum(ctx, name)
			err = errors.Join(err, scrapeErr)
		}
	}
	scrape(&before)
	if err != nil {
		return out, err
	}
	answers, err := replay(ctx, requests, f.ingress())
	if err != nil {
		return out, err
	}
	scrape(&after)
	if err != nil {
		return out, err
	}
	out.inRelay = time.Duration((after[0] - before[0]) / max(1, after[1]-before[1]) * float64(time.Second))
	if out.observation, err = observe(c, requests, answers, out.overhead); err != nil {
		return out, err
	}
	var late []time.Duration
	for _, a := range answers {
		late = append(late, a.late)
		if a.err != nil && len(out.errors) < 3 {
			out.errors = append(out.errors, a.err)
		}
	}
	out.late, out.overslept = quantile(late, 0.99), quantile(lateness(f.backends), 0.5)
	step()
	err = f.death(ctx, c, victim, &out)
	step()
	return out, err
}

const realitySteps = 4

// plansAlike reports whether each relay has the same range and weights as in the model.
func (f *fleet) plansAlike(ctx context.Context, c Case) (bool, error) {
	model, err := c.topology().Plan(c.Workers)
	if err != nil {
		return false, err
	}
	real, err := f.plan(ctx, f.Relays[0])
	if err != nil {
		return false, err
	}
	for i, relay := range model.Affine() {
		assignments, err := model.Assignments(i)
		if err != nil {
			return false, err
		}
		if real.Relays[i].Relay != relay || len(real.Relays[i].Workers) != len(assignments) {
			return false, nil
		}
		for j, a := range assignments {
			if w := real.Relays[i].Workers[j]; w.Worker != a.Worker || w.Weight-a.Weight > 1e-6 || a.Weight-w.Weight > 1e-6 {
				return false, nil
			}
		}
	}
	return true, nil
}

// death kills a worker and counts the connections that the relays open.
func (f *fleet) death(ctx context.Context, c Case, victim int, out *reality) error {
	const links, opened = `ringway_peering_links{state="open"}`, `ringway_peering_events_total{event="opened"}`
	before, err := f.sum(ctx, opened)
	if err != nil {
		return err
	}
	whole, err := f.sum(ctx, links)
	if err != nil {
		return err
	}
	began := time.Now()
	f.Workers[victim].Kill()
	f.backends[victim].Die()
	err = f.Await(ctx, func() error {
		for _, r := range f.Relays {
			p, err := f.plan(ctx, r)
			if err != nil {
				return err
			}
			if n := len(p.RelaysPerWorker); n != c.Workers-1 {
				return fmt.Errorf("%s still plans with %d workers", r.ID, n)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait until a death is noticed: %w", err)
	}
	out.noticed = time.Since(began)
	// Grace is over when the relays open no more connections and every range is connected.
	lean := c
	lean.Workers--
	var last float64
	still := time.Now()
	err = f.Await(ctx, func() error {
		now, err := f.sum(ctx, opened)
		if err != nil {
			return err
		}
		if now != last {
			last, still = now, time.Now()
		}
		if time.Since(still) < 3*time.Second {
			return errors.New("relays still open connections")
		}
		return f.connected(ctx, lean)
	})
	if err != nil {
		return fmt.Errorf("wait until ranges are connected after a death: %w", err)
	}
	out.connections, out.opened = int(whole), int(last-before)
	return nil
}
