package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/settings"
)

// coverage checks that every worker has enough relays, in the plans and in fact. The facts
// are the plan without the connections that relays report as missing.
func coverage(f *Fleet) (found []api.Finding) {
	lacking := map[Missing][]string{} // by the relays that lack it
	dead := f.dead()                  // workersAnswer reports these
	untold := 0
	for _, one := range f.all() {
		for _, m := range one.Missing {
			if m.Refused == "" && !dead[m.Worker] { // otherwise offersUsed reports it
				lacking[m] = append(lacking[m], one.Relay)
			}
		}
		untold += one.MissingCount - len(one.Missing)
	}
	var names []string
	for _, s := range f.Services {
		found = append(found, coverageOf(s, lacking)...)
		names = append(names, s.Name)
	}
	idle := slices.DeleteFunc(slices.Clone(f.Idle), func(id string) bool { return dead[id] })
	if n := len(idle); n > 0 {
		found = append(found, api.Finding{
			Status: api.Warning, Subject: lowest(idle), Passing: true,
			Text:   fmt.Sprintf("no service is offered by %d of %s: %s", n, plural(f.Workers, "worker", "workers"), list(idle)),
			Cause:  "a service is offered while its check passes, and their checks fail; or they have no service",
			Remedy: fmt.Sprintf("`worker services` on the host of %s shows the reason", lowest(idle)),
			Page:   page("service-unhealthy"),
		})
	}
	for _, pair := range settings.OtherCase(names) {
		found = append(found, api.Finding{
			Status: api.Warning, Subject: pair[1],
			Text:   fmt.Sprintf("the services %s and %s differ only in case: they are two services", pair[0], pair[1]),
			Cause:  "names of services are compared exactly, so requests for one never reach the workers of the other",
			Remedy: "give both the same name in the --service of their workers, if they are one service",
			Page:   page("no-endpoint"),
		})
	}
	if untold > 0 && !(f.onlyWorkersStopped() && untold <= f.linksToStopped()) {
		found = append(found, api.Finding{
			Status: api.Failed, Passing: true,
			Text:   fmt.Sprintf("%d connections more are missing than could be listed", untold),
			Cause:  "many at the same time point to the network or to certificates",
			Remedy: "check one relay: `relay services SERVICE` shows its connections",
			Page:   page("links"),
		})
	}
	return found
}

// linksToStopped returns how many connections the plans have to workers that have stopped, at most:
// plans keep the places of some, and where one that was asked has stopped, all that were not asked
// may have.
func (f *Fleet) linksToStopped() (n int) {
	for _, s := range f.Services {
		relays := s.Wanted
		if s.Plan != nil {
			for _, planned := range s.Plan.RelaysPerWorker {
				relays = max(relays, planned)
			}
		}
		n += relays * f.mostStopped()
	}
	return n
}

