package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/internal/relay/check"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/statuspage"
	"github.com/ringway/ringway/selection"
)

const (
	// surveyTimeout bounds one survey, however many relays are silent; surveyedAtOnce bounds
	// its concurrent questions.
	surveyTimeout  = 4 * time.Second
	surveyedAtOnce = 64
	// watchEvery is the time between two surveys while a status page is read, and firstWindow
	// that between the first two.
	watchEvery  = 3 * time.Second
	firstWindow = time.Second
	// watchedFor is the age at which a survey is too old for a page and for rates, and how long
	// callers are counted for nothing after the last page was closed.
	watchedFor = 15 * time.Second
	// shownCallers is how many callers a page shows: those with the most requests.
	shownCallers = 10
)

// survey is the traffic of all relays and gates at about one moment.
type survey struct{ relays []surveyed }

// surveyed is one relay or gate and its load, or the reason why the load is not known.
type surveyed struct {
	api.ListedMember
	facts *check.Facts
	err   error
}

// find returns the load of a relay, nil if it is not known.
func (s *survey) find(id string) *check.Load {
	if s == nil {
		return nil
	}
	for i := range s.relays {
		if one := &s.relays[i]; one.ID == id && one.facts != nil {
			return one.facts.Load
		}
	}
	return nil
}

// surveyor asks the other relays for their traffic.
type surveyor struct {
	missing map[string]prometheus.Counter // by reason

	// wanted holds one value while a status page is read. newest is the result for pages,
	// nil before the first one; the goroutine of watchFleet writes it.
	wanted chan struct{}
	newest atomic.Pointer[watched]
}

// watched is the fleet at a moment, and what this relay has carried since the one before.
type watched struct {
	at     time.Time
	survey *survey
	fleet  *api.Fleet
	// carried are the counters of this relay, since those at the beginning of the window, nil
	// in the first one.
	carried, since *api.Traffic
	callers        []api.TopRow
}

// The reasons why a report is missing.
const (
	reportUnreachable = "unreachable"
	reportRefused     = "refused"
	reportInvalid     = "invalid"
	reportOlder       = "older"
)

func newSurveyor(reg prometheus.Registerer) *surveyor {
	vec := metric.With(reg).CounterVec("ringway_relay_fleet_reports_missing_total", "Reports of other relays that the view of the whole fleet lacks, by reason: unreachable, refused (it answers with an error), invalid (too large, or impossible numbers), older (its version reports no traffic).", "reason")
	s := &surveyor{missing: map[string]prometheus.Counter{}, wanted: make(chan struct{}, 1)}
	for _, reason := range []string{reportUnreachable, reportRefused, reportInvalid, reportOlder} {
		s.missing[reason] = vec.WithLabelValues(reason)
	}
	return s
}

