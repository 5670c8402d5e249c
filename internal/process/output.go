package process

import (
	"bytes"
	"io"
	"log/slog"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/publish"
)

const (
	// outputQueue is how many bytes wait for an output that is slow: thousands of lines.
	outputQueue = 1 << 20
	// lastLines is how long Close waits for an output that does not take the rest. An
	// operator who stops a process waits as well.
	lastLines = time.Second
)

// The reasons of lost lines.
const (
	lostFull  = "queue_full"
	lostWrite = "write_failed"
)

// Output passes lines to the standard output or standard error of a process, which may be a
// pipe that is slow, is not read, or has lost its reader. Write never waits and never fails:
// lines wait in a bounded queue, and those that do not fit or cannot be written are lost and
// counted. A goroutine writes them, in the order of Write, until Close.
//
// Its methods are safe for concurrent use.
type Output struct {
	out    io.Writer
	lost   map[string]prometheus.Counter // by reason
	logger atomic.Pointer[slog.Logger]

	mu      sync.Mutex
	waiting []byte
	missed  int // lines lost since the last report
	closed  bool

	wake chan struct{} // capacity 1: there are lines, or Close was called
	done chan struct{} // closed when all lines are written
}

// OutputConfig configures an [Output].
type OutputConfig struct {
	// Out takes the lines. Required.
	Out io.Writer
	// Registerer takes the metrics; nil registers nowhere.
	Registerer prometheus.Registerer
}

// NewOutput returns an Output, and starts its goroutine.
func NewOutput(cfg OutputConfig) *Output {
	lost := metric.With(cfg.Registerer).CounterVec("ringway_log_lines_lost_total", "Lines of the log that were lost: queue_full (the reader of standard error is slower than the log, or does not read), write_failed (the reader has gone, or a disk is full). Requests are not affected.", "reason")
	o := &Output{out: cfg.Out, lost: map[string]prometheus.Counter{}, wake: make(chan struct{}, 1), done: make(chan struct{})}
	for _, reason := range []string{lostFull, lostWrite} {
		o.lost[reason] = lost.WithLabelValues(reason)
	}
	go o.run()
	return o
}

// ReportTo sets the logger that reports lost lines when the output takes lines again. It
// may be one that writes to this Output.
func (o *Output) ReportTo(logger *slog.Logger) { o.logger.Store(logger) }

// Write queues whole lines. It returns no error: callers can do nothing about one.
func (o *Output) Write(lines []byte) (int, error) {
	o.mu.Lock()
	fits := !o.closed && len(o.waiting)+len(lines) <= outputQueue
	if fits {
		o.waiting = append(o.waiting, lines...)
	}
	o.mu.Unlock()
	if fits {
		o.signal()
	} else {
		o.miss(lostFull, lines)
	}
	return len(lines), nil
}

func (o *Output) signal() {
	publish.Notify(o.wake)
}

func (o *Output) miss(reason string, lines []byte) {
	n := bytes.Count(lines, []byte{'\n'})
	if n == 0 && len(lines) > 0 { // a part of a screen
		n = 1
	}
	o.lost[reason].Add(float64(n))
	o.mu.Lock()
	o.missed += n
	o.mu.Unlock()
}

// run writes lines until Close.
func (o *Output) run() {
	defer close(o.done)
	var spare, cut []byte
	for range o.wake {
		o.mu.Lock()
		lines, closed := o.waiting, o.closed
		o.waiting = spare[:0]
		o.mu.Unlock()
		cut = o.pass(cut, lines)
		spare = lines
		if closed {
			return
		}
	}
}

// pass writes lines after the rest of a line that was cut. If the output takes only a part,
// pass returns the rest of the line that is cut now, so that the next line does not begin in
// its middle; the other lines are lost.
func (o *Output) pass(cut, lines []byte) (rest []byte) {
	if len(cut) > 0 {
		if n, err := o.out.Write(cut); err != nil {
			o.miss(lostWrite, lines)
			return cut[n:]
		}
	}
	if len(lines) == 0 {
		return nil
	}
	n, err := o.out.Write(lines)
	if err == nil {
		o.report()
		return nil
	}
	lost := lines[n:]
	if n > 0 && lines[n-1] != '\n' {
		end := bytes.IndexByte(lost, '\n') + 1
		rest, lost = bytes.Clone(lost[:end]), lost[end:]
	}
	o.miss(lostWrite, lost)
	return rest
}

// report logs how many lines were lost since the last report, if any.
func (o *Output) report() {
	o.mu.Lock()
	missed := o.missed
	o.missed = 0
	o.mu.Unlock()
	if logger := o.logger.Load(); missed > 0 && logger != nil {
		logger.Warn("lines of the log were lost: the output did not take them and takes lines again", "lost", missed)
	}
}

// Fd returns the file descriptor of the output, so that it is known to be a terminal, and an
// invalid one if it has none.
func (o *Output) Fd() uintptr {
	if file, ok := o.out.(interface{ Fd() uintptr }); ok {
		return file.Fd()
	}
	return ^uintptr(0)
}

// Close waits until all lines are written, at most a second, and ends the goroutine, which
// may outlive Close while the output takes nothing. Later lines are lost.
func (o *Output) Close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
	limit := time.NewTimer(lastLines)
	defer limit.Stop()
	select {
	case <-o.done:
	case <-limit.C:
	}
}

// IgnoreBrokenPipes makes a write to a standard output or standard error without a reader
// fail with an error. By default it ends a Go program, as it ends the commands of a
// pipeline, but a daemon must outlive the reader of its log.
func IgnoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }
