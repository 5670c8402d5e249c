package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// LogLevels are the levels that [NewLogger] takes, from most to least talkative.
func LogLevels() []string { return []string{"debug", "info", "warn", "error"} }

// LogFormats are the formats that [NewLogger] takes.
func LogFormats() []string { return []string{"auto", "json", "console", "text"} }

// NewLogger returns a logger that writes to w through zerolog: one JSON object
// per line ("json"), or lines for people ("console", also called "text",
// coloured on a terminal unless NO_COLOR is set). "auto" is "console" when w is
// a terminal and "json" otherwise. Records below level are dropped.
//
// Times are UTC with milliseconds in JSON, local in console. Durations are
// written with their unit ("1.5s"). Each record is one Write to w, and Writes
// never overlap.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	least, err := ParseLevel(level)
	if err != nil {
		return nil, err
	}
	return NewLeveledLogger(w, format, least)
}

// ParseLevel reads one of [LogLevels].
func ParseLevel(level string) (slog.Level, error) {
	least, ok := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[level]
	if !ok {
		return 0, fmt.Errorf("log level %q is unknown; allowed: %s", level, strings.Join(LogLevels(), ", "))
	}
	return least, nil
}

// NewLeveledLogger is [NewLogger] with a level that may change while it logs, such
// as a [slog.LevelVar].
func NewLeveledLogger(w io.Writer, format string, least slog.Leveler) (*slog.Logger, error) {
	switch format {
	case "auto", "json", "console", "text":
	default:
		return nil, fmt.Errorf("log format %q is unknown; allowed: %s", format, strings.Join(LogFormats(), ", "))
	}
	handler := &logHandler{zone: time.UTC, least: least}
	out := w
	if forPeople(w, format) {
		handler.zone = time.Local
		out = NewConsole(w, isTerminal(w) && os.Getenv("NO_COLOR") == "")
	}
	handler.next = zerolog.NewSlogHandler(zerolog.New(zerolog.SyncWriter(out)).Level(zerolog.DebugLevel))
	return slog.New(handler), nil
}

// forPeople reports whether the format means text for people on w.
func forPeople(w io.Writer, format string) bool {
	return format == "console" || format == "text" || format == "auto" && isTerminal(w)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}
