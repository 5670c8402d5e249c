package relay

import (
	"fmt"
	"strings"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/statuspage"
	"github.com/ringway/ringway/membership"
)

// notices returns what an operator needs to know first, the worst first.
func (s *statusSource) notices(snapshot *membership.Snapshot, service *routing.Service, f *statuspage.Focus, reasons []process.Reason) []statuspage.Notice {
	var problems, warnings, notes []statuspage.Notice
	for _, reason := range reasons {
		problems = append(problems, readinessNotice(reason))
	}
	if member := s.members.Status(); member.DuplicateAddr != "" {
		problems = append(problems, statuspage.Notice{
			Severity: statuspage.Problem, Runbook: "duplicate-id",
			Text:   "Another live process has the id of this relay, at " + member.DuplicateAddr + "; of the two the one that started last gets the traffic.",
			Remedy: "Give each process an --id of its own.",
		})
	} else if member.DuplicatesSeen > 0 {
		notes = append(notes, statuspage.Notice{
			Severity: statuspage.Note, Runbook: "duplicate-id",
			Text:   "Another live process had the id of this relay: seen " + timesText(member.DuplicatesSeen) + " since the start. It is gone.",
			Remedy: "Give each process an --id of its own, so that it does not come back.",
		})
	}
	if len(reasons) == 0 { // otherwise they are among the reasons
		for _, reason := range s.exceededLimits() {
			problems = append(problems, readinessNotice(reason))
		}
	}
	if n := len(s.members.Unproven()); n > 0 {
		problems = append(problems, statuspage.Notice{
			Severity: statuspage.Problem, Runbook: "member-unproven",
			Text:   fmt.Sprintf("This relay leaves out unproven instances: %d now.", n),
			Remedy: "`relay members --state unproven` shows the reason for each.",
		})
	}
	if snapshot != nil && snapshot.Degraded() {
		problems = append(problems, statuspage.Notice{
			Severity: statuspage.Problem, Runbook: "view-degraded",
			Text:   "This relay lost much of the cluster at the same time; it keeps its peers.",
			Remedy: "Check whether this relay's network is cut off, UDP included. Nothing has to be restarted.",
		})
	}
	if alone(snapshot) && len(reasons) == 0 {
		warnings = append(warnings, statuspage.Notice{
			Severity: statuspage.Warning, Runbook: "alone",
			Text: "This relay sees no other member.", Remedy: "Start workers and relays with --join " + s.GossipAddr() + ", or give this one --join.",
		})
	}
	if a := s.Routes.Agreed(); a.Conflict != "" {
		warnings = append(warnings, statuspage.Notice{
			Severity: statuspage.Warning, Runbook: "settings-differ",
			Text: "Settings of the plan are refused: " + a.Conflict + ".", Remedy: fmt.Sprintf("Give one relay the values that you want with a --plan-version above %d, and reload it.", a.Version),
		})
	} else if a.Lags() {
		notes = append(notes, statuspage.Notice{
			Severity: statuspage.Note, Runbook: "settings-differ",
			Text:   fmt.Sprintf("The plan is made with version %d of its settings, by %s; the configuration of this relay has version %d.", a.Version, a.Author, a.FileVersion),
			Remedy: "Give it that version and the same values, so that they outlive a stop of all relays.",
		})
	}
	if f != nil {
		p, w := serviceNotices(service.Route(), f)
		problems, warnings = append(problems, p...), append(warnings, w...)
	}
	if lost := failedLately(snapshot); lost != "" {
		notes = append(notes, statuspage.Notice{
			Severity: statuspage.Note, Text: "Gone without leaving, within the last hour: " + lost + ".",
		})
	}
	return append(append(problems, warnings...), notes...)
}

