package daemon

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/ringway/ringway/internal/settings"
)

// LogLevelSetting is the setting that every daemon applies while it runs.
const LogLevelSetting = "log-level"

// Running are the settings of a process while it runs: those in effect, and how to
// read them anew. The values in effect are those of the start, and of every reload
// that was accepted since, as far as a reload can change them.
//
//	Read ──► what would change ──► the daemon applies it ──► Accept
//	  └─ invalid: nothing changes         └─ it refuses: nothing changes
//
// Its methods may be called from any goroutine, but what the settings fill belongs
// to one reload at a time: from Read to Accept.
type Running struct {
	cfg RunningConfig

	mu      sync.Mutex
	current []settings.Value
	pending []settings.Value // of the last Read, as they would be in effect
}

// RunningConfig describes a Running. Set and Load are required.
type RunningConfig struct {
	// Set declares the settings, and Load fills what it declares from flags,
	// environment and file.
	Set  *settings.Set
	Load func() error
	// Level is the log's; nil: the level does not change.
	Level *slog.LevelVar
}

// NewRunning returns the running settings of a process whose settings were just
// loaded.
func NewRunning(cfg RunningConfig) *Running {
	return &Running{cfg: cfg, current: cfg.Set.Values()}
}

// Read reads the settings anew. The named ones are those that the daemon can change
// while it runs, besides the log level. It returns those others that have changed:
// they take effect at the next start. What is in effect changes only by Accept.
func (r *Running) Read(applicable ...string) (needRestart []settings.Change, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = nil
	if err := r.cfg.Load(); err != nil {
		return nil, err
	}
	if r.cfg.Level != nil {
		applicable = append(slices.Clone(applicable), LogLevelSetting)
	}
	r.pending = r.cfg.Set.Values()
	needRestart = []settings.Change{}
	for _, c := range settings.Diff(r.current, r.pending) {
		if slices.Contains(applicable, c.Name) {
			continue
		}
		needRestart = append(needRestart, c)
		i := slices.IndexFunc(r.pending, func(v settings.Value) bool { return v.Name == c.Name })
		r.pending[i] = r.current[i] // one Set: the places are the same
	}
	return needRestart, nil
}

// Accept says that what the last Read found applicable is in effect now, and returns
// it. It also sets the log level.
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
			if level, err := ParseLevel(v.Value); err == nil { // else it was not declared as a level
				r.cfg.Level.Set(level)
			}
		}
	}
	return applied
}

// Values are the settings in effect, secrets redacted, in the order of their
// declaration.
func (r *Running) Values() []settings.Value {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.current)
}

// Names lists the names of the changed settings.
func Names(changes []settings.Change) []string {
	out := make([]string, len(changes))
	for i, c := range changes {
		out[i] = c.Name
	}
	return out
}
