package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/membership"
)

// idsUnique checks that every ID belongs to one process.
func idsUnique(f *Fleet) (found []api.Finding) {
	for _, d := range f.Duplicates {
		finding := api.Finding{
			Status: api.Failed, Subject: d.ID, Passing: true,
			Text:   fmt.Sprintf("two processes run as %s: the cluster follows the one at %s, and leaves out the one at %s", d.ID, d.Addr, d.Other),
			Cause:  "each process needs an id of its own; the one that started last wins, and the other gets no traffic although it runs",
			Remedy: fmt.Sprintf("stop one of the two, or give it another --id; the usual causes are a cloned host, a unit that was started twice, or a deployment with a fixed --id (%s is in the log of both)", d.ID),
			Page:   page("duplicate-id"),
		}
		if leftOut(f, d) {
			finding.Text = fmt.Sprintf("this process is left out: another one runs as %s at %s, started later, and the cluster follows that one", d.ID, d.Addr)
			finding.Cause = "each process needs an id of its own; nothing else is judged here, because the others answer that process and not this one"
			finding.Remedy = fmt.Sprintf("stop one of the two, or start this one with another --id; for the state of the fleet run `relay check` on any other relay, or on the host of %s", d.Addr)
		}
		found = append(found, finding)
	}
	return found
}

// leftOut reports whether the cluster leaves out the relay that checks.
func leftOut(f *Fleet, d membership.Duplicate) bool {
	return d.ID == f.Self.Relay && d.Other == f.Self.GossipAddr
}

func fineIDs(*Fleet) string { return "every id is that of one process" }

// membersAgree checks that all relays see the same members, with the same epochs.
func membersAgree(f *Fleet) (found []api.Finding) {
	for _, odd := range disagreeing(f, func(one *Facts) string { return one.MembersSum }) {
		text := fmt.Sprintf("%s sees other members than %s", odd.facts.Relay, odd.usual.Relay)
		lacks, surplus, whole := difference(odd.usual, odd.facts)
		switch {
		case whole:
			text += ": " + describe(lacks, surplus)
		case len(lacks)+len(surplus) > 0:
			text += ": among others " + describe(lacks, surplus)
		default:
			text += fmt.Sprintf(": it sees %d, %s sees %d", odd.facts.MemberCount, odd.usual.Relay, odd.usual.MemberCount)
		}
		finding := api.Finding{
			Status: api.Failed, Subject: odd.facts.Relay, Passing: true, Text: text,
			Cause:  "a partition, traffic that passes one way only, or a member that some keep out; their plans differ as long as it lasts",
			Remedy: fmt.Sprintf("allow TCP and UDP between the gossip addresses of %s and all others; is --advertise-addr what the others can reach? Run `relay check` on %s", odd.facts.Relay, odd.facts.Relay),
			Page:   page("members-disagree"),
		}
		differ := slices.Concat(lacks, surplus)
		if whole && f.follows(differ) || !whole && f.mayFollow(differ, odd) {
			finding = consequence(finding)
		}
		found = append(found, finding)
	}
	return found
}

func fineMembers(f *Fleet) string {
	if len(f.all()) == 1 {
		return fmt.Sprintf("this relay sees %s; no other to compare with", plural(f.Self.MemberCount, "member", "members"))
	}
	return fmt.Sprintf("%d relays see the same %s", len(f.all()), plural(f.Self.MemberCount, "member", "members"))
}

// servicesAgree checks that all relays know the same offers. It skips relays that see
// other members, because their offers differ for that reason.
func servicesAgree(f *Fleet) (found []api.Finding) {
	apart := map[string]bool{}
	for _, odd := range disagreeing(f, func(one *Facts) string { return one.MembersSum }) {
		apart[odd.facts.Relay] = true
	}
	for _, odd := range disagreeing(f, func(one *Facts) string { return one.ServicesSum }) {
		if apart[odd.facts.Relay] {
			continue
		}
		found = append(found, api.Finding{
			Status: api.Failed, Subject: odd.facts.Relay, Passing: true,
			Text:   fmt.Sprintf("%s knows other services than %s, and sees the same members", odd.facts.Relay, odd.usual.Relay),
			Cause:  "records of workers do not get through: exchanges between members fail, or a record was refused",
			Remedy: fmt.Sprintf("on %s, check for exchanges that fail (ringway_advertise_exchanges_total) and allow TCP to its gossip address", odd.facts.Relay),
			Page:   page("catalogue-disagrees"),
		})
	}
	return found
}

