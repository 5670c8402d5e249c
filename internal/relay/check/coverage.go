package check

import (
	"fmt"
	"maps"
	"slices"
)

// coverage: every worker has the relays that it should have, by the plans and in fact.
// What counts in fact is the plan without the connections that relays say they lack.
func coverage(f *Fleet) (found []Finding) {
	lacking := map[Missing][]string{} // by whom
	untold := 0
	for _, one := range f.all() {
		for _, m := range one.Missing {
			lacking[m] = append(lacking[m], one.Relay)
		}
		untold += one.MissingCount - len(one.Missing)
	}
	for _, s := range f.Services {
		found = append(found, coverageOf(s, lacking)...)
	}
	if untold > 0 {
		found = append(found, Finding{
			Status: Failed, Passing: true,
			Text:   fmt.Sprintf("%d connections more are missing than could be listed", untold),
			Cause:  "so many at once are a matter of the network or of certificates",
			Remedy: "look at one relay: `relay services SERVICE` shows what is connected",
			Page:   page("links-missing"),
		})
	}
	return found
}

func coverageOf(s Service, lacking map[Missing][]string) (found []Finding) {
	if !s.Planned {
		return []Finding{{
			Status: Warning, Subject: s.Name, Passing: true,
			Text:   fmt.Sprintf("service %s has no endpoint that takes requests", s.Name),
			Cause:  "its workers are draining, unhealthy or gone; requests for it fail",
			Remedy: fmt.Sprintf("start workers that offer %s, or look at their checks: `worker services`", s.Name),
			Page:   page("no-endpoint"),
		}}
	}
	need := min(s.Wanted, s.Relays)
	if need < s.Wanted {
		found = append(found, Finding{
			Status: Warning, Subject: s.Name,
			Text:   fmt.Sprintf("service %s is served by %s, and each worker should have %d", s.Name, plural(s.Relays, "relay", "relays"), s.Wanted),
			Cause:  "there are too few relays, or --relays-per-service is below --min-peers-per-worker; the loss of one costs more than it should",
			Remedy: fmt.Sprintf("start %s more, or set --relays-per-service to %d or more on all relays", plural(s.Wanted-s.Relays, "relay", "relays"), s.Wanted),
			Page:   page("too-few-relays"),
		})
	}
	for _, worker := range slices.Sorted(maps.Keys(s.RelaysPerWorker)) {
		planned := s.RelaysPerWorker[worker]
		without := lacking[Missing{s.Name, worker}]
		connected := max(0, planned-len(without))
		switch {
		case len(without) > 0:
			status := Warning
			if connected < need {
				status = Failed
			}
			found = append(found, Finding{
				Status: status, Subject: worker, Passing: true,
				Text:   fmt.Sprintf("worker %s of %s has %d of %s connected, and needs %d: not %s", worker, s.Name, connected, plural(planned, "relay", "relays"), need, list(without)),
				Cause:  "the service does not listen at the address that its worker tells, a firewall is between, or the worker has just died",
				Remedy: fmt.Sprintf("start the service behind %s, or let TCP through; `relay explain %s --worker %s` on %s shows the address and the reason", worker, s.Name, worker, list(without[:1])),
				Page:   page("links-missing"),
			})
		case planned < need:
			found = append(found, Finding{
				Status: Failed, Subject: worker, Passing: true,
				Text:   fmt.Sprintf("worker %s of %s is in the plan of %s, and needs %d", worker, s.Name, plural(planned, "relay", "relays"), need),
				Cause:  "a relay has just vanished and keeps its place for --member-grace, or the relays near the worker are too few",
				Remedy: "wait for --member-grace; if it stays, `relay plan " + s.Name + "` shows who should connect",
				Page:   page("links-missing"),
			})
		}
	}
	return found
}

func fineCoverage(f *Fleet) string {
	services, workers := 0, 0
	for _, s := range f.Services {
		services++
		workers += len(s.RelaysPerWorker)
	}
	if services == 0 {
		return "no service is offered yet"
	}
	return fmt.Sprintf("%s on %s: every worker has the relays it needs, all connected", plural(services, "service", "services"), plural(workers, "endpoint", "endpoints"))
}