func coverageOf(s Service, lacking map[Missing][]string) (found []api.Finding) {
	if s.Plan == nil && len(s.Refused) > 0 {
		return nil // offersUsed reports it
	}
	if s.Plan == nil {
		return []api.Finding{{
			Status: api.Warning, Subject: s.Name, Passing: true,
			Text:   fmt.Sprintf("service %s has no endpoint that takes requests", s.Name),
			Cause:  "its workers are draining, unhealthy or gone; requests for it fail",
			Remedy: fmt.Sprintf("start workers that offer %s, or check their health checks: `worker services`", s.Name),
			Page:   page("no-endpoint"),
		}}
	}
	relays := len(s.Plan.Relays) - len(s.Plan.Absent.Relays)
	need := min(s.Wanted, relays)
	if need < s.Wanted {
		found = append(found, api.Finding{
			Status: api.Warning, Subject: s.Name,
			Text:   fmt.Sprintf("service %s is served by %s, and each worker should have %d", s.Name, plural(relays, "relay", "relays"), s.Wanted),
			Cause:  "there are too few relays, or --skip-relay excludes too many; the loss of one costs more than it should",
			Remedy: fmt.Sprintf("start %s more, or exclude fewer with --skip-relay", plural(s.Wanted-relays, "relay", "relays")),
			Page:   page("too-few-relays"),
		})
	}
	if asked := s.asked(); asked > 0 && asked < s.Wanted {
		found = append(found, api.Finding{
			Status: api.Warning, Subject: s.Name,
			Text:   fmt.Sprintf("the workers of %s advertise relays=%d, which the relays raise to %d", s.Name, asked, s.Wanted),
			Cause:  "no service has fewer relays than --min-peers-per-worker, so that its workers survive the loss of a relay while another restarts",
			Remedy: fmt.Sprintf("advertise relays=%d or more on the workers of %s, or leave relays= out of their --service", s.Wanted, s.Name),
			Page:   page("too-few-relays"),
		})
	}
	// The plan is exact to rounding; connections of zones are off by a few hundredths.
	if most := cmp.Or(s.LoadWanted, 1.1) * 1.02; s.Plan.Load.Most > most {
		finding := api.Finding{
			Status: api.Warning, Subject: s.Name, Passing: true,
			Text:   fmt.Sprintf("a worker of %s gets %.2f times its share of the load", s.Name, s.Plan.Load.Most),
			Cause:  "relays that reach the same workers carry more traffic than others, and no weights on these connections give a smaller load",
			Remedy: fmt.Sprintf("spread clients evenly over the relays, or set --min-peers-per-worker higher: `relay plan %s --what-if m=%d`", s.Name, s.Wanted+2),
			Page:   page("load-uneven"),
		}
		if s.Plan.Strategy == affinity.Projection {
			finding.Remedy = fmt.Sprintf("spread clients evenly over the relays, or set --strategy rendezvous: `relay plan %s --what-if strategy=rendezvous`", s.Name)
		}
		found = append(found, finding)
	}
	for _, worker := range slices.Sorted(maps.Keys(s.Plan.RelaysPerWorker)) {
		planned := s.Plan.RelaysPerWorker[worker]
		without := lacking[Missing{Service: s.Name, Worker: worker}]
		connected := max(0, planned-len(without))
		switch {
		case len(without) > 0:
			status := api.Warning
			if connected < need {
				status = api.Failed
			}
			found = append(found, api.Finding{
				Status: status, Subject: worker, Passing: true,
				Text:   fmt.Sprintf("worker %s of %s has %d of %s connected, and needs %d: not %s", worker, s.Name, connected, plural(planned, "relay", "relays"), need, list(without)),
				Cause:  "the service does not listen at the address that its worker announces, a firewall is between, or the worker has just died",
				Remedy: fmt.Sprintf("start the service behind %s, or allow TCP to it; `relay explain %s --worker %s` on %s shows the address and the reason", worker, s.Name, worker, list(without[:1])),
				Page:   page("links"),
			})
		case planned < need:
			found = append(found, api.Finding{
				Status: api.Failed, Subject: worker, Passing: true,
				Text:   fmt.Sprintf("worker %s of %s is in the plan of %s, and needs %d", worker, s.Name, plural(planned, "relay", "relays"), need),
				Cause:  "a relay has just vanished and keeps its place for --member-grace, or the relays near the worker are too few",
				Remedy: "wait for --member-grace; if it stays, `relay plan " + s.Name + "` shows who should connect",
				Page:   page("links"),
			})
		}
	}
	return found
}

// asked returns how many relays the workers of the service advertise, 0 if most advertise none.
func (s *Service) asked() int {
	if len(s.RelayVotes) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(s.RelayVotes[0].Value)
	return n
}

func fineCoverage(f *Fleet) string {
	services, workers, kept := 0, 0, 0
	dead := f.dead()
	for _, s := range f.Services {
		services++
		if s.Plan == nil {
			continue
		}
		for worker := range s.Plan.RelaysPerWorker {
			// A relay that lost much of the cluster keeps what vanished in its plans.
			if _, seen := f.Addresses[worker]; dead[worker] || !seen {
				kept++
			} else {
				workers++
			}
		}
	}
	if services == 0 {
		return "no service is offered yet"
	}
	text := fmt.Sprintf("%s on %s: every worker has the relays it needs, all connected", plural(services, "service", "services"), plural(workers, "endpoint", "endpoints"))
	if kept > 0 {
		text += fmt.Sprintf("; the plans keep %s more, whose workers do not answer or are not in the view", plural(kept, "endpoint", "endpoints"))
	}
	return text
}

// Vote is one value that workers of a service advertise for the service as a whole, and
// their number. The value of a worker that advertises none is empty.
type Vote struct {
	Value   string
	Workers int
}

// advertisedAgree checks that the workers of a service advertise the same. The majority
// decides, so a minority does not get what it asks for.
func advertisedAgree(f *Fleet) (found []api.Finding) {
	for _, s := range f.Services {
		type ballot struct {
			option, setting string
			votes           []Vote
		}
		ballots := []ballot{{"selection", "--selection", s.Selections}, {"relays", "--relays-per-service", s.RelayVotes}}
		for _, p := range s.Policies {
			setting := "--service-policy"
			if p.Key == advertise.KeySessionCookie {
				setting = "--session-cookie"
			}
			ballots = append(ballots, ballot{p.Key, setting, p.Votes})
		}
		for _, about := range ballots {
			if len(about.votes) < 2 {
				continue
			}
			var said []string
			for _, v := range about.votes {
				said = append(said, fmt.Sprintf("%s by %s", value(v), plural(v.Workers, "worker", "workers")))
			}
			used := "the setting " + about.setting + " of the relays"
			if won := about.votes[0].Value; won != "" {
				used = won
			}
			found = append(found, api.Finding{
				Status: api.Warning, Subject: s.Name,
				Text:   fmt.Sprintf("the workers of %s advertise different values of %s: %s; used is %s", s.Name, about.option, strings.Join(said[:min(len(said), mostNamed)], ", "), used),
				Cause:  "a roll-out is running, or some workers are configured otherwise; the majority decides, and in a tie the smaller value",
				Remedy: fmt.Sprintf("give all workers of %s the same %s=, or none", s.Name, about.option),
				Page:   page("selection-problems"),
			})
		}
	}
	return found
}

