package routing

import (
	"cmp"
	"fmt"
	"iter"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/publish"
)

// AgreedPlans are the settings with which a relay plans, and where they come from.
type AgreedPlans struct {
	PlanSettings
	// Author is the relay from whose configuration they are, Hash a short name of the values,
	// and Values the values as they are stated.
	Author, Hash, Values string
	// File are the version and the hash of this relay's own configuration.
	FileVersion uint64
	FileHash    string
	// FromFleet is whether this relay plans with a higher version of the fleet.
	FromFleet bool
	// Conflict names another relay that states other values with the version in use; empty if
	// there is none.
	Conflict string

	hash   uint32
	relays *advertise.Relays // whose statements were taken; nil before the first
}

// Lags reports whether the own configuration is older than the settings in use, or has other
// values with their version: after a stop of all relays the fleet would lose them.
func (a AgreedPlans) Lags() bool {
	return a.FileVersion < a.Version || a.FileVersion == a.Version && a.FileHash != a.Hash
}

// block is one version of the settings.
type block struct {
	plans  PlanSettings
	text   string
	author string
}

func (b block) stated() advertise.PlanSettings {
	if b.plans.Version == 0 && len(b.text) > advertise.MaxPlanBody {
		return advertise.PlanSettings{} // no relay reads it, and the traffic in the same statement must not wait for it
	}
	return advertise.PlanSettings{Version: b.plans.Version, Author: b.author, Body: b.text}
}

// Reasons for which settings are refused, as metric labels.
const (
	planInvalid  = "invalid"
	planConflict = "conflict"
)

// planEvent is what a merge did: Refused is the reason, empty for an adoption.
type planEvent struct {
	refused string
	relay   string // that states the settings; the own id for those of the own configuration
	stated  advertise.PlanSettings
	err     error
}

// agreement decides with which settings a relay plans: those with the highest version among
// its own configuration and what live relays state. It keeps what it uses, and states it, so the
// settings outlive their author. Other values with the version in use are refused, unless more
// than half of the relays use them: then this relay is the one that is wrong, after a partition
// or a start. It is a state machine without clock and lock; the router's Run owns it.
type agreement struct {
	self   string
	follow bool
	file   block
	inUse  block
	// firm is set when this relay knows the others for the first time. Before that, its own
	// configuration is not in use in the fleet, and settings with the same version replace it.
	firm     bool
	conflict string
	reported map[advertise.PlanSettings]struct{} // refused ones, so that each is reported once
}

func newAgreement(self string, own PlanSettings, follow bool) *agreement {
	a := &agreement{self: self, follow: follow, reported: map[advertise.PlanSettings]struct{}{}}
	a.file = block{own, own.Text(), self}
	a.inUse = a.file
	return a
}

// maxReportedPlans bounds what hostile relays can make a relay remember.
const maxReportedPlans = 256

// merge takes what the other relays state, and the own configuration. It returns what happened;
// an event without a refusal is an adoption.
func (a *agreement) merge(others iter.Seq2[string, *advertise.RelayStatement], own PlanSettings, follow bool) (events []planEvent) {
	before := a.inUse
	a.file, a.follow = block{own, own.Text(), a.self}, follow
	a.conflict = ""
	version := before.plans.Version
	switch {
	case !follow, a.file.plans.Version > version, version == 0 && a.file.plans.Version == 0:
		a.inUse = a.file
	}
	if follow {
		events = a.hear(others)
	}
	if v := a.inUse.plans.Version; v > 0 && a.file.plans.Version == v && a.file.text != a.inUse.text {
		events = a.refuse(events, planEvent{refused: planConflict, relay: a.self, stated: a.file.stated(), err: a.conflictError()})
	}
	if a.inUse.text != before.text || a.inUse.plans.Version != before.plans.Version {
		events = append(events, planEvent{relay: a.inUse.author, stated: a.inUse.stated()})
	}
	return events
}

// hear takes what the other relays state.
func (a *agreement) hear(others iter.Seq2[string, *advertise.RelayStatement]) (events []planEvent) {
	using := map[string]int{} // relays by text, of the highest version
	var highest []planEvent
	version := uint64(0)
	for id, s := range others {
		if id == a.self || s.Plan.Version == 0 || s.Plan.Version < max(version, a.inUse.plans.Version) {
			continue
		}
		if _, err := ParsePlanSettings(s.Plan.Version, s.Plan.Body); err != nil {
			events = a.refuse(events, planEvent{refused: planInvalid, relay: id, stated: s.Plan, err: err})
			continue
		}
		if s.Plan.Version > version {
			version, highest = s.Plan.Version, nil
			clear(using)
		}
		highest = append(highest, planEvent{relay: id, stated: s.Plan})
		using[s.Plan.Body]++
	}
	if len(highest) == 0 {
		return events
	}
	// Of several values with one version those of most relays win; among equals the choice only
	// has to be the same everywhere.
	most := highest[0]
	for _, h := range highest[1:] {
		if c := cmp.Compare(using[h.stated.Body], using[most.stated.Body]); c > 0 || c == 0 && h.stated.Body < most.stated.Body {
			most = h
		}
	}
	newer := version > a.inUse.plans.Version
	usual := 2*using[most.stated.Body] > len(highest)+1 // of all relays, this one included
	if newer || most.stated.Body != a.inUse.text && (!a.firm || usual) {
		plans, _ := ParsePlanSettings(version, most.stated.Body) // parsed above
		a.inUse = block{plans, most.stated.Body, cmp.Or(most.stated.Author, most.relay)}
	}
	for _, h := range highest {
		if h.stated.Body != a.inUse.text {
			a.conflict = fmt.Sprintf("%s states version %d with other values (%s)", h.relay, version, planHash(h.stated.Body))
			events = a.refuse(events, planEvent{refused: planConflict, relay: h.relay, stated: h.stated, err: a.conflictError()})
		}
	}
	return events
}

