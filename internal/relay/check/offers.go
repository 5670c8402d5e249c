package check

import (
	"cmp"
	"fmt"
	"strings"
)

// Vote is one value that workers of a service advertise for the service as a whole,
// and how many do. The value of a worker that advertises none is empty.
type Vote struct {
	Value   string
	Workers int
}

// Refusal is what of a worker's offer is not used here; see advertise.Refusal.
type Refusal struct {
	Worker, Reason, Text string
	Count                int
}

// advertisedAgree: what workers advertise for a whole service counts by majority, so
// a minority does not get what it asks for.
func advertisedAgree(f *Fleet) (found []Finding) {
	for _, s := range f.Services {
		for _, about := range []struct {
			option, setting string
			votes           []Vote
		}{{"selection", "--selection", s.Selections}, {"relays", "--relays-per-service", s.RelayVotes}} {
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
			found = append(found, Finding{
				Status: Warning, Subject: s.Name,
				Text:   fmt.Sprintf("the workers of %s advertise different values of %s: %s; used is %s", s.Name, about.option, strings.Join(said[:min(len(said), mostNamed)], ", "), used),
				Cause:  "a roll-out is under way, or some workers are configured otherwise; most workers decide, and of equally many the smaller value",
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

// offersUsed: nothing that workers offer is refused by the rules of this relay.
func offersUsed(f *Fleet) (found []Finding) {
	for _, r := range f.Refused[:min(len(f.Refused), mostNamed)] {
		found = append(found, Finding{
			Status: Failed, Subject: r.Worker,
			Text:   fmt.Sprintf("%s of worker %s not used here: %s", plural(r.Count, "offer", "offers"), r.Worker, r.Text),
			Cause:  "members may offer what is on their own host, and so many services: a worker is set up wrongly, or taken over",
			Remedy: "correct what " + r.Worker + " offers; a worker that should not be there is stopped, and its certificate no longer trusted",
			Page:   page("endpoints-left-out"),
		})
	}
	if more := len(f.Refused) - len(found); more > 0 {
		found = append(found, Finding{
			Status: Failed, Text: fmt.Sprintf("offers of %s more are not used", plural(more, "worker", "workers")),
			Cause: "as above", Remedy: "correct the others first and check again", Page: page("endpoints-left-out"),
		})
	}
	return found
}

func fineOffers(f *Fleet) string { return "all offers of workers are used" }