func fineServices(f *Fleet) string {
	if len(f.all()) == 1 {
		return fmt.Sprintf("this relay knows %s; no other to compare with", plural(len(f.Services), "service", "services"))
	}
	return fmt.Sprintf("%d relays know the same %s", len(f.all()), plural(len(f.Services), "service", "services"))
}

// oddOne is a relay whose value is not the usual one, and one that has the usual value.
type oddOne struct{ facts, usual *Facts }

// disagreeing returns the relays whose value is not the most frequent one; among equals
// that of this relay counts.
func disagreeing(f *Fleet, value func(*Facts) string) (out []oddOne) {
	all := f.all()
	count := map[string]int{}
	for _, one := range all {
		count[value(one)]++
	}
	usual := all[0]
	for _, one := range all {
		if count[value(one)] > count[value(usual)] {
			usual = one
		}
	}
	for _, one := range all {
		if value(one) != value(usual) {
			out = append(out, oddOne{one, usual})
		}
	}
	return out
}

// difference returns the members that only one of two relays sees, and whether these are all:
// the list of a large view ends early, and that of a relay whose answers travel in clear text
// is empty. Lists are sorted, so two of them are compared up to the end of the shorter part.
func difference(usual, odd *Facts) (lacks, surplus []string, whole bool) {
	whole = true
	theirs, its := usual.Members, odd.Members
	for _, one := range []*Facts{usual, odd} {
		if n := len(one.Members); n != one.MemberCount || n == 0 {
			whole = false
			if n == 0 {
				return nil, nil, false
			}
			theirs, its = upTo(theirs, one.Members[n-1]), upTo(its, one.Members[n-1])
		}
	}
	missing, more := set(theirs), set(its)
	for _, id := range its {
		delete(missing, id)
	}
	for _, id := range theirs {
		delete(more, id)
	}
	return slices.Collect(maps.Keys(missing)), slices.Collect(maps.Keys(more)), whole
}

// upTo returns the part of a sorted list up to an ID.
func upTo(ids []string, last string) []string {
	i, _ := slices.BinarySearch(ids, last+"\x00")
	return ids[:i]
}

// describe returns a difference as text.
func describe(lacks, surplus []string) string {
	var parts []string
	if len(lacks) > 0 {
		parts = append(parts, "it lacks "+list(lacks))
	}
	if len(surplus) > 0 {
		parts = append(parts, "it alone has "+list(surplus))
	}
	if len(parts) == 0 {
		return "the same ids, but not all relays know yet that one of them restarted"
	}
	return strings.Join(parts, "; ")
}

func set(ids []string) map[string]bool {
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out
}

const (
	// skewWarning is more than the difference of synchronised clocks; skewFailure is near
	// the five minutes by which certificates are dated back.
	skewWarning = time.Second
	skewFailure = 2 * time.Minute
)

// clocks checks how far the clocks of the others differ from this one, at least. The
// answer was written between the question and its arrival. Half of the round trip is the
// best estimate, and the other half its error, which is subtracted.
func clocks(f *Fleet) (found []api.Finding) {
	for _, p := range f.Peers {
		if p.Facts == nil || !p.Gone.IsZero() {
			continue
		}
		skew := p.Facts.Time.Sub(p.Asked.Add(p.Took / 2))
		size, word := skew, "ahead"
		if skew < 0 {
			size, word = -skew, "behind"
		}
		size -= p.Took / 2
		if size < skewWarning {
			continue
		}
		finding := api.Finding{
			Status: api.Warning, Subject: p.ID,
			Text:   fmt.Sprintf("the clock of %s is at least %s %s that of %s", p.ID, span(size), word, f.Self.Relay),
			Cause:  "certificates seem not yet valid or over, and of two lives of a member the wrong one can seem the later",
			Remedy: "synchronise the clocks of both hosts (chrony, systemd-timesyncd)",
			Page:   page("clock-skew"),
		}
		if size >= skewFailure {
			finding.Status = api.Failed
		}
		found = append(found, finding)
	}
	return found
}

func fineClocks(f *Fleet) string {
	if len(f.all()) == 1 {
		return "no other relay to compare clocks with"
	}
	return fmt.Sprintf("the clocks of %d relays differ by less than %s", len(f.all()), skewWarning)
}
