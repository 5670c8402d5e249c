package process

import (
	"log/slog"
	"slices"
	"sync"

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
