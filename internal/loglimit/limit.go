// Package loglimit limits log lines that a large fleet can cause by the hundred to a few
// per second.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Lines is how many lines per second a Limiter writes before it only counts.
const Lines = 10

// Limiter writes at most Lines lines per second, whatever their text. At the end of a
// second with suppressed lines it writes one line per message with their number. All
// methods are safe for concurrent use.
type Limiter struct {
	logger *slog.Logger

	mu      sync.Mutex
	written int
	left    []*leftOut  // in the order of their first suppressed line
	second  *time.Timer // ends the second that the first line began; nil if no second is running
	stopped bool
}

// leftOut counts the suppressed lines of one message.
type leftOut struct {
	level   slog.Level
	message string
	count   int
}

// New returns a Limiter that writes to logger.
func New(logger *slog.Logger) *Limiter { return &Limiter{logger: logger} }

// Log writes a line, or counts it. The set of messages must be small and fixed, because
// each suppressed message is kept until the end of the second.
func (l *Limiter) Log(level slog.Level, message string, args ...any) {
	if !l.logger.Enabled(context.Background(), level) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	if l.second == nil {
		l.second = time.AfterFunc(time.Second, l.end)
	}
	if l.written < Lines {
		l.written++
		l.logger.Log(context.Background(), level, message, args...)
		return
	}
	for _, one := range l.left {
		if one.level == level && one.message == message {
			one.count++
			return
		}
	}
	l.left = append(l.left, &leftOut{level, message, 1})
}

// end writes the numbers of suppressed lines and starts over.
func (l *Limiter) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
}

func (l *Limiter) flush() {
	for _, one := range l.left {
		l.logger.Log(context.Background(), one.level, one.message+": more of them in this second", "count", one.count)
	}
	l.written, l.left, l.second = 0, nil, nil
}

// Stop writes the numbers of suppressed lines. Later lines are dropped.
func (l *Limiter) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.second != nil {
		l.second.Stop()
	}
	l.flush()
	l.stopped = true
}