// survey asks the relays and gates of the view, and those that vanished from it, for their
// traffic. It takes at most surveyTimeout. With an earlier survey it asks only the ones that
// answered then.
func (r *Relay) survey(ctx context.Context, earlier *survey) (*survey, error) {
	snapshot := r.Fleet.Snapshot()
	if snapshot == nil {
		return nil, errors.New("gossip is not started yet")
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	s := &survey{}
	for _, m := range api.ListMembers(api.Members{Members: snapshot.Members()}, snapshot.Departures()) {
		if m.Role.Relays() && m.ForwardAddr != "" { // a program without an address answers nothing
			s.relays = append(s.relays, surveyed{ListedMember: m})
		}
	}
	slots := make(chan struct{}, surveyedAtOnce)
	var wg sync.WaitGroup
	for i := range s.relays {
		one := &s.relays[i]
		switch {
		case one.ID == r.cfg.Membership.ID:
			own := r.load()
			one.facts = &own
		case one.State == api.MemberLeft:
			one.err = errors.New("it left")
		case earlier != nil && earlier.find(one.ID) == nil:
		default:
			slots <- struct{}{}
			wg.Go(func() {
				r.surveyOne(ctx, one)
				<-slots
			})
		}
	}
	wg.Wait()
	return s, nil
}

func (r *Relay) surveyOne(ctx context.Context, one *surveyed) {
	if ctx.Err() != nil { // others have taken the whole time
		one.err = fmt.Errorf("it was not asked, because others were silent for %s", surveyTimeout)
		r.surveyor.missing[reportUnreachable].Inc()
		return
	}
	p := r.askFacts(ctx, one.Member, "load=1")
	one.facts, one.err = p.Facts, p.Err
	if one.err == nil && one.facts.Load == nil {
		one.facts, one.err = nil, fmt.Errorf("its version reports no traffic: %w", check.ErrNoFacts)
	}
	if one.err == nil {
		return
	}
	reason := reportUnreachable
	switch {
	case errors.Is(one.err, check.ErrNoFacts):
		reason = reportOlder
	case errors.Is(one.err, check.ErrInvalid):
		reason = reportInvalid
	case errors.Is(one.err, errRefuses):
		reason = reportRefused
	case errors.Is(one.err, context.DeadlineExceeded):
		one.err = fmt.Errorf("no answer from %s within %s", one.ForwardAddr, surveyTimeout)
	}
	r.surveyor.missing[reason].Inc()
}

// watchFleet surveys the fleet as long as status pages are read.
func (r *Relay) watchFleet(ctx context.Context) error {
	s := r.surveyor
	var callers api.Callers
	var counting *requestlog.Tap // while pages are read
	idle := time.NewTimer(0)
	defer idle.Stop()
	stop := func() {
		if counting != nil {
			counting.Close()
			counting = nil
			callers.Next()
		}
	}
	defer stop()
	for {
		idle.Reset(watchedFor)
		select {
		case <-s.wanted:
		case <-idle.C:
			stop()
			select {
			case <-s.wanted:
			case <-ctx.Done():
				return nil
			}
		case <-ctx.Done():
			return nil
		}
		before := s.fresh()
		if counting == nil {
			before = nil
			counting = r.records.Count(func(rec *requestlog.Record) {
				callers.Add(&api.Call{
					Caller: rec.Caller, From: rec.From, Failed: rec.Failed(), FirstByteMs: milliseconds(rec.FirstByte), TotalMs: milliseconds(rec.Total),
				})
			})
		}
		now, err := r.survey(ctx, nil)
		if ctx.Err() != nil {
			return nil
		}
		rest := watchEvery
		if err == nil {
			next := &watched{at: time.Now(), survey: now, carried: r.readTraffic(true), callers: callers.Next()}
			if before == nil {
				rest = firstWindow
				next.fleet = sumFleet(r.cfg.Membership.ID, nil, now)
			} else {
				next.fleet = sumFleet(r.cfg.Membership.ID, before.survey, now)
				next.fleet.WindowMs = next.at.Sub(before.at).Milliseconds()
				next.since = before.carried
			}
			s.newest.Store(next)
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return nil
		}
	}
}

// fresh returns the newest survey for pages, nil if it is too old.
func (s *surveyor) fresh() *watched {
	newest := s.newest.Load()
	if newest == nil || time.Since(newest.at) > watchedFor {
		return nil
	}
	return newest
}

// watch returns the newest survey for a page, and has it renewed. It is nil until the relays
// have been asked.
func (s *surveyor) watch() *watched {
	publish.Notify(s.wanted)
	return s.fresh()
}

// traffic returns what this relay has carried in the window, with the workers of one service.
// It is nil in the first window.
func (w *watched) traffic(service string) *statuspage.Traffic {
	if w.since == nil {
		return nil
	}
	window := time.Duration(w.carried.UptimeMs-w.since.UptimeMs) * time.Millisecond
	t := &statuspage.Traffic{
		Window: window, Services: api.ServiceRows(w.since, w.carried), Workers: api.WorkerRows(w.since, w.carried, service),
		Callers: slices.Clone(w.callers), AllCallers: len(w.callers),
	}
	slices.SortFunc(t.Callers, func(a, b api.TopRow) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), process.Natural(a.Name, b.Name))
	})
	t.Callers = t.Callers[:min(len(t.Callers), shownCallers)]
	for _, rows := range [][]api.TopRow{t.Services, t.Workers, t.Callers} {
		api.RateRows(rows, window)
	}
	return t
}

// load returns the facts about the traffic of this relay.
func (r *Relay) load() check.Facts {
	f := check.Facts{
		Relay: r.cfg.Membership.ID, Role: string(r.cfg.Membership.Role), Version: process.Version(), Reasons: process.ReasonTexts(r.Reasons()),
		Load: &check.Load{UptimeMs: time.Since(r.Epoch()).Milliseconds()},
	}
	services := r.Routes.Services()
	f.Load.ServiceCount = len(services)
	for _, s := range services {
		t := r.traffic(s)
		t.Latency, t.Answers = nil, nil
		f.Load.Total.Add(t.Counts)
		f.Load.Services = append(f.Load.Services, t)
	}
	f.Time = time.Now()
	return f
}

// traffic returns the counters of a service and its evicted workers.
func (r *Relay) traffic(s *routing.Service) api.ServiceTraffic {
	all, forwarded, latency := r.Metrics.Traffic(s)
	t := api.ServiceTraffic{Service: s.Name, Counts: api.Counts(all), Forwarded: api.Counts(forwarded), Answers: new(latency.GetSampleCount())}
	for _, b := range latency.GetBucket() {
		t.Latency = append(t.Latency, api.LatencyBucket{UpToMs: b.GetUpperBound() * 1000, Requests: b.GetCumulativeCount()})
	}
	route := s.Route()
	t.Workers = len(route.Endpoints)
	if !route.Affine() {
		return t
	}
	evicted := map[string]bool{}
	for _, st := range s.Endpoints.Stats(selection.Instant(time.Since(r.Epoch()))) {
		if st.State == selection.Evicted {
			evicted[st.ID] = true
		}
	}
	if len(evicted) == 0 {
		return t
	}
	for _, target := range route.Range {
		if evicted[target.ID] && len(t.Evicted) < check.MaxEvicted {
			t.Evicted = append(t.Evicted, target.Node)
		}
	}
	return t
}
