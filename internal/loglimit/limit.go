// Package loglimit keeps log lines that a large fleet can cause by the hundred to a few
// a second.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Lines is the most lines a second that a Limiter writes before it counts the rest.
const Lines = 10

// Limiter writes at most Lines lines a second, whatever they say, and at the end of
// such a second one line for each message that it left lines of out, with their number.
// All methods are safe for concurrent use.
type Limiter struct {
	logger *slog.Logger

	mu      sync.Mutex
	written int
	left    []*leftOut  // in the order in which they began
	second  *time.Timer // ends the second that the first line began; nil without one
	stopped bool
}

// leftOut counts the lines of one message that were not written.
type leftOut struct {
	level   slog.Level
	message string
	count   int
}

// New returns a Limiter that writes to logger.
func New(logger *slog.Logger) *Limiter { return &Limiter{logger: logger} }

// Log writes a line, or counts it. Messages are a small fixed set.
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

// end writes what was left out and lets lines through again.
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

// Stop writes what was left out. Later lines are dropped.
func (l *Limiter) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.second != nil {
		l.second.Stop()
	}
	l.flush()
	l.stopped = true
}