func (a *agreement) conflictError() error {
	return fmt.Errorf("version %d has other values (%s, by %s): give the ones that you want a higher --plan-version", a.inUse.plans.Version, planHash(a.inUse.text), a.inUse.author)
}

// refuse adds a refusal unless the same settings were refused before.
func (a *agreement) refuse(events []planEvent, e planEvent) []planEvent {
	key := e.stated
	key.Author = e.relay
	if _, again := a.reported[key]; again {
		return events
	}
	if len(a.reported) >= maxReportedPlans {
		clear(a.reported)
	}
	a.reported[key] = struct{}{}
	return append(events, e)
}

func (a *agreement) agreed() *AgreedPlans {
	return &AgreedPlans{
		PlanSettings: a.inUse.plans, Author: a.inUse.author, Hash: planHash(a.inUse.text), Values: a.inUse.text,
		FileVersion: a.file.plans.Version, FileHash: planHash(a.file.text), FromFleet: a.follow, Conflict: a.conflict,
		hash: planHash32(a.inUse.text),
	}
}

// ownPlans is the own configuration of a relay.
type ownPlans struct {
	plans  PlanSettings
	follow bool
}

// agreeing is what an agreement was computed with: the pointers change with their content.
type agreeing struct {
	relays *advertise.Relays
	own    *ownPlans
}

type agreementMetrics struct {
	adoptions prometheus.Counter
	refused   *prometheus.CounterVec
}

func newAgreementMetrics(reg prometheus.Registerer, agreed func() *AgreedPlans) agreementMetrics {
	f := metric.With(reg)
	m := agreementMetrics{
		adoptions: f.Counter("ringway_relay_plan_adoptions_total", "Times that other settings of the plan came into use, from this relay's configuration or from another relay."),
		refused:   f.CounterVec("ringway_relay_plan_refused_total", "Settings of the plan that are not used, each counted when it appears, by reason: invalid (another relay states what no relay may have) or conflict (other values with the version in use).", "reason"),
	}
	metric.StartAtZero(m.refused, planInvalid, planConflict)
	f.GaugeFunc("ringway_relay_plan_version", "Version of the settings of the plan in use; 0 means those of this relay's configuration.", func() float64 { return float64(agreed().Version) })
	f.GaugeFunc("ringway_relay_plan_file_version", "Version of the settings of the plan in this relay's configuration; less than the one in use means that it lags.", func() float64 { return float64(agreed().FileVersion) })
	f.GaugeFunc("ringway_relay_plan_hash", "Hash, of 32 bits, of the settings of the plan in use: relays with the same hash plan with the same settings.", func() float64 { return float64(agreed().hash) })
	return m
}

// Agreed returns the settings in use, with one atomic load. Do not change them.
func (r *Router) Agreed() *AgreedPlans { return r.agreed.Load() }

// SetPlans replaces the own configuration of this relay, and whether settings of the fleet
// replace it. All services are planned again soon if that changes the settings in use. It returns
// those that are in use then. It may be called from any goroutine, before Run too.
func (r *Router) SetPlans(own PlanSettings, fromFleet bool) (*AgreedPlans, error) {
	next := ownPlans{own.withDefaults().WithNeeds(r.cfg.Strategies), fromFleet}
	if err := next.plans.Minimums.Validate(); err != nil {
		return nil, err
	}
	r.ownPlans.Store(&next)
	publish.Notify(r.replan)
	return r.foresee(next), nil
}

// foresee returns the settings that are in use once own is the configuration of this relay, as Run
// will decide if the other relays state what they state now.
func (r *Router) foresee(own ownPlans) *AgreedPlans {
	now, then := r.Agreed(), newAgreement(r.cfg.Self, own.plans, own.follow)
	then.inUse = block{now.PlanSettings, now.Values, now.Author}
	select {
	case <-r.first:
		then.firm = true
	default:
	}
	relays := now.relays
	if relays == nil {
		relays = &advertise.Relays{}
	}
	then.merge(relays.All(), own.plans, own.follow)
	return then.agreed()
}

// agree reports whether the settings in use have changed. It runs on the goroutine of Run.
func (r *Router) agree() (changed bool) {
	now := agreeing{r.view.Relays(), r.ownPlans.Load()}
	if now == r.agreeing {
		return false
	}
	r.agreeing = now
	for _, e := range r.agreement.merge(now.relays.All(), now.own.plans, now.own.follow) {
		what := []any{"version", e.stated.Version, "hash", planHash(e.stated.Body)}
		switch {
		case e.refused != "":
			r.agreements.refused.WithLabelValues(e.refused).Inc()
			r.lines.Log(slog.LevelWarn, "settings of the plan refused", append(what, "relay", e.relay, "reason", e.refused, "err", e.err)...)
		default:
			changed = true
			r.agreements.adoptions.Inc()
			r.cfg.Logger.Info("settings of the plan are in use", append(what, "author", e.relay, "settings", e.stated.Body)...)
		}
	}
	agreed := r.agreement.agreed()
	agreed.relays = now.relays
	r.agreed.Store(agreed)
	if changed {
		r.forwarding.cfg.MinPeersPerTier = r.agreement.inUse.plans.PeersPerTier
		r.statePlans()
	}
	return changed
}

// statePlans reports to the other relays what this one uses, once it knows what they use.
func (r *Router) statePlans() {
	if r.agreement.firm && r.cfg.State != nil {
		r.cfg.State(r.agreement.inUse.stated())
	}
}