// readinessNotice adds the remedy to a reason of Reasons.
func readinessNotice(reason process.Reason) statuspage.Notice {
	n := statuspage.ReasonNotice(reason)
	switch reason.Code {
	case process.Stopping:
		n.Remedy = "It finishes the requests in flight, then it exits."
	case process.Draining:
		n.Remedy, n.Runbook = "`relay undrain` takes it back.", "drain-forgotten"
	case process.NotJoined:
		n.Remedy, n.Runbook = "Check the addresses of --join, and that their gossip port is reachable, over TCP and UDP.", "alone"
	case process.NotSettled, process.NotListening:
		n.Remedy = "It takes a few seconds after a start."
	case process.NothingReached:
		n.Remedy, n.Runbook = "Check the network between this relay and their addresses; it is ready again once one is reached.", "relay-not-ready"
	case process.Stalled:
		n.Remedy, n.Runbook = "Save `relay debug bundle` for a report, then restart it.", "relay-not-ready"
	case process.NoSharedKey:
		n.Remedy, n.Runbook = "It is asked for again by itself; other relays must be reachable on their peer address.", "shared-key-missing"
	}
	return n
}

// serviceNotices returns the notices about the service that the page shows.
func serviceNotices(route *routing.Route, f *statuspage.Focus) (problems, warnings []statuspage.Notice) {
	if f.Ready == 0 {
		return []statuspage.Notice{{
			Severity: statuspage.Problem, Runbook: "no-endpoint",
			Text: fmt.Sprintf("No worker takes requests of %s.", f.Service), Remedy: "Check the workers: worker services, and their health checks.",
		}}, nil
	}
	tally := f.Ring.Tally()
	relays := 0
	for _, a := range f.Ring.Arcs {
		if !a.Absent {
			relays++
		}
	}
	if tally.Below > 0 {
		n := statuspage.Notice{
			Severity: statuspage.Warning, Runbook: "too-few-relays",
			Text: fmt.Sprintf("Of %d workers of %s, %d should have %d relays and %s fewer.", len(f.Ring.Workers), f.Service, tally.Below, f.Ring.Minimum, hasHave(tally.Below)),
		}
		if relays < f.Ring.Minimum {
			n.Remedy = fmt.Sprintf("Only %d serve it: start at least %d more.", relays, f.Ring.Minimum-relays)
		} else {
			n.Remedy = "A relay has vanished; its place is given away when its grace is over."
		}
		warnings = append(warnings, n)
	}
	if n := tally.States[statuspage.Unreachable]; n > 0 {
		warnings = append(warnings, statuspage.Notice{
			Severity: statuspage.Warning, Runbook: "endpoints-unreachable",
			Text:   fmt.Sprintf("This relay cannot connect to %s of %s that gossip reports as alive.", workers(n), f.Service),
			Remedy: "Check that the addresses that they advertise are reachable from here.",
		})
	}
	if n := tally.States[statuspage.Evicted]; n > 0 {
		warnings = append(warnings, statuspage.Notice{
			Severity: statuspage.Warning, Runbook: "peers-evicted",
			Text:   fmt.Sprintf("%s of %s evicted here, for failures or for being far slower than the others.", workers(n), f.Service),
			Remedy: "It is tried again automatically; its last eviction in the table has the reason.",
		})
	}
	if route.Plan != nil && route.Plan.Fallback() != "" {
		warnings = append(warnings, statuspage.Notice{
			Severity: statuspage.Warning, Text: fmt.Sprintf("%s is not planned as --strategy asks for: %s.", f.Service, route.Plan.Fallback()),
		})
	}
	return problems, warnings
}

// mostNamedLost is how many of the failed members are named.
const mostNamedLost = 5

func failedLately(s *membership.Snapshot) string {
	if s == nil {
		return ""
	}
	var ids []string
	for _, d := range s.Departures() {
		if d.Reason == membership.Failed {
			ids = append(ids, d.Member.ID)
		}
	}
	if len(ids) > mostNamedLost {
		return fmt.Sprintf("%s and %d more", strings.Join(ids[:mostNamedLost], ", "), len(ids)-mostNamedLost)
	}
	return strings.Join(ids, ", ")
}

func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

func hasHave(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func timesText(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// alone reports whether the snapshot has no member except this one.
func alone(s *membership.Snapshot) bool { return s == nil || len(s.Members()) <= 1 }
