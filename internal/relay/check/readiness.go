package check

import (
	"fmt"
	"strings"
)

// ready: a relay that is not ready gets no traffic. One that was drained is as
// somebody wants it.
func ready(f *Fleet) (found []Finding) {
	for _, one := range f.all() {
		if len(one.Reasons) == 0 {
			continue
		}
		finding := Finding{
			Status: Failed, Subject: one.Relay, Passing: true,
			Text:   fmt.Sprintf("%s is not ready: %s", one.Relay, strings.Join(one.Reasons, "; ")),
			Cause:  "load balancers that ask /readyz send it nothing",
			Remedy: fmt.Sprintf("follow the reasons; `relay health --ready` on %s names them as they change", one.Relay),
			Page:   page("relay-not-ready"),
		}
		if one.Reasons[0] == "draining" && len(one.Reasons) == 1 {
			finding.Status, finding.Passing = Warning, false
			finding.Cause = "an operator took it out of rotation"
			finding.Remedy = fmt.Sprintf("`relay undrain` on %s, when it shall get traffic again", one.Relay)
			finding.Page = page("drain-forgotten")
		}
		found = append(found, finding)
	}
	return found
}

func fineReady(f *Fleet) string {
	if n := len(f.all()); n > 1 {
		return fmt.Sprintf("all %d relays are ready", n)
	}
	return f.Self.Relay + " is ready"
}

// viewTrusted: who may be cut off keeps its peers, whatever it sees.
func viewTrusted(f *Fleet) (found []Finding) {
	for _, one := range f.all() {
		if one.Degraded {
			found = append(found, Finding{
				Status: Failed, Subject: one.Relay, Passing: true,
				Text:   fmt.Sprintf("%s lost sight of much of the cluster at once", one.Relay),
				Cause:  "it may be cut off, and keeps its connections until it knows",
				Remedy: fmt.Sprintf("let gossip through between %s and the others, TCP and UDP; if the others really died, it accepts that within minutes", one.Relay),
				Page:   page("view-degraded"),
			})
		}
	}
	return found
}

func fineTrusted(*Fleet) string { return "no relay takes itself for cut off" }

// unproven: a member whose gossip nothing proves.
func unproven(f *Fleet) (found []Finding) {
	for _, one := range f.all() {
		for _, u := range one.Unproven {
			found = append(found, Finding{
				Status: Failed, Subject: u.Member,
				Text:   fmt.Sprintf("%s leaves %s out: %s", one.Relay, u.Member, u.Reason),
				Cause:  "its settings and its certificate name different identities, its certificate is refused, its release does not sign gossip, or its gossip is forged",
				Remedy: fmt.Sprintf("give %s a certificate for its --id, --role and --datacenter, and the release that the others run; if it is not yours, rotate the gossip keys", u.Member),
				Page:   page("member-unproven"),
			})
		}
	}
	return found
}

func fineUnproven(*Fleet) string { return "every member that gossip tells of is proven" }
