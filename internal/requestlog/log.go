package requestlog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/publish"
)

const (
	// queueBytes is how much waits for the writer: thousands of records, a second of a busy
	// relay.
	queueBytes = 4 << 20
	// flushBytes is how much is written immediately, flushDelay how long less may wait. A
	// write for every record would cost a busy relay a tenth of a processor.
	flushBytes = 64 << 10
	flushDelay = 100 * time.Millisecond
	// lastWrite is how long Close and Reopen wait for a file that does not take the rest.
	lastWrite = 5 * time.Second
)

// Stdout is the name of the file that stands for standard output.
const Stdout = "-"

// Config describes a Log.
type Config struct {
	// File gets the lines; Stdout is standard output. Default: records only reach taps.
	File string
	// Logger reports when the file cannot be written, and when it can be written again.
	// Required.
	Logger *slog.Logger
	// Registerer takes the metrics. Required.
	Registerer prometheus.Registerer
}

// The reasons of dropped records.
const (
	dropFull    = "queue_full"
	dropWrite   = "write_failed"
	dropStopped = "stopped"
	dropTap     = "tap_slow"
)

// Log takes records. Its methods are safe for concurrent use; Start, Reopen and Close are
// called by the owner.
type Log struct {
	cfg     Config
	ids     *IDs
	scratch sync.Pool // of *[]byte, to encode
	taps    atomic.Pointer[[]*Tap]
	tapping sync.Mutex // held while taps are added or removed
	slowest slowest

	written prometheus.Counter
	dropped map[string]prometheus.Counter // by reason
	reopens map[bool]prometheus.Counter   // by success

	mu      sync.Mutex
	waiting []byte // whole lines
	lines   int
	stopped bool // nothing takes the lines: the writer has not started or has ended

	wake    chan struct{} // there are lines
	full    chan struct{} // there are flushBytes
	reopen  chan chan error
	closing chan struct{}
	done    chan struct{} // closed when the writer has ended
	started atomic.Bool   // there is a writer
	open    func(path string) (io.WriteCloser, error)
}

// New returns a Log. It checks the file and creates nothing.
func New(cfg Config) (*Log, error) {
	if err := CheckFile(cfg.File); err != nil {
		return nil, err
	}
	factory := metric.With(cfg.Registerer)
	dropped := factory.CounterVec("ringway_relay_request_log_dropped_total", "Records of requests that were dropped: queue_full (the file is slower than the requests), write_failed (a full disk, for example), stopped (the relay had closed the file), tap_slow (a reader of relay tap was too slow; the file has the record nevertheless).", "reason")
	reopens := factory.CounterVec("ringway_relay_request_log_reopens_total", "Attempts to open the file of --request-log again, by a signal or a reload: ok, or failed (the relay goes on with the file that it has).", "result")
	l := &Log{
		cfg: cfg, ids: NewIDs(), stopped: true,
		scratch: sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }},
		written: factory.Counter("ringway_relay_request_log_records_total", "Records of requests that were written to the file of --request-log."),
		dropped: map[string]prometheus.Counter{},
		reopens: map[bool]prometheus.Counter{true: reopens.WithLabelValues("ok"), false: reopens.WithLabelValues("failed")},
		wake:    make(chan struct{}, 1), full: make(chan struct{}, 1),
		reopen: make(chan chan error, 1), closing: make(chan struct{}), done: make(chan struct{}), open: openFile,
	}
	l.slowest.floor.Store(-1)
	for _, reason := range []string{dropFull, dropWrite, dropStopped, dropTap} {
		l.dropped[reason] = dropped.WithLabelValues(reason)
	}
	return l, nil
}

// Writes reports whether there is a file. A nil Log has none.
func (l *Log) Writes() bool { return l != nil && l.cfg.File != "" }

// Wants reports whether a request of this service needs a record: there is a file, or a
// tap of the service. Without either it costs one atomic load.
func (l *Log) Wants(service string) bool {
	return l != nil && (l.cfg.File != "" || l.Tapped(service))
}

// IDs returns the source of the IDs that this relay makes.
func (l *Log) IDs() *IDs { return l.ids }

// Add passes a record to the taps whose filter it matches and, if it is kept, to the file.
// It does not keep r.
func (l *Log) Add(r *Record, kept bool) {
	if !kept || l.cfg.File == "" {
		l.offer(r, nil)
		return
	}
	scratch := l.scratch.Get().(*[]byte)
	line := Append((*scratch)[:0], r)
	l.enqueue(line)
	l.offer(r, line)
	*scratch = line
	l.scratch.Put(scratch)
}

