package relay

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/relay/check"
	"github.com/ringway/ringway/internal/settings"
)

// The results of reloads.
const (
	reloadApplied   = "applied"
	reloadUnchanged = "unchanged"
	reloadRefused   = "refused"
)

func newReloads(reg prometheus.Registerer) (reloads *prometheus.CounterVec, refused prometheus.Gauge) {
	f := metric.With(reg)
	reloads = f.CounterVec("ringway_relay_reloads_total", "Reloads of the settings, by a signal or the admin API: applied, unchanged, refused (nothing changed).", "result")
	metric.StartAtZero(reloads, reloadApplied, reloadUnchanged, reloadRefused)
	return reloads, f.Gauge("ringway_relay_reload_refused", "1 if the last reload was refused: the settings on disk are not in use.")
}

var errNoSettings = errors.New("this relay was not started from settings: there is nothing to read again")

// Reload opens the request log again, reads the settings again, for example on SIGHUP,
// applies those that can change while the relay runs, and logs the result. It may be called from any goroutine.
func (r *Relay) Reload() { _, _ = r.reload() }

// reload changes nothing if it fails. Requests that began before it end with the old
// settings.
//
// The certificates of the ingress are read in any case: a pair that cannot be used is logged
// and counted there, and stops no other change.
func (r *Relay) reload() (api.Reload, error) {
	r.reloading.Lock()
	defer r.reloading.Unlock()
	if r.certificates != nil {
		_ = r.certificates.Reload()
	}
	r.reopenRecords()
	running := r.cfg.Running
	if running == nil {
		return api.Reload{}, errNoSettings
	}
	needRestart, err := running.Read()
	if err != nil {
		r.reloads.WithLabelValues(reloadRefused).Inc()
		r.reloadRefused.Set(1)
		r.cfg.Logger.Error("reload refused, nothing has changed", "err", err)
		return api.Reload{}, err
	}
	read := r.cfg.Reloaded()
	if err := r.Routes.SetPlans(read.Plans, read.PlansFromFleet); err != nil { // the settings were checked when they were loaded
		r.reloads.WithLabelValues(reloadRefused).Inc()
		r.reloadRefused.Set(1)
		return api.Reload{}, err
	}
	applied := running.Accept()
	if slices.ContainsFunc(applied, func(c settings.Change) bool { return c.Name != process.LogLevelSetting && !ofPlan(c) }) {
		r.tune(read.Requests) // it resets the retry budget, so it is not called without a change
	}
	result := reloadApplied
	if len(applied) == 0 {
		result = reloadUnchanged
	}
	r.reloads.WithLabelValues(result).Inc()
	r.reloadRefused.Set(0)
	r.cfg.Logger.Info("reloaded", "applied", texts(applied), "needs_restart", texts(needRestart))
	return api.Reload{Relay: r.cfg.Membership.ID, Applied: applied, NeedsRestart: needRestart}, nil
}

// ofPlan reports whether a change is one of the plan.
func ofPlan(c settings.Change) bool {
	return c.Name == "plan-version" || c.Name == "plan-from-fleet" || slices.Contains(check.PlanSettings, c.Name)
}

// tune makes requests the settings of new requests.
func (r *Relay) tune(requests Requests) {
	r.tuned.Store(&requests)
	r.boundClients(requests.MaxClientConnections)
	r.Routes.SetSlots(requests.Policies.Slots)
	r.Routes.SetCanaries(requests.Policies.Canaries)
	r.ingressFront.serve(r.newHandler(requests, false))
	r.peerFront.serve(r.newHandler(requests, true))
}

func texts(changes []settings.Change) []string {
	out := make([]string, len(changes))
	for i, c := range changes {
		out[i] = c.String()
	}
	return out
}

func (r *Relay) handleReload(w http.ResponseWriter, _ *http.Request) {
	answer, err := r.reload()
	switch {
	case errors.Is(err, errNoSettings):
		process.WriteError(w, http.StatusConflict, err.Error())
	case err != nil:
		process.WriteError(w, http.StatusUnprocessableEntity, fmt.Sprintf("nothing has changed: %v", err))
	default:
		process.WriteJSON(w, http.StatusOK, answer)
	}
}