func value(v Vote) string { return cmp.Or(v.Value, "none") }

func fineAdvertised(f *Fleet) string {
	return "the workers of each service advertise the same for it"
}

// offersUsed checks that no relay refuses an offer of a worker.
func offersUsed(f *Fleet) (found []api.Finding) {
	unused := map[Missing][]string{} // by the relays that refuse it
	for _, s := range f.Services {
		for worker, reason := range s.Refused {
			unused[Missing{s.Name, worker, reason}] = []string{f.Self.Relay}
		}
	}
	for _, one := range f.all()[1:] {
		for _, m := range one.Missing {
			if m.Refused != "" {
				unused[m] = append(unused[m], one.Relay)
			}
		}
	}
	offers := slices.SortedFunc(maps.Keys(unused), func(a, b Missing) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Refused, b.Refused))
	})
	for _, m := range offers[:min(len(offers), mostNamed)] {
		found = append(found, api.Finding{
			Status: api.Failed, Subject: m.Worker, Passing: true,
			Text:   fmt.Sprintf("the offer of %s by worker %s is not used by %s: %s", m.Service, m.Worker, list(unused[m]), m.Refused),
			Cause:  "no request may go there: the offer, or the certificate settings of relay and worker, are wrong",
			Remedy: fmt.Sprintf("correct what %s offers; `relay explain %s --worker %s` on %s shows the address", m.Worker, m.Service, m.Worker, list(unused[m][:1])),
			Page:   page("endpoints-left-out"),
		})
	}
	if more := len(offers) - len(found); more > 0 {
		found = append(found, api.Finding{
			Status: api.Failed, Passing: true, Text: fmt.Sprintf("%s more are not used", plural(more, "offer", "offers")),
			Cause: "as above", Remedy: "correct the others first and check again", Page: page("endpoints-left-out"),
		})
	}
	return append(found, offersRefused(f)...)
}

// offersRefused checks that the rules of this relay refuse no offer of a worker.
func offersRefused(f *Fleet) (found []api.Finding) {
	for _, r := range f.Refused[:min(len(f.Refused), mostNamed)] {
		found = append(found, api.Finding{
			Status: api.Failed, Subject: r.Worker,
			Text:   fmt.Sprintf("%s of worker %s not used here: %s", plural(r.Count, "offer", "offers"), r.Worker, r.Text),
			Cause:  "members may offer only services of their own host, and a limited number of services: a worker is misconfigured or compromised",
			Remedy: "correct what " + r.Worker + " offers; a worker that should not be there is stopped, and its certificate no longer trusted",
			Page:   page("endpoints-left-out"),
		})
	}
	if more := len(f.Refused) - len(found); more > 0 {
		found = append(found, api.Finding{
			Status: api.Failed, Text: fmt.Sprintf("offers of %s more are not used", plural(more, "worker", "workers")),
			Cause: "as above", Remedy: "correct the others first and check again", Page: page("endpoints-left-out"),
		})
	}
	return found
}

func fineOffers(f *Fleet) string { return "all offers of workers are used" }

// serviceNames checks that the certificates of all workers name services, if some do. Where
// names are required, offersUsed reports the others.
func serviceNames(f *Fleet) []api.Finding {
	if f.NamesRequired || f.Named == 0 || len(f.Nameless) == 0 {
		return nil
	}
	all := f.Named + len(f.Nameless)
	return []api.Finding{{
		Status: api.Warning, Subject: f.Nameless[0],
		Text:   fmt.Sprintf("the certificates of %d of %s name no services, and may offer any: %s", len(f.Nameless), plural(all, "worker", "workers"), list(f.Nameless)),
		Cause:  "they were issued before the fleet named services in certificates, or by hand",
		Remedy: "issue them with `tls cert create --service NAME`; when this list is empty, set --require-service-names on all relays",
		Page:   page("endpoints-left-out"),
	}}
}

func fineServiceNames(f *Fleet) string {
	switch {
	case f.NamesRequired:
		return "only workers whose certificates name services may offer them"
	case f.Named == 0:
		return "no certificate names services: every worker may offer any"
	}
	return fmt.Sprintf("the certificates of %s name services; --require-service-names on all relays refuses workers without", plural(f.Named, "worker", "workers"))
}
