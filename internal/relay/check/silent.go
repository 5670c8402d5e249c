package check

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/membership/identity"
)

// workersAnswer checks that the workers of the view run, and names those that have vanished
// from it; relaysAnswer does this for relays. Workers that end together have one cause, so all are one finding.
func workersAnswer(f *Fleet) (found []api.Finding) {
	var ended, silent []string
	pinged, reason := 0, ""
	for _, p := range f.Pings {
		if p.Role != string(identity.RoleWorker) {
			continue
		}
		pinged++
		switch {
		case p.TCP == nil:
		case refused(p.TCP):
			ended = append(ended, p.ID)
		default:
			silent, reason = append(silent, p.ID), p.TCP.Error()
		}
	}
	asked := plural(pinged, "worker", "workers")
	if len(ended) > 0 {
		found = append(found, api.Finding{
			Status: api.Failed, Subject: lowest(ended), Passing: true,
			Text:   fmt.Sprintf("nothing listens at the addresses of %d of %s asked: %s", len(ended), asked, list(ended)),
			Cause:  "their processes have ended; the view drops them within seconds, and requests go to the others",
			Remedy: "start them again" + together(len(ended)),
			Page:   page("member-down"),
		})
	}
	if len(silent) > 0 {
		found = append(found, api.Finding{
			Status: api.Failed, Subject: lowest(silent), Passing: true,
			Text:   fmt.Sprintf("%d of %s asked do not answer, neither over UDP nor over TCP: %s (%s)", len(silent), asked, list(silent), reason),
			Cause:  "their processes hang, or their hosts or the network to these are down; the view drops them within seconds",
			Remedy: fmt.Sprintf("check the process and the host of %s", lowest(silent)) + together(len(silent)),
			Page:   page("member-down"),
		})
	}
	if n := len(f.FailedWorkers); n > 0 {
		var gone []string
		latest := f.FailedWorkers[0].At
		earliest := latest
		for _, g := range f.FailedWorkers {
			gone = append(gone, g.Member.ID)
			if g.At.After(latest) {
				latest = g.At
			}
			if g.At.Before(earliest) {
				earliest = g.At
			}
		}
		one := api.Finding{
			Status: api.Warning, Subject: lowest(gone),
			Text:   fmt.Sprintf("worker %s vanished %s ago without leaving", gone[0], span(f.Now.Sub(latest))),
			Cause:  "it crashed, was killed, or cannot be reached; requests go to the other workers",
			Remedy: fmt.Sprintf("start %s again, or check its network; if it is gone for good, do nothing", gone[0]),
			Page:   page("member-down"),
		}
		if n > 1 {
			within := ""
			if spread := latest.Sub(earliest); spread < togetherIn {
				within = fmt.Sprintf(" within %s", span(max(spread, time.Second)))
			}
			one.Text = fmt.Sprintf("%d workers vanished without leaving%s, the last %s ago: %s", n, within, span(f.Now.Sub(latest)), list(gone))
			one.Cause = "they crashed, were killed, or cannot be reached; requests go to the other workers"
			one.Remedy = "start them again, or check their network" + together(n) + "; if they are gone for good, do nothing"
		}
		found = append(found, one)
	}
	return found
}

// togetherIn is the time within which failures have probably one cause: detection takes up
// to this long.
const togetherIn = 30 * time.Second

// together is the part of a remedy for members that fail at the same time.
func together(n int) string {
	if n < 3 {
		return ""
	}
	return "; many at the same time point to a host, a zone, a roll-out or a switch that they share"
}

func lowest(names []string) string { return slices.Min(names) }

// dead returns the members that do not run any more although they are in the view. What the
// other checks find about them results from that.
func (f *Fleet) dead() map[string]bool {
	out := map[string]bool{}
	for _, p := range f.Pings {
		if p.TCP != nil {
			out[p.ID] = true
		}
	}
	for _, g := range f.FailedWorkers {
		out[g.Member.ID] = true
	}
	return out
}

