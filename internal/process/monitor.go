package process

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const (
	// monitorReaders limits the concurrent readers of the log, monitorLines the lines that
	// wait for one reader.
	monitorReaders = 8
	monitorLines   = 512
)

// The level without readers: above every other level.
const disabled = slog.Level(math.MaxInt32)

// Monitor lets operators read a log while it is written. Each reader has its own level,
// independent of the level of the log. Without readers, a log record below the level of the
// log costs one atomic load. A reader that is too slow loses lines and gets their number; a
// slow reader never delays the process.
//
//	logger ─► log (its level)
//	   └────► Monitor (the least level of the readers) ─► a bounded queue for each reader
//
// It is safe for concurrent use.
type Monitor struct {
	least atomic.Int64 // slog.Level; above all levels while there is no reader

	mu      sync.Mutex
	readers map[*monitorReader]struct{}
}

type monitorReader struct {
	level   slog.Level
	lines   chan []byte
	dropped atomic.Int64
}

// NewMonitor returns a Monitor without readers.
func NewMonitor() *Monitor {
	m := &Monitor{readers: map[*monitorReader]struct{}{}}
	m.least.Store(int64(disabled))
	return m
}

// Level returns the lowest level of the readers.
func (m *Monitor) Level() slog.Level { return slog.Level(m.least.Load()) }

// Tap returns a logger that writes to logger and to the readers.
func (m *Monitor) Tap(logger *slog.Logger) *slog.Logger {
	lines := &logHandler{zone: time.UTC, least: m, next: zerolog.NewSlogHandler(zerolog.New(monitorWriter{m}).Level(zerolog.DebugLevel))}
	return slog.New(tee{logger.Handler(), lines})
}

// subscribe adds a reader; it returns false at the limit of monitorReaders.
func (m *Monitor) subscribe(level slog.Level) (*monitorReader, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.readers) >= monitorReaders {
		return nil, false
	}
	r := &monitorReader{level: level, lines: make(chan []byte, monitorLines)}
	m.readers[r] = struct{}{}
	m.settle()
	return r, true
}

func (m *Monitor) unsubscribe(r *monitorReader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.readers, r)
	m.settle()
}

// settle updates the lowest level of the readers. m.mu is held.
func (m *Monitor) settle() {
	least := disabled
	for r := range m.readers {
		least = min(least, r.level)
	}
	m.least.Store(int64(least))
}

// Idle reports whether every reader has taken all lines from its queue.
func (m *Monitor) Idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r := range m.readers {
		if len(r.lines) > 0 {
			return false
		}
	}
	return true
}

// send passes a line to the readers at its level. It never blocks.
func (m *Monitor) send(level slog.Level, line []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var own []byte // a copy, because the logger reuses the buffer of the line
	for r := range m.readers {
		if level < r.level {
			continue
		}
		if own == nil {
			own = append(own, line...)
		}
		select {
		case r.lines <- own:
		default:
			r.dropped.Add(1)
		}
	}
}

// ServeHTTP streams the log as JSON lines, from the level of the query ?level= (default
// info), until the client disconnects or the server ends. If the client is too slow, a
// separate line has the number of the dropped lines.
func (m *Monitor) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name := req.URL.Query().Get("level")
	if name == "" {
		name = "info"
	}
	level, err := ParseLevel(name)
	if err != nil {
		WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	reader, ok := m.subscribe(level)
	if !ok {
		WriteError(w, http.StatusServiceUnavailable, "too many read this log already: end one of them")
		return
	}
	defer m.unsubscribe(reader)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	stream := NewStream(w, ReaderPause)
	defer stream.Close()
	send := func(line []byte) bool {
		_, err := stream.Write(line)
		return err == nil && (len(reader.lines) > 0 || stream.Flush() == nil)
	}
	w.WriteHeader(http.StatusOK)
	if stream.Flush() != nil {
		return
	}
	for {
		select {
		case line := <-reader.lines:
			if n := reader.dropped.Swap(0); n > 0 && !send(lost(n)) {
				return
			}
			if !send(line) {
				return
			}
		case <-req.Context().Done():
			return
		}
	}
}

// lost returns the line about n dropped lines.
func lost(n int64) []byte {
	var line lineBuffer
	logger := zerolog.New(&line)
	logger.Warn().Str(zerolog.TimestampFieldName, time.Now().UTC().Format(timeFormat)).Int64("lines", n).Msg("monitor: lines were dropped, because they were not read fast enough")
	return line
}

type lineBuffer []byte

func (b *lineBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// monitorWriter receives one log record of zerolog with its level.
type monitorWriter struct{ m *Monitor }

func (w monitorWriter) Write(line []byte) (int, error) {
	return w.WriteLevel(zerolog.InfoLevel, line)
}

func (w monitorWriter) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	w.m.send(slogLevel(level), line)
	return len(line), nil
}

func slogLevel(level zerolog.Level) slog.Level {
	switch {
	case level <= zerolog.DebugLevel:
		return slog.LevelDebug
	case level == zerolog.InfoLevel:
		return slog.LevelInfo
	case level == zerolog.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// tee passes log records to the log and to the monitor, each according to its level.
type tee struct{ log, monitor slog.Handler }

func (t tee) Enabled(ctx context.Context, level slog.Level) bool {
	return t.log.Enabled(ctx, level) || t.monitor.Enabled(ctx, level)
}

func (t tee) Handle(ctx context.Context, r slog.Record) error {
	if t.monitor.Enabled(ctx, r.Level) {
		_ = t.monitor.Handle(ctx, r.Clone()) // it writes to memory and cannot fail
	}
	if !t.log.Enabled(ctx, r.Level) {
		return nil
	}
	return t.log.Handle(ctx, r)
}

func (t tee) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tee{t.log.WithAttrs(attrs), t.monitor.WithAttrs(attrs)}
}

func (t tee) WithGroup(name string) slog.Handler {
	return tee{t.log.WithGroup(name), t.monitor.WithGroup(name)}
}
