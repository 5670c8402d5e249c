package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/ringway/ringway/internal/settings"
)

// LogLevelSetting is the setting that every daemon can apply without a restart.
const LogLevelSetting = "log-level"

// Running holds the settings of a running process: the values in effect, and how to read
// them again. The values in effect are those of the start, changed by every accepted reload
// as far as a reload can change them.
//
//	Read ──► what would change ──► the daemon applies it ──► Accept
//	  └─ invalid: nothing changes         └─ it refuses: nothing changes
//
// Before Accept the daemon can Withhold changes that it cannot put into effect.
//
// The methods may be called from any goroutine. The variables that the settings fill may be
// used by one reload at a time, from Read to Accept.
type Running struct {
	cfg RunningConfig

	mu      sync.Mutex
	current []settings.Value
	pending []settings.Value // of the last Read, as they would be in effect
}

// RunningConfig describes a Running. Set and Load are required.
type RunningConfig struct {
	// Set has the declared settings, and Load fills their variables from flags, environment
	// and file.
	Set  *settings.Set
	Load func() error
	// Level is the level of the log; nil: the level does not change.
	Level *slog.LevelVar
}

// NewRunning returns the Running of a process whose settings were just loaded.
func NewRunning(cfg RunningConfig) *Running {
	return &Running{cfg: cfg, current: cfg.Set.Values()}
}

// Read reads the settings again. It returns those that have changed and are neither
// declared as reloadable nor the log level: they take effect at the next start. Only Accept
// changes the values in effect.
func (r *Running) Read() (needRestart []settings.Change, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = nil
	if err := r.cfg.Load(); err != nil {
		return nil, err
	}
	applicable := r.cfg.Set.Reloadable()
	if r.cfg.Level != nil {
		applicable = append(applicable, LogLevelSetting)
	}
	r.pending = r.cfg.Set.Values()
	return r.withhold(func(c settings.Change) bool { return !slices.Contains(applicable, c.Name) }), nil
}

// Withhold returns the matching changes of the last Read. They are not in effect: Accept leaves them
// out, and the next Read finds them again.
func (r *Running) Withhold(match func(settings.Change) bool) []settings.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.withhold(match)
}

func (r *Running) withhold(match func(settings.Change) bool) []settings.Change {
	withheld := []settings.Change{}
	for _, c := range settings.Diff(r.current, r.pending) {
		if !match(c) {
			continue
		}
		withheld = append(withheld, c)
		i := slices.IndexFunc(r.pending, func(v settings.Value) bool { return v.Name == c.Name })
		r.pending[i] = r.current[i] // both are from the same Set, so the indexes match
	}
	return withheld
}

// Accept marks the applicable changes of the last Read as in effect and returns them. It
// also sets the log level.
func (r *Running) Accept() []settings.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == nil {
		return []settings.Change{}
	}
	applied := settings.Diff(r.current, r.pending)
	r.current, r.pending = r.pending, nil
	for _, v := range r.current {
		if v.Name == LogLevelSetting && r.cfg.Level != nil {
			if level, err := ParseLevel(v.Value); err == nil { // always, unless log-level was not declared as a level
				r.cfg.Level.Set(level)
			}
		}
	}
	return applied
}

// Values returns the settings in effect, secrets redacted, in the order of their
// declaration.
func (r *Running) Values() []settings.Value {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.current)
}

// Names returns the names of the changed settings.
func Names(changes []settings.Change) []string {
	out := make([]string, len(changes))
	for i, c := range changes {
		out[i] = c.Name
	}
	return out
}

// Banner is the first output of a daemon: its name, its addresses and its security.
type Banner struct {
	// Title is the first line and the log message, for example "relay v1.2.3".
	Title string
	// Rows are shown in this order; the keys name them in the log line. Rows with an empty
	// value are omitted.
	Rows []slog.Attr
}

// Show writes the banner as a table to w if [NewLogger] would write text for people, and
// otherwise as one info line to logger. Level and format are those of the log, so a quiet
// log has no banner.
func (b Banner) Show(w io.Writer, logger *slog.Logger, format string) error {
	if !logger.Enabled(context.Background(), slog.LevelInfo) {
		return nil
	}
	if !humanReadable(w, format) {
		logger.LogAttrs(context.Background(), slog.LevelInfo, b.Title, b.rows()...)
		return nil
	}
	_, err := b.WriteTo(w)
	return err
}

// WriteTo writes the banner as a table, in one Write.
func (b Banner) WriteTo(w io.Writer) (int64, error) {
	rows := b.rows()
	width := 0
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row.Key))
	}
	var text strings.Builder
	text.WriteString(b.Title + "\n\n")
	for _, row := range rows {
		fmt.Fprintf(&text, "  %*s  %s\n", width, row.Key, row.Value)
	}
	text.WriteString("\n")
	n, err := io.WriteString(w, text.String())
	if err != nil {
		err = fmt.Errorf("write the start banner: %w", err)
	}
	return int64(n), err
}

func (b Banner) rows() []slog.Attr {
	var rows []slog.Attr
	for _, row := range b.Rows {
		if row.Value.Resolve().String() != "" {
			rows = append(rows, row)
		}
	}
	return rows
}