// enqueue copies a line to the queue.
func (l *Log) enqueue(line []byte) {
	l.mu.Lock()
	switch {
	case l.stopped:
		l.mu.Unlock()
		l.dropped[dropStopped].Inc()
		return
	case len(l.waiting)+len(line) > queueBytes:
		l.mu.Unlock()
		l.dropped[dropFull].Inc()
		return
	}
	before := len(l.waiting)
	l.waiting = append(l.waiting, line...)
	l.lines++
	after := len(l.waiting)
	l.mu.Unlock()
	if before == 0 {
		publish.Notify(l.wake)
	}
	if before < flushBytes && after >= flushBytes {
		publish.Notify(l.full)
	}
}

// take exchanges the waiting lines for an empty buffer.
func (l *Log) take(empty []byte) (lines []byte, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, n = l.waiting, l.lines
	l.waiting, l.lines = empty[:0], 0
	return lines, n
}

// Start opens the file and starts the writer. Without a file it does nothing.
func (l *Log) Start() error {
	if l.cfg.File == "" {
		return nil
	}
	out, err := l.open(l.cfg.File)
	if err != nil {
		return err
	}
	l.started.Store(true)
	l.mu.Lock()
	l.stopped = false
	l.mu.Unlock()
	go l.write(&output{log: l, file: out})
	return nil
}

// write writes lines until Close.
func (l *Log) write(out *output) {
	defer close(l.done)
	delay := time.NewTimer(flushDelay)
	defer delay.Stop()
	window := time.NewTicker(slowWindow)
	defer window.Stop()
	var spare []byte
	flush := func() {
		lines, n := l.take(spare)
		out.write(lines, n)
		spare = lines[:0]
	}
	for {
		select {
		case <-l.wake:
			delay.Reset(flushDelay)
			select {
			case <-delay.C:
			case <-l.full:
			case <-l.closing:
			case answer := <-l.reopen:
				flush()
				l.opened(answer, out.reopen())
			}
			flush()
		case <-window.C:
			l.endWindow()
		case <-l.full: // of lines that a flush has taken already
		case answer := <-l.reopen:
			flush()
			l.opened(answer, out.reopen())
		case <-l.closing:
			l.endSlowest()
			l.mu.Lock()
			l.stopped = true
			l.mu.Unlock()
			flush()
			out.close()
			return
		}
	}
}

// opened counts and answers an attempt to open the file again.
func (l *Log) opened(answer chan<- error, err error) {
	l.reopens[err == nil].Inc()
	answer <- err
}

// ErrBusy is the error of Reopen while the file takes nothing.
var ErrBusy = errors.New("the file does not take the waiting lines: it is opened again as soon as it has")

// Reopen opens the file by its name again, after what was waiting is written to the old
// one, and returns when the new file is in use. A rotation renames the file and then calls
// Reopen. If the file cannot be opened, the old one stays in use. If it takes nothing for five seconds,
// Reopen returns ErrBusy, and the file is opened again later. Standard output is not reopened.
func (l *Log) Reopen() error {
	if !l.started.Load() || l.cfg.File == Stdout {
		return nil
	}
	answer := make(chan error, 1)
	limit := time.NewTimer(lastWrite)
	defer limit.Stop()
	err := ErrBusy
	select {
	case l.reopen <- answer:
		select {
		case err = <-answer:
		case <-l.done:
			return nil
		case <-limit.C:
		}
	default: // one that waits opens what has the name then
	}
	if err != nil {
		return fmt.Errorf("reopen the request log: %w", err)
	}
	return nil
}

// Close writes what is waiting and closes the file. It waits for at most five seconds for
// a file that takes nothing, such as a pipe that is not read. It may be called more than
// once, by one goroutine.
func (l *Log) Close() error {
	if !l.started.Load() {
		return nil
	}
	select {
	case <-l.closing:
	default:
		close(l.closing)
	}
	limit := time.NewTimer(lastWrite)
	defer limit.Stop()
	select {
	case <-l.done:
		return nil
	case <-limit.C:
		return fmt.Errorf("close the request log %s: it takes no lines", l.cfg.File)
	}
}