// follows reports whether the absence of these members, and of no other, follows from members
// that ended, hang or vanished. Workers that were not asked may be among them: only a sample is.
func (f *Fleet) follows(ids []string) bool {
	dead, runs := f.dead(), map[string]bool{f.Self.Relay: true}
	for _, p := range f.Pings {
		runs[p.ID] = p.TCP == nil
	}
	some := false
	for _, id := range ids {
		if dead[id] {
			some = true
		} else if _, seen := f.Addresses[id]; runs[id] || !seen {
			return false
		}
	}
	return some
}

// mayFollow is follows for a difference of which only the members in ids are known: nothing but
// workers stopped, ids are among these, and the two relays differ by no more members than that.
func (f *Fleet) mayFollow(ids []string, odd oddOne) bool {
	apart := odd.usual.MemberCount - odd.facts.MemberCount
	return f.onlyWorkersStopped() && (len(ids) == 0 || f.follows(ids)) && max(apart, -apart) <= f.mostStopped()
}

// mostStopped returns how many workers have stopped at most: those that are known, and with them
// all that were not asked if one that was asked has stopped.
func (f *Fleet) mostStopped() int {
	stopped := len(f.dead())
	if len(f.dead()) > len(f.FailedWorkers) {
		stopped += max(0, len(f.Addresses)-1-len(f.Pings)) // 1 is this relay
	}
	return stopped
}

// onlyWorkersStopped reports whether workers ended, hang or vanished, and everything else answers:
// then no relay is cut off.
func (f *Fleet) onlyWorkersStopped() bool {
	stopped := len(f.FailedWorkers) > 0
	answered := false
	for _, p := range f.Pings {
		worker := p.Role == string(identity.RoleWorker)
		if p.Err != nil && !worker {
			return false
		}
		answered = answered || p.Err == nil
		stopped = stopped || worker && p.TCP != nil
	}
	for _, p := range f.Peers {
		silent := p.Facts == nil && !errors.Is(p.Err, ErrNoFacts)
		if silent || !p.Gone.IsZero() || p.Facts != nil && p.Facts.Back != nil && p.Facts.Back.UDP != "" {
			return false
		}
	}
	return stopped && answered
}

// consequence words a finding that has no remedy of its own.
func consequence(one api.Finding) api.Finding {
	one.Cause = "a consequence of the members that ended, hang or vanished"
	one.Remedy = "see workers-answer: when those members are back or dropped everywhere, this ends by itself within minutes"
	return one
}

func fineWorkersAnswer(f *Fleet) string {
	pinged := 0
	for _, p := range f.Pings {
		if p.Role == string(identity.RoleWorker) {
			pinged++
		}
	}
	if pinged == 0 {
		return "no worker to ask"
	}
	return fmt.Sprintf("%s asked: all run", plural(pinged, "worker", "workers"))
}

// mostAlike is how many findings of one check with the same cause are reported one by one.
const mostAlike = 2

// grouped returns the findings of one check with those of the same cause and status beyond
// the first as one, so that a fault of many members fits a screen.
func grouped(found []api.Finding) (out []api.Finding) {
	type kind struct {
		status api.Status
		cause  string
	}
	of := map[kind][]api.Finding{}
	for _, one := range found {
		k := kind{one.Status, one.Cause}
		of[k] = append(of[k], one)
	}
	for _, one := range found {
		k := kind{one.Status, one.Cause}
		same := of[k]
		switch {
		case len(same) == 0: // reported with the first of them
			continue
		case len(same) <= mostAlike:
			out = append(out, one)
			continue
		}
		var subjects []string
		for _, other := range same[1:] {
			subjects = append(subjects, other.Subject)
		}
		one.Text += fmt.Sprintf("; the same for %d more: %s", len(subjects), list(slices.Compact(subjects)))
		out = append(out, one)
		of[k] = nil
	}
	return out
}
