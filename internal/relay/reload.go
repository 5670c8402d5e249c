package relay

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/relay/check"
	"github.com/ringway/ringway/internal/routing"
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

// planFromFleet is the setting that decides whether settings of the fleet replace those of the plan.
const planFromFleet = "plan-from-fleet"

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
	var read Reloaded
	if err == nil {
		read = r.cfg.Reloaded()
		err = r.fits(read.Requests)
	}
	var agreed *routing.AgreedPlans
	if err == nil {
		agreed, err = r.Routes.SetPlans(read.Plans, read.PlansFromFleet)
	}
	if err != nil {
		r.reloads.WithLabelValues(reloadRefused).Inc()
		r.reloadRefused.Set(1)
		r.cfg.Logger.Error("reload refused, nothing has changed", "err", err)
		return api.Reload{}, err
	}
	answer := api.Reload{Relay: r.cfg.Membership.ID, NeedsRestart: needRestart}
	if agreed.Lags() {
		answer.NotInUse = running.Withhold(func(c settings.Change) bool { return ofPlan(c) && c.Name != planFromFleet })
	}
	if len(answer.NotInUse) > 0 {
		answer.Reason = fmt.Sprintf("version %d by %s is in use: give these settings a --plan-version above %d", agreed.Version, agreed.Author, agreed.Version)
		r.cfg.Logger.Warn("settings of the plan are not in use", "settings", texts(answer.NotInUse), "reason", answer.Reason)
	}
	applied := running.Accept()
	answer.Applied = applied
	if slices.ContainsFunc(applied, func(c settings.Change) bool { return c.Name != process.LogLevelSetting && !ofPlan(c) }) {
		r.tune(read.Requests) // it makes new handlers, so it is not called without a change
	}
	result := reloadApplied
	if len(applied) == 0 {
		result = reloadUnchanged
	}
	r.reloads.WithLabelValues(result).Inc()
	r.reloadRefused.Set(0)
	r.cfg.Logger.Info("reloaded", "applied", texts(applied), "needs_restart", texts(needRestart))
	return answer, nil
}

// fits checks new settings of requests with those that only a restart changes: what was loaded is
// valid as a whole, and a part of it need not be.
func (r *Relay) fits(requests Requests) error {
	var errs []error
	for _, p := range slices.Concat(checkSessions(r.cfg.TCP, requests), checkCookies(r.cfg.Strategies.SessionCookies, requests.Policies)) {
		errs = append(errs, fmt.Errorf("--%s %q of the running process: %s; restart to change it together with %s", p.Setting, p.Value, p.Reason, strings.Join(p.Related, ", ")))
	}
	return errors.Join(errs...)
}

// ofPlan reports whether a change is one of the plan.
func ofPlan(c settings.Change) bool {
	return c.Name == "plan-version" || c.Name == planFromFleet || slices.Contains(check.PlanSettings, c.Name)
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
