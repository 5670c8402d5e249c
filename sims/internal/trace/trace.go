package trace

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"
)

const (
	// maxRows bounds the measurements of a file: far more than a p99 needs.
	maxRows = 1_000_000
	// maxLine bounds a line in bytes. The longest line of a request log has about 100 KiB.
	maxLine = 1 << 20
	// longest is the longest service time, and longestTrace the time between the first and
	// the last arrival.
	longest      = time.Hour
	longestTrace = 366 * 24 * time.Hour
)

// Trace holds the measurements of a file.
type Trace struct {
	// Service lists service times, in the order of the file.
	Service []time.Duration
	// Gaps lists the times between consecutive arrivals as multiples of their mean, which is
	// 1; nil if the file has no arrivals.
	Gaps []float64
	// Skipped counts the lines of a request log that are no measurement of a worker.
	Skipped int
}

// Config specifies what to read.
type Config struct {
	// Service takes only the lines of this service from a request log; empty takes all. CSV
	// has no services.
	Service string
}

// ReadFile reads a file; see [Read].
func ReadFile(path string, cfg Config) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := Read(f, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Read reads service times and arrivals. A file that begins with { is a request log, any other
// file is CSV.
func Read(r io.Reader, cfg Config) (*Trace, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	first, err := in.Peek(1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	rows := &rows{}
	if bytes.HasPrefix(first, []byte("{")) {
		err = rows.readLog(in, cfg.Service)
	} else {
		err = rows.readCSV(in)
	}
	if err != nil {
		return nil, err
	}
	return rows.trace()
}

// Mean returns the mean service time.
func (t *Trace) Mean() time.Duration {
	sum := 0.0
	for _, s := range t.Service {
		sum += float64(s)
	}
	return time.Duration(sum / float64(len(t.Service)))
}

// Scaled returns the service times with another mean: their shape alone.
func (t *Trace) Scaled(mean time.Duration) []time.Duration {
	out, factor := make([]time.Duration, len(t.Service)), float64(mean)/float64(t.Mean())
	for i, s := range t.Service {
		out[i] = time.Duration(float64(s) * factor)
	}
	return out
}

// rows collects measurements.
type rows struct {
	service  []time.Duration
	arrivals []time.Duration // since any one moment, in any order
	skipped  int
}

// add adds a row. arrival is nil in a file without arrivals.
func (r *rows) add(service time.Duration, arrival *time.Duration) error {
	switch {
	case len(r.service) == maxRows:
		return fmt.Errorf("more than %d rows: a part of the file is enough, such as that of head -n %d", maxRows, maxRows)
	case service <= 0 || service > longest:
		return fmt.Errorf("a service time of %v: allowed are more than 0 to %v", service, longest)
	}
	r.service = append(r.service, service)
	if arrival != nil {
		r.arrivals = append(r.arrivals, *arrival)
	}
	return nil
}

func (r *rows) trace() (*Trace, error) {
	t := &Trace{Service: r.service, Skipped: r.skipped}
	if len(t.Service) == 0 {
		return nil, fmt.Errorf("no service times in %d lines: see docs/concepts/simulation.md for the two formats", r.skipped)
	}
	if len(r.arrivals) < 2 {
		return t, nil
	}
	slices.Sort(r.arrivals) // the lines of a log are in the order of the ends
	span := r.arrivals[len(r.arrivals)-1] - r.arrivals[0]
	if span <= 0 || span > longestTrace {
		return nil, fmt.Errorf("all arrivals are within %v: allowed are more than 0 to %v", span, longestTrace)
	}
	mean := float64(span) / float64(len(r.arrivals)-1)
	for i := 1; i < len(r.arrivals); i++ {
		t.Gaps = append(t.Gaps, float64(r.arrivals[i]-r.arrivals[i-1])/mean)
	}
	return t, nil
}

// duration converts a number in a unit, and refuses what no duration can be.
func duration(v float64, unit time.Duration) (time.Duration, bool) {
	ns := v * float64(unit)
	if math.IsNaN(ns) || math.Abs(ns) > float64(math.MaxInt64/2) {
		return 0, false
	}
	return time.Duration(math.Round(ns)), true
}
