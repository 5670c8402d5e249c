// Package loglimit limits log lines that a large fleet can cause by the hundred to a few
// per second.
package loglimit

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Lines is how many lines per second a Limiter writes before it only counts.
const Lines = 10

// Limiter writes at most Lines lines per second, whatever their text. At the end of a
// second with suppressed lines it writes one line per message: with their number, or the line
// itself if it is the only one. All methods are safe for concurrent use.
type Limiter struct {
	logger *slog.Logger

	mu       sync.Mutex
	written  int
	left     []*leftOut  // in the order of their first suppressed line
	held     []*gathered // by Gather, in the order of their first line
	window   *time.Timer // after which the held lines are written; nil if there are none
	gathered time.Time   // when Gather or its window wrote last
	second   *time.Timer // ends the second that the first line began; nil if no second is running
	stopped  bool
}

// leftOut counts the suppressed lines of one message.
type leftOut struct {
	level   slog.Level
	message string
	args    []any // of the first
	count   int
}

// gathered are the lines of one message about several subjects in one second.
type gathered struct {
	level    slog.Level
	message  string
	args     []any // of the first
	subjects []string
	count    int
}

const (
	// window is how long Gather holds lines, and quiet the time without lines after which the
	// next is not held: a member that watches many others, one after the other, takes half a
	// minute to notice that they have failed together.
	window = 10 * time.Second
	quiet  = 30 * time.Second
)

// mostSubjects limits the subjects that one line names.
const mostSubjects = 8

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
	l.left = append(l.left, &leftOut{level, message, args, 1})
}

// Gather writes a line about a subject, and gathers those that follow within half a minute:
// every ten seconds all subjects of the same message are one line, because what fails together
// has one cause. A line about a single subject has its own args. Levels and messages must be
// as few as those of Log.
func (l *Limiter) Gather(level slog.Level, message, subject string, args ...any) {
	if !l.logger.Enabled(context.Background(), level) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	if l.window == nil {
		if time.Since(l.gathered) >= quiet {
			l.gathered = time.Now()
			l.logger.Log(context.Background(), level, message, args...)
			return
		}
		l.window = time.AfterFunc(window, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.writeHeld()
		})
	}
	i := slices.IndexFunc(l.held, func(g *gathered) bool { return g.level == level && g.message == message })
	if i < 0 {
		i = len(l.held)
		l.held = append(l.held, &gathered{level: level, message: message, args: args})
	}
	g := l.held[i]
	g.count++
	if len(g.subjects) < mostSubjects {
		g.subjects = append(g.subjects, subject)
	}
}

// write writes the line of all subjects.
func (g *gathered) write(logger *slog.Logger) {
	if g.count == 1 {
		logger.Log(context.Background(), g.level, g.message, g.args...)
		return
	}
	names := strings.Join(g.subjects, " ")
	if more := g.count - len(g.subjects); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	logger.Log(context.Background(), g.level, g.message+": several", "count", g.count, "subjects", names)
}

// end writes the numbers of suppressed lines and starts over.
func (l *Limiter) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
}

func (l *Limiter) writeHeld() {
	for _, one := range l.held {
		one.write(l.logger)
	}
	l.held, l.window, l.gathered = nil, nil, time.Now()
}

func (l *Limiter) flush() {
	for _, one := range l.left {
		if one.count == 1 { // as long as a line about it, and contains more
			l.logger.Log(context.Background(), one.level, one.message, one.args...)
			continue
		}
		l.logger.Log(context.Background(), one.level, one.message+": more of them in this second", "count", one.count)
	}
	l.written, l.left, l.second = 0, nil, nil
}

// Stop writes the held lines and the numbers of suppressed ones. Later lines are dropped.
func (l *Limiter) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.second != nil {
		l.second.Stop()
	}
	l.flush()
	if l.window != nil {
		l.window.Stop()
		l.writeHeld()
	}
	l.stopped = true
}
