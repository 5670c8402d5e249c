package check

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/membership/identity"
)

// ErrHangs is why a process is stopped or hangs: its kernel accepts connections, and it answers on
// none.
var ErrHangs = errors.New("accepts connections and does not answer")

// stopping is a way in which workers stop, which has one cause and one remedy.
type stopping struct {
	is     func(error) bool // of the answer over TCP
	what   string           // of several workers
	cause  string
	remedy string // for the worker that its verb names
	page   string
	alive  bool
}

// stoppings are all ways; the last is for all other errors.
var stoppings = []stopping{
	{
		is: refused, page: "member-down",
		what: "have ended: nothing listens at their addresses", cause: "their processes have ended", remedy: "start %s again",
	}, {
		is: func(err error) bool { return errors.Is(err, ErrHangs) }, page: "member-down",
		what: "hang: they accept connections and do not answer", cause: "their processes are frozen or hang",
		remedy: "check on the host of %s what its process waits for (CPU, memory, a disk, a frozen container)",
	}, {
		is: func(err error) bool { return err == nil }, page: "members-disagree", alive: true,
		what: "run and are not in the view", cause: "they have just started, or gossip to them is cut while TCP passes",
		remedy: "check again in a minute; if it stays, allow TCP and UDP between the gossip addresses of %s and of all others",
	}, {
		is: func(error) bool { return true }, page: "member-down",
		what: "do not answer, neither over UDP nor over TCP", cause: "their hosts, or the network to these, are down",
		remedy: "check the host of %s, and the network to it",
	},
}

// vanishing is for workers that were not asked.
var vanishing = stopping{what: "vanished without leaving", cause: "they crashed, were killed, or cannot be reached", remedy: "start %s again, or check its network", page: "member-down"}

// stoppedWorkers are those that stopped in one way.
type stoppedWorkers struct {
	ids      []string
	inView   int
	vanished []time.Time
	reason   error
}

// workersAnswer checks that the workers of the view run, and names those that have vanished from
// it; relaysAnswer does this for relays. Workers that end together have one cause, so all that
// stopped in one way are one finding, whether the view has dropped them yet or not.
func workersAnswer(f *Fleet) (found []api.Finding) {
	of := make([]stoppedWorkers, len(stoppings))
	way := func(err error) *stoppedWorkers {
		i := slices.IndexFunc(stoppings, func(s stopping) bool { return s.is(err) })
		if i == len(stoppings)-1 {
			of[i].reason = err
		}
		return &of[i]
	}
	asked := 0
	for _, p := range f.Pings {
		if p.Role != string(identity.RoleWorker) {
			continue
		}
		asked++
		if p.TCP != nil {
			one := way(p.TCP)
			one.ids, one.inView = append(one.ids, p.ID), one.inView+1
		}
	}
	var unasked stoppedWorkers
	for _, g := range f.FailedWorkers {
		one := &unasked
		if g.Asked {
			one = way(g.TCP)
			asked++
		}
		one.ids, one.vanished = append(one.ids, g.Member.ID), append(one.vanished, g.At)
	}
	for i, one := range of {
		if len(one.ids) > 0 {
			found = append(found, f.stopped(stoppings[i], one, asked))
		}
	}
	if n := len(unasked.ids); n > 0 && len(found) > 0 {
		found[0].Text += fmt.Sprintf("; %s more vanished and were not asked", plural(n, "worker", "workers"))
	} else if n > 0 {
		found = append(found, f.stopped(vanishing, unasked, 0))
	}
	return found
}

// stopped is the finding about the workers that stopped in one way, among those that were asked.
func (f *Fleet) stopped(how stopping, these stoppedWorkers, asked int) api.Finding {
	n, all := len(these.ids), f.Workers+len(f.FailedWorkers)
	text := plural(n, "worker", "workers")
	switch {
	case how.is != nil && asked < all:
		text = fmt.Sprintf("%d of %s asked, of %d in all,", n, plural(asked, "worker", "workers"), all)
	case n < all:
		text = fmt.Sprintf("%d of %s", n, plural(all, "worker", "workers"))
	}
	text += " " + how.what
	if these.reason != nil {
		text += fmt.Sprintf(" (%v)", these.reason)
	}
	if len(these.vanished) > 0 {
		text += f.since(how, these)
	}
	finding := api.Finding{
		Status: api.Failed, Subject: lowest(these.ids), Passing: these.inView > 0 || how.alive,
		Text:   text + ": " + list(these.ids),
		Cause:  how.cause + "; requests go to the other workers",
		Remedy: fmt.Sprintf(how.remedy, lowest(these.ids)) + others(n),
		Page:   page(how.page),
	}
	if these.inView == 0 && !how.alive && !f.manyVanished() {
		finding.Status = api.Warning
		finding.Remedy += "; if gone for good, do nothing"
	}
	return finding
}

// since is when the workers of a finding vanished.
func (f *Fleet) since(how stopping, these stoppedWorkers) string {
	earliest, latest := slices.MinFunc(these.vanished, time.Time.Compare), slices.MaxFunc(these.vanished, time.Time.Compare)
	text, v := " "+span(f.Now.Sub(latest))+" ago", len(these.vanished)
	if v > 1 {
		text = ", the last" + text
	}
	if spread := latest.Sub(earliest); v > 1 && spread < togetherIn {
		text = fmt.Sprintf(" within %s%s", span(max(spread, time.Second)), text)
	}
	switch {
	case how.is == nil: // how.what states that they vanished
		return text
	case v == len(these.ids):
		return "; vanished" + text
	}
	return fmt.Sprintf("; %d vanished%s", v, text)
}

// manyVanished reports whether the fleet lost so much of its workers that this is no usual
// restart: more than the share at which a relay doubts its view.
func (f *Fleet) manyVanished() bool {
	n := len(f.FailedWorkers)
	return n > 1 && 5*n > 2*(f.Workers+n)
}

// togetherIn is the time within which failures have probably one cause: detection takes up
// to this long.
const togetherIn = 30 * time.Second

// others is the part of a remedy for further members that failed with the first.
func others(n int) string {
	switch n {
	case 1:
		return ""
	case 2:
		return "; then the other"
	}
	return "; then the others: many at the same time point to a host, a zone, a roll-out or a switch that they share"
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
		if !g.runs() {
			out[g.Member.ID] = true
		}
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
	if slices.ContainsFunc(f.Pings, func(p Ping) bool { return p.TCP != nil }) {
		stopped += max(0, len(f.Addresses)-1-len(f.Pings)) // 1 is this relay
	}
	return stopped
}

// onlyWorkersStopped reports whether workers ended, hang or vanished, and everything else answers:
// then no relay is cut off.
func (f *Fleet) onlyWorkersStopped() bool {
	if slices.ContainsFunc(f.FailedWorkers, FailedWorker.runs) {
		return false
	}
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
		silent := p.Facts == nil && !errors.Is(p.Err, ErrNoFacts) && !errors.Is(p.Err, ErrBusy)
		if silent || !p.Gone.IsZero() || p.Facts != nil && p.Facts.Back != nil && p.Facts.Back.UDP != "" {
			return false
		}
	}
	return stopped && answered
}

// consequence words a finding that has no remedy of its own.
func consequence(one api.Finding) api.Finding {
	one.FollowsFrom = "workers-answer"
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
	switch {
	case pinged == 0:
		return "no worker to ask"
	case pinged < f.Workers:
		return fmt.Sprintf("%d of %s asked: all run", pinged, plural(f.Workers, "worker", "workers"))
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
