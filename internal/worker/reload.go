package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/api"
)

// watchInterval is the interval at which the agent checks the file of services.
const watchInterval = time.Second

// Reload reads the settings and the file of services again and applies the changes, as
// SIGHUP does; it logs the result. It may be called from any goroutine.
func (a *Agent) Reload() { _, _ = a.reload() }

func (a *Agent) reload() (api.WorkerReload, error) {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	var needsRestart []string
	var err error
	services := a.configured
	if a.cfg.ReadSettings != nil {
		services, needsRestart, err = a.cfg.ReadSettings()
	}
	a.settingsRefused = err != nil
	if len(needsRestart) > 0 {
		a.cfg.Logger.Warn("settings have changed that take effect at the next start", "settings", needsRestart)
	}
	change, err := a.apply(services, err)
	change.NeedsRestart = needsRestart
	if err == nil && a.cfg.Running != nil {
		for _, c := range a.cfg.Running.Accept() {
			if c.Name != serviceSetting { // changes of services are reported separately
				change.Settings = append(change.Settings, c)
				a.cfg.Logger.Info("a setting has changed", "setting", c.Name, "from", c.From, "to", c.To)
			}
		}
	}
	return change, err
}

// watchFile applies the file of services whenever it has changed, until ctx ends. It does
// not read the settings, because an operator may be editing them.
func (a *Agent) watchFile(ctx context.Context) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			a.reloading.Lock()
			if a.file.changed() {
				_, _ = a.apply(a.configured, nil) // it logs the result
			}
			a.reloading.Unlock()
		}
	}
}

// apply offers the services of the settings, unless reading them failed, and of the file.
// It logs and counts the result. a.reloading is held.
func (a *Agent) apply(configured []Service, err error) (api.WorkerReload, error) {
	change, err := a.replace(configured, err)
	refused := 0.0
	if err != nil || a.settingsRefused { // a good file of services corrects no settings
		refused = 1
	}
	a.metrics.refused.Set(refused)
	switch {
	case err != nil:
		a.metrics.reloads.WithLabelValues(reloadRefused).Inc()
		a.cfg.Logger.Error("reload refused, nothing has changed", "err", err)
	case change.Empty():
		a.metrics.reloads.WithLabelValues(reloadUnchanged).Inc()
		a.cfg.Logger.Info("reloaded: no service has changed")
	default:
		a.metrics.reloads.WithLabelValues(reloadApplied).Inc()
		a.cfg.Logger.Info("reloaded", "added", change.Added, "changed", change.Changed, "removed", change.Removed)
	}
	return change, err
}

func (a *Agent) replace(configured []Service, err error) (api.WorkerReload, error) {
	seen := a.file.seen
	imported, fileErr := a.file.read()
	if err != nil {
		a.file.seen = seen // its changes do not depend on the settings: watchFile applies them
	}
	if err := errors.Join(err, fileErr); err != nil {
		return api.WorkerReload{}, err
	}
	services := slices.Concat(configured, imported)
	if err := errors.Join(checkTogether(services), a.reach().check(services)); err != nil {
		return api.WorkerReload{}, err
	}
	change, err := a.offering.replace(services)
	if err == nil {
		a.configured = configured
		err = a.front(services)
	}
	return change, err
}

// reach returns the reach of this agent.
func (a *Agent) reach() reach {
	r := reach{rules: a.cfg.Rules, gossip: a.members.Addr(), sidecar: a.SidecarAddr()}
	if source := a.cfg.Membership.Identity; source != nil {
		r.names = source.Claims().Services
	}
	return r
}
