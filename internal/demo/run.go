package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/process"
)

const (
	// readyTimeout is far more than a fleet needs, also on a busy machine. After it the demo
	// ends with an error that names what is missing.
	readyTimeout = 5 * time.Minute
	// wholeTimeout limits the wait for the last replaced worker at the end, which a busy machine
	// prolongs. A second Ctrl-C ends it.
	wholeTimeout = 30 * time.Second
	// frameInterval is the time between two frames, and the window of the rates.
	frameInterval = time.Second
)

// Config describes a demo.
type Config struct {
	Settings
	// Stdout gets the table, or the report; Stderr all other output. Required.
	Stdout, Stderr io.Writer
	// Terminal is the terminal behind Stdout, on which a table can be redrawn in place; nil:
	// there is none.
	Terminal *os.File
}

// demo is one run.
type demo struct {
	cfg      Config
	workers  []string
	fleet    *demoFleet
	observer *observer
	load     *load
	display  display
	progress io.Writer
	muted    mutedOutput
	ring     *logRing // nil unless a table occupies the screen
	events   chan event
	killed   map[string]time.Time // when each worker was killed for the last time; see showEvent
}

// event is a kill or a replacement of a worker.
type event struct {
	at     time.Time
	worker string
	killed bool
}

func (e event) String() string {
	what := " replaced "
	if e.killed {
		what = " killed "
	}
	return e.at.Format(time.TimeOnly) + what + e.worker
}

// Run runs a demo until ctx or cfg.For ends, prints the report, and returns when nothing of
// the fleet is left. It returns an error if a request failed or none was sent.
func Run(ctx context.Context, cfg Config) error { return newDemo(cfg).play(ctx) }

func newDemo(cfg Config) *demo {
	d := &demo{cfg: cfg, progress: cfg.Stdout, events: make(chan event, 16), killed: map[string]time.Time{}}
	if cfg.Output == outputJSON {
		d.progress = cfg.Stderr
	}
	d.muted.out, d.display = cfg.Stderr, lineDisplay{d.progress}
	if cfg.Terminal != nil {
		d.ring = &logRing{}
		d.muted.out, d.display = d.ring, newTableDisplay(cfg.Stdout, cfg.Terminal)
	}
	for place := range cfg.Workers {
		d.workers = append(d.workers, workerID(place))
	}
	return d
}

// play is Run.
func (d *demo) play(ctx context.Context) (err error) {
	cfg := d.cfg
	if d.ring != nil {
		defer func() { err = errors.Join(err, d.ring.dump(cfg.Stderr)) }()
	}
	logger, err := process.NewLogger(&d.muted, "warn", "console")
	if err != nil {
		return err
	}
	began := time.Now()
	if d.fleet, err = startFleet(fleetConfig{Relays: cfg.Relays, Workers: cfg.Workers, Seed: uint64(cfg.Seed), Logger: logger}); err != nil {
		return err
	}
	d.observer = newObserver(d.fleet.addresses())
	defer d.observer.close()
	seen, views, runErr := d.run(ctx, began)
	d.muted.on.Store(true)
	stopErr := d.fleet.Stop()
	if runErr != nil || views == nil { // or ended before it was ready
		return errors.Join(runErr, stopErr)
	}
	return errors.Join(d.finish(newReport(d.workers, seen, views), seen.Failures, ctx.Err() != nil), stopErr)
}

// run waits until the fleet is ready, runs the load, and returns the final state.
func (d *demo) run(ctx context.Context, began time.Time) (counts, []relayView, error) {
	waiting, cancel := context.WithTimeout(ctx, readyTimeout)
	_, err := d.observer.await(waiting, d.cfg.Workers, func(lack string) { _, _ = fmt.Fprintln(d.cfg.Stderr, "not ready yet:", lack) })
	cancel()
	if ctx.Err() != nil {
		return counts{}, nil, nil
	}
	if err != nil {
		return counts{}, nil, fmt.Errorf("not ready after %s: %w", readyTimeout, err)
	}
	if _, err := fmt.Fprintf(d.progress, "ready in %.1fs (relays: %d, workers: %d)\nstatus page of %s: %s/\n",
		time.Since(began).Seconds(), d.cfg.Relays, d.cfg.Workers, d.observer.relays[0].ID, d.observer.relays[0].Admin); err != nil {
		return counts{}, nil, err
	}
	err = d.underLoad(ctx)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), wholeTimeout)
	defer cancel()
	views, lack := d.observer.await(ending, d.cfg.Workers, func(lack string) { _, _ = fmt.Fprintln(d.cfg.Stderr, "not whole yet:", lack) })
	if lack != nil { // the report will show it, too
		_, noteErr := fmt.Fprintln(d.cfg.Stderr, "note:", lack)
		err = errors.Join(err, noteErr)
	}
	return d.load.totals(), views, err
}

