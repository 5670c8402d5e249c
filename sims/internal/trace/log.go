package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// logLine has the fields of a line of the request log that measure a worker.
type logLine struct {
	Timestamp *time.Time `json:"timestamp"`
	Service   string     `json:"ringway.service"`
	Transport string     `json:"network.transport"`
	Tunnel    bool       `json:"ringway.tunnel"`
	Sampled   *bool      `json:"ringway.sampled"`
	Attempts  []struct {
		ChosenBy string  `json:"chosen_by"`
		Status   int     `json:"status"`
		Failure  string  `json:"failure"`
		Connect  float64 `json:"connect_ms"`
		Duration float64 `json:"duration_ms"`
	} `json:"ringway.attempts"`
}

// readLog reads the lines of a request log. It skips lines outside of the sample, because these
// are kept for a reason such as their slowness; sessions and tunnels, which last as long as the
// client wants; requests that another relay carried, which its log has; and requests without an
// answer of a worker below 500.
func (r *rows) readLog(in *bufio.Reader, service string) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	number := 0
	for lines.Scan() {
		number++
		if len(lines.Bytes()) == 0 {
			continue
		}
		var l logLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("line %d is no line of a request log: %w", number, err)
		}
		if l.Timestamp == nil || l.Sampled == nil {
			return fmt.Errorf("line %d is no line of a request log: it has no timestamp or no ringway.sampled", number)
		}
		n := len(l.Attempts)
		if !*l.Sampled || l.Transport != "" || l.Tunnel || n == 0 || service != "" && l.Service != service {
			r.skipped++
			continue
		}
		last := l.Attempts[n-1]
		if last.ChosenBy == "relay_pool" || last.Failure != "" || last.Status == 0 || last.Status >= 500 {
			r.skipped++
			continue
		}
		took, ok := duration(last.Duration-last.Connect, time.Millisecond)
		if !ok {
			return fmt.Errorf("line %d: an attempt of %v ms", number, last.Duration)
		}
		arrival := l.Timestamp.Sub(time.Unix(0, 0))
		// The log has microseconds, so the fastest answers have the time 0.
		if err := r.add(max(took, time.Microsecond), &arrival); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return tooLong(number + 1)
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(r.service) == 0 && service != "" {
		return fmt.Errorf("no line of the service %q measures a worker: %d lines were skipped", service, r.skipped)
	}
	return nil
}
