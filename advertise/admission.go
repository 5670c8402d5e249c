package advertise

import (
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/ringway/ringway/membership"
)

// Refusal says what of a member's offer does not become endpoints.
type Refusal struct {
	Worker string `json:"worker"`
	// Reason is host_name, foreign_host, local_host, services_per_record, services
	// or new_services.
	Reason string `json:"reason"`
	// Count is how many services are concerned, Service one of them and Text what is
	// wrong with it.
	Count   int    `json:"count"`
	Service string `json:"service"`
	Text    string `json:"text"`
}

// maxRefusals is how many a view lists.
const maxRefusals = 100

// admission applies the rules. It is a state machine without goroutine, lock or
// clock; the view builder owns it.
type admission struct {
	Rules
	// told hears of each refusal once per record. Nil: nothing does.
	told func(Refusal)

	refused map[string]verdict
	fresh   map[string]struct{} // names that the view in the making adds
	tokens  map[string]*rate.Limiter
	listed  []Refusal // for views; nil when refused has changed since
}

// verdict is what was refused of a member's record.
type verdict struct {
	stamp    stamp
	epoch    uint64
	refusals []Refusal // one per reason
}

func newAdmission(rules Rules, told func(Refusal)) *admission {
	if told == nil {
		told = func(Refusal) {}
	}
	return &admission{Rules: rules, told: told, refused: map[string]verdict{}, fresh: map[string]struct{}{}, tokens: map[string]*rate.Limiter{}}
}

// admit returns the services of a record that become endpoints.
func (a *admission) admit(m membership.Member, e *entry, services []Service, view *viewBuilder, now time.Time) []Service {
	v := verdict{stamp: e.stamp, epoch: m.Epoch}
	admitted := services[:0]
	if n := len(services); n > a.MaxServicesPerRecord {
		v.add(m.ID, services[0].Name, n, refuse(refusedRecord, "it offers %d services, more than %d: offer fewer, run a second worker, or raise --max-services-per-record on all members", n, a.MaxServicesPerRecord))
		services = nil
	}
	for _, s := range services {
		err := a.CheckAddress(s.Address, m.GossipAddr)
		if err == nil {
			err = a.admitName(m.ID, s.Name, view, now)
		}
		if err != nil {
			v.add(m.ID, s.Name, 1, err)
			continue
		}
		admitted = append(admitted, s)
	}
	a.note(m.ID, v)
	return admitted
}

// admitName bounds how many names there are and how fast they come.
func (a *admission) admitName(id, name string, view *viewBuilder, now time.Time) error {
	known, offered := view.known(name)
	if _, already := a.fresh[name]; already || offered {
		return nil
	}
	if view.offeredNames()+len(a.fresh) >= a.MaxServices {
		return refuse(refusedServices, "%d services are known already: raise --max-services, or look for a worker that offers names without end", a.MaxServices)
	}
	if !known {
		bucket := a.tokens[id]
		if bucket == nil {
			bucket = rate.NewLimiter(rate.Limit(float64(a.NewServicesPerMinute)/60), a.MaxServicesPerRecord)
			a.tokens[id] = bucket
		}
		if !bucket.AllowN(now, 1) {
			return refuse(refusedNewNames, "its worker brings more than %d new services a minute: they are taken in later, at that rate", a.NewServicesPerMinute)
		}
	}
	a.fresh[name] = struct{}{}
	return nil
}

func (v *verdict) add(worker, service string, count int, err error) {
	bad := err.(*invalid)
	for i := range v.refusals {
		if v.refusals[i].Reason == bad.reason {
			v.refusals[i].Count += count
			return
		}
	}
	v.refusals = append(v.refusals, Refusal{Worker: worker, Reason: bad.reason, Count: count, Service: service, Text: bad.detail})
}

// note remembers what was refused and tells of it unless the same record was
// refused for the same reason before.
func (a *admission) note(id string, v verdict) {
	before, was := a.refused[id]
	if len(v.refusals) == 0 {
		a.forget(id)
		return
	}
	same := was && before.stamp == v.stamp && before.epoch == v.epoch
	for _, r := range v.refusals {
		if !same || !slices.ContainsFunc(before.refusals, func(b Refusal) bool { return b.Reason == r.Reason }) {
			a.told(r)
		}
	}
	a.refused[id], a.listed = v, nil
}

// forget is for a member that offers nothing any more.
func (a *admission) forget(id string) {
	if _, was := a.refused[id]; was {
		delete(a.refused, id)
		a.listed = nil
	}
}

// list is what is refused now, by worker: the first of them.
func (a *admission) list() []Refusal {
	if a.listed == nil && len(a.refused) > 0 {
		for _, id := range slices.Sorted(maps.Keys(a.refused)) {
			if a.listed = append(a.listed, a.refused[id].refusals...); len(a.listed) >= maxRefusals {
				break
			}
		}
		a.listed = a.listed[:min(len(a.listed), maxRefusals)]
	}
	return a.listed
}

// retry returns the members of which more may be admitted now than before, and
// forgets who has brought no new name for long.
func (a *admission) retry(now time.Time) (ids []string) {
	for id, v := range a.refused {
		if slices.ContainsFunc(v.refusals, func(r Refusal) bool { return r.Reason == refusedServices || r.Reason == refusedNewNames }) {
			ids = append(ids, id)
		}
	}
	maps.DeleteFunc(a.tokens, func(_ string, bucket *rate.Limiter) bool {
		return bucket.TokensAt(now) >= float64(a.MaxServicesPerRecord)
	})
	slices.SortFunc(ids, strings.Compare)
	return ids
}