// underLoad sends requests and kills workers until the time is over. When it returns, all
// goroutines it started have ended, and the fleet is complete.
func (d *demo) underLoad(ctx context.Context) error {
	var targets []string
	for _, r := range d.observer.relays {
		targets = append(targets, r.Ingress)
	}
	d.load = newLoad(loadConfig{Targets: targets, Rate: d.cfg.Rate, Seed: uint64(d.cfg.Seed)})
	if d.cfg.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.cfg.For)
		defer cancel()
	}
	killing, spare := context.WithCancel(ctx)
	defer spare()
	sending, hush := context.WithCancel(ctx)
	defer hush()

	var killed, sent sync.WaitGroup
	var killErr error
	k := &killer{every: d.cfg.KillEvery, seed: uint64(d.cfg.Seed), places: d.cfg.Workers, fleet: d.fleet, logEvent: d.logEvent}
	killed.Go(func() {
		if killErr = k.run(killing); killErr != nil {
			hush() // the fleet will stop now
		}
	})
	sent.Go(func() { d.load.run(sending) })
	showErr := d.watch(sending)
	spare()
	killed.Wait()
	hush()
	sent.Wait()
	for showErr == nil && len(d.events) > 0 { // the last worker was replaced since
		showErr = d.showEvent(<-d.events)
	}
	return errors.Join(killErr, showErr)
}

// logEvent passes an event to the display. The event is dropped if the display is busy.
func (d *demo) logEvent(e event) {
	e.at = time.Now()
	select {
	case d.events <- e:
	default:
	}
}

// watch shows a frame at every interval until ctx ends.
func (d *demo) watch(ctx context.Context) error {
	began := time.Now()
	tick := time.NewTicker(frameInterval)
	defer tick.Stop()
	for {
		select {
		case e := <-d.events:
			if err := d.showEvent(e); err != nil {
				return err
			}
		case <-tick.C:
			views := d.observer.observe(context.WithoutCancel(ctx)) // observe has its own timeout
			if err := d.display.show(d.frame(time.Since(began), views)); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *demo) showEvent(e event) error {
	if e.killed {
		d.killed[e.worker] = e.at
	}
	return d.display.event(e.String())
}

func (d *demo) frame(elapsed time.Duration, views []relayView) frame {
	w, total := d.load.snapshot(), d.load.totals()
	f := frame{
		Elapsed: elapsed, Requests: total.Requests, Errors: total.Errors, P50: w.P50, P99: w.P99,
		Rows: newRows(d.workers, w, views),
	}
	if w.Seconds > 0 {
		f.PerSecond = float64(w.Requests) / w.Seconds
	}
	for i := range f.Rows {
		if r := &f.Rows[i]; time.Since(d.killed[r.Worker]) < killedFor {
			r.State = killedState(r.State, d.killed[r.Worker])
		}
	}
	for i, v := range views {
		f.Retries += v.Retries
		f.Relays = append(f.Relays, relayRow{d.observer.relays[i], v.connected(), v.Silent != nil})
	}
	return f
}

// finish prints the report and returns the final error.
func (d *demo) finish(r report, failures []string, interrupted bool) error {
	for _, f := range failures {
		if _, err := fmt.Fprintln(d.cfg.Stderr, "failed:", f); err != nil {
			return err
		}
	}
	write := r.writeText
	if d.cfg.Output == outputJSON {
		write = r.writeJSON
	}
	verdict := r.check()
	if interrupted && verdict != nil {
		// Operators end a demo with Ctrl-C, and make would report a non-zero exit code as
		// an error.
		_, noteErr := fmt.Fprintln(d.cfg.Stderr, "note:", verdict)
		verdict = noteErr
	}
	return errors.Join(write(d.cfg.Stdout), verdict)
}

// replaceAfter is the time until a killed worker is replaced: long enough for the relays to
// notice.
const replaceAfter = 700 * time.Millisecond

// killer kills a random worker at regular intervals and replaces it.
type killer struct {
	// every is the time between kills.
	every time.Duration
	// seed determines the killed workers.
	seed uint64
	// places is the number of workers.
	places int
	fleet  *demoFleet
	// logEvent is called with each kill and each replacement.
	logEvent func(event)
}

// run kills workers until ctx ends. Before it returns it replaces the last one, so that the
// fleet is complete.
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
		k.logEvent(event{worker: workerID(place), killed: true})
		if err := k.fleet.Kill(workerID(place)); err != nil {
			return err
		}
		loadgen.Sleep(ctx, replaceAfter)
		if err := k.fleet.start(place); err != nil {
			return fmt.Errorf("replace a killed worker: %w", err)
		}
		k.logEvent(event{worker: workerID(place)})
	}
}
