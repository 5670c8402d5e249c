package check_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/relay/check"
	"github.com/ringway/ringway/membership"
)

// Views that differ or are not trusted because of workers that stopped are no fault of the network.
// Where something else than these workers is missing, they may be.
func TestWhatFollowsFromWorkersThatStoppedNeedsNoRemedyOfItsOwn(t *testing.T) {
	seesToo := func(f *check.Fleet, ids ...string) {
		one := f.Peers[1].Facts
		one.MembersSum, one.Members = "9999", append(slices.Clone(f.Self.Members), ids...)
		slices.Sort(one.Members)
		one.MemberCount = len(one.Members)
	}
	unlisted := func(f *check.Fleet, members int) {
		one := f.Peers[1].Facts
		one.MembersSum, one.Members, one.MemberCount = "9999", nil, members
	}
	ends := func(f *check.Fleet, listed int) { f.Peers[1].Facts.Members = f.Peers[1].Facts.Members[:listed] }
	hang := func(f *check.Fleet, id string) {
		f.Pings = append(f.Pings, check.Ping{ID: id, Role: "worker", Err: errors.New("no answer"), TCP: check.ErrHangs})
		f.Addresses[id], f.Self.Members = "10.0.1.9:7401", append(slices.Clone(f.Self.Members), id)
		f.Self.MemberCount++
	}
	for _, c := range []struct {
		name, check string
		wound       func(*check.Fleet)
		follows     bool
	}{
		{"workers vanished", "view-trusted", func(f *check.Fleet) { vanish(f, "x1"); f.Self.Degraded = true }, true},
		{"workers hang", "view-trusted", func(f *check.Fleet) { hang(f, "x1"); f.Peers[0].Facts.Degraded = true }, true},
		{"a relay vanished, too", "view-trusted", func(f *check.Fleet) {
			vanish(f, "x1")
			f.Self.Degraded, f.Peers[1].Facts, f.Peers[1].Err, f.Peers[1].Gone = true, nil, errors.New("timeout"), now
		}, false},
		{"a relay is silent, too", "view-trusted", func(f *check.Fleet) {
			vanish(f, "x1")
			f.Self.Degraded, f.Peers[1].Facts, f.Peers[1].Err = true, nil, errors.New("timeout")
		}, false},
		{"a relay is busy", "view-trusted", func(f *check.Fleet) {
			vanish(f, "x1")
			f.Self.Degraded, f.Peers[1].Facts, f.Peers[1].Err = true, nil, check.ErrBusy
		}, true},
		{"no member answers", "view-trusted", func(f *check.Fleet) { vanish(f, "x1"); f.Self.Degraded, f.Peers, f.Pings = true, nil, nil }, false},
		{"no other relay, but a worker answers", "view-trusted", func(f *check.Fleet) { vanish(f, "x1"); f.Self.Degraded, f.Peers = true, nil }, true},
		{"workers vanished, and one relay lags", "members-agree", func(f *check.Fleet) { vanish(f, "x1", "x2"); seesToo(f, "x2") }, true},
		{"workers hang, and the others have dropped them", "members-agree", func(f *check.Fleet) {
			hang(f, "x1")
			hang(f, "x2")
			f.Peers[0].Facts.MembersSum, f.Peers[1].Facts.MembersSum = "9999", "9999"
		}, true},
		{"workers hang, and not all were asked", "members-agree", func(f *check.Fleet) {
			hang(f, "x1")
			hang(f, "x2")
			f.Pings = f.Pings[:len(f.Pings)-1]
			f.Peers[0].Facts.MembersSum, f.Peers[1].Facts.MembersSum = "9999", "9999"
		}, true},
		{"a worker that runs is missing, too", "members-agree", func(f *check.Fleet) {
			vanish(f, "x1")
			seesToo(f, "x1")
			f.Peers[1].Facts.Members = slices.DeleteFunc(f.Peers[1].Facts.Members, func(id string) bool { return id == "w2" })
			f.Peers[1].Facts.MemberCount--
		}, false},
		{"this relay is missing, too", "members-agree", func(f *check.Fleet) {
			vanish(f, "x1")
			seesToo(f, "x1")
			f.Peers[1].Facts.Members = slices.DeleteFunc(f.Peers[1].Facts.Members, func(id string) bool { return id == "r1" })
			f.Peers[1].Facts.MemberCount--
		}, false},
		{"a stranger is there, too", "members-agree", func(f *check.Fleet) { vanish(f, "x1"); seesToo(f, "x1", "r9") }, false},
		// A relay whose answers travel in clear text lists no members.
		{"which members differ is not listed", "members-agree", func(f *check.Fleet) { vanish(f, "x1"); unlisted(f, 6) }, true},
		{"workers hang, and nothing is listed", "members-agree", func(f *check.Fleet) { hang(f, "x1"); hang(f, "x2"); unlisted(f, 5) }, true},
		{"workers hang, not all were asked, and nothing is listed", "members-agree", func(f *check.Fleet) {
			hang(f, "x1")
			hang(f, "x2")
			f.Pings = f.Pings[:len(f.Pings)-1]
			unlisted(f, 5)
		}, true},
		{"no worker stopped, and nothing is listed", "members-agree", func(f *check.Fleet) { unlisted(f, 6) }, false},
		{"a relay lacks more than stopped, and nothing is listed", "members-agree", func(f *check.Fleet) { vanish(f, "x1"); unlisted(f, 3) }, false},
		{"a relay sees more than stopped, and nothing is listed", "members-agree", func(f *check.Fleet) { vanish(f, "x1"); unlisted(f, 7) }, false},
		{"a relay is not reached over UDP, and nothing is listed", "members-agree", func(f *check.Fleet) {
			vanish(f, "x1")
			unlisted(f, 6)
			f.Pings[0].Err = errors.New("no answer")
		}, false},
		{"a relay does not reach this one over UDP, and nothing is listed", "members-agree", func(f *check.Fleet) {
			vanish(f, "x1")
			unlisted(f, 6)
			f.Peers[0].Facts.Back.UDP = "no answer"
		}, false},
		// The list of a large view ends early.
		{"a part of the difference is listed, and stopped", "members-agree", func(f *check.Fleet) { vanish(f, "u1", "x1"); seesToo(f, "u1", "x1"); ends(f, 4) }, true},
		{"no part of the difference is listed", "members-agree", func(f *check.Fleet) { vanish(f, "x1"); seesToo(f, "x1"); ends(f, 4) }, true},
		{"a part of the difference is listed, and runs", "members-agree", func(f *check.Fleet) {
			vanish(f, "x1", "x2")
			seesToo(f, "x1", "x2")
			f.Peers[1].Facts.Members = slices.DeleteFunc(f.Peers[1].Facts.Members, func(id string) bool { return id == "w2" })
			ends(f, 5)
		}, false},
	} {
		f := healthy()
		c.wound(f)
		found := 0
		for _, one := range check.Judge(f).Findings {
			if one.Check != c.check || one.Status == api.OK {
				continue
			}
			found++
			said := one.FollowsFrom == "workers-answer" && strings.HasPrefix(one.Cause, "a consequence of ") && strings.Contains(one.Remedy, "workers-answer") && !strings.Contains(one.Remedy, "allow TCP")
			if said != c.follows {
				t.Errorf("%s: a consequence: %t, want %t: %+v", c.name, said, c.follows, one)
			}
		}
		if found == 0 {
			t.Errorf("%s: %s found nothing", c.name, c.check)
		}
	}
}

// A relay whose answers travel in clear text counts the connections that it lacks, and lists none.
// As many as workers that stopped have are theirs, and workers-answer reports these.
func TestMissingConnectionsToWorkersThatStoppedNeedNoList(t *testing.T) {
	for _, c := range []struct {
		name    string
		missing int
		wound   func(*check.Fleet)
		found   bool
	}{
		{"no worker stopped", 1, func(*check.Fleet) {}, true},
		{"as many as one worker has", 3, func(f *check.Fleet) { vanish(f, "x1") }, false},
		{"more than one worker has", 4, func(f *check.Fleet) { vanish(f, "x1") }, true},
		{"a relay does not answer", 3, func(f *check.Fleet) { vanish(f, "x1"); f.Peers[1].Facts, f.Peers[1].Err = nil, errors.New("timeout") }, true},
	} {
		f := healthy()
		c.wound(f)
		f.Peers[0].Facts.MissingCount = c.missing
		found := slices.ContainsFunc(check.Judge(f).Findings, func(one api.Finding) bool { return one.Check == "coverage" && one.Status != api.OK })
		if found != c.found {
			t.Errorf("%s: reported %t, want %t", c.name, found, c.found)
		}
	}
}

// Where only a part of a difference is known, the finding names that, and otherwise the numbers.
func TestADifferenceOfMembersIsNamedAsFarAsItIsListed(t *testing.T) {
	for want, members := range map[string][]string{
		"r3 sees other members than r1: it alone has w9":                           {"r1", "r2", "r3", "w1", "w2", "w9"},
		"r3 sees other members than r1: among others it lacks w1; it alone has r9": {"r1", "r2", "r3", "r9", "w2"},
		"r3 sees other members than r1: it sees 6, r1 sees 5":                      {"r1", "r2", "r3"},
		"r3 sees other members than r1: it sees 6, r1 sees 5 ":                     nil,
	} {
		f := healthy()
		one := f.Peers[1].Facts
		one.MembersSum, one.Members, one.MemberCount = "9999", members, 6
		if !slices.ContainsFunc(check.Judge(f).Findings, func(one api.Finding) bool { return one.Check == "members-agree" && one.Text == strings.TrimSpace(want) }) {
			t.Errorf("no finding %q", want)
		}
	}
}

// Of 37 workers 35 freeze. What can be asked at that moment, while the view drops them, and a minute
// later is one finding, begins with the cause, and names no other.
func TestWorkersThatStopTogetherAreOneFinding(t *testing.T) {
	inView := func(f *check.Fleet, i int) {
		f.Workers++
		f.Pings = append(f.Pings, check.Ping{ID: fmt.Sprintf("x%02d", i), Role: "worker", Addr: "10.0.1.1:7401", Err: errors.New("no answer"), TCP: check.ErrHangs})
		f.Keys = append(f.Keys, membership.KeyResult{Member: fmt.Sprintf("x%02d", i), Error: "no answer"})
		lack(f.Peers[0].Facts, fmt.Sprintf("x%02d", i))
	}
	gone := func(f *check.Fleet, i int) {
		vanish(f, fmt.Sprintf("x%02d", i))
		one := &f.FailedWorkers[len(f.FailedWorkers)-1]
		one.At, one.Asked, one.TCP = now.Add(time.Duration(i)*100*time.Millisecond-time.Minute), true, check.ErrHangs
	}
	for name, c := range map[string]struct {
		freeze    func(*check.Fleet, int)
		text, udp string
	}{
		"in the view": {inView, "", "39 members asked over UDP: 4 answer; the others do not answer over TCP either"},
		"while the view drops them": {func(f *check.Fleet, i int) {
			if i < 20 {
				gone(f, i)
			} else {
				inView(f, i)
			}
		}, "; 20 vanished within 1.9s, the last 58.1s ago", "19 members asked over UDP: 4 answer; the others do not answer over TCP either"},
		"gone": {gone, "; vanished within 3.4s, the last 56.6s ago", "4 members asked over UDP: all answer"},
	} {
		f := healthy()
		for i := range 35 {
			c.freeze(f, i)
		}
		var wrong []api.Finding
		for _, one := range check.Judge(f).Findings {
			if one.Status != api.OK {
				wrong = append(wrong, one)
			} else if one.Check == "udp" && one.Text != c.udp {
				t.Errorf("%s: %q, want %q", name, one.Text, c.udp)
			}
		}
		text := "35 of 37 workers hang: they accept connections and do not answer" + c.text + ": x00, x01, x02, x03, x04, x05, x06, x07 and 27 more"
		if len(wrong) != 1 || wrong[0].Check != "workers-answer" || wrong[0].Status != api.Failed || wrong[0].Text != text || !strings.Contains(wrong[0].Remedy, "a zone") {
			t.Errorf("%s: %+v, want %q", name, wrong, text)
		}
	}
}

// A worker that runs and is not in the view did not stop: gossip to it may be cut, and then what
// else is missing is no consequence.
func TestAWorkerThatVanishedAndRunsExplainsNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		wound func(*check.Fleet)
	}{
		{"view-trusted", func(f *check.Fleet) { f.Self.Degraded = true }},
		{"coverage", func(f *check.Fleet) { lack(f.Peers[0].Facts, "w2") }},
	} {
		f := healthy()
		vanish(f, "x1", "w2")
		f.FailedWorkers[0].Asked, f.FailedWorkers[0].TCP = true, refusal
		f.FailedWorkers[1].Asked = true
		c.wound(f)
		if !slices.ContainsFunc(check.Judge(f).Findings, func(one api.Finding) bool {
			return one.Check == c.name && one.Status == api.Failed && one.FollowsFrom == ""
		}) {
			t.Errorf("%s follows from it", c.name)
		}
	}
}

// Whatever befalls many members alike is reported once, with their names.
func TestFindingsWithOneCauseAreGrouped(t *testing.T) {
	f := healthy()
	for i := range 28 {
		f.Pings = append(f.Pings, check.Ping{ID: fmt.Sprintf("x%02d", i), Role: "worker", Addr: "10.0.1.1:7401", Err: errors.New("no answer")})
	}
	var udp []api.Finding
	for _, one := range check.Judge(f).Findings {
		if one.Check == "udp" {
			udp = append(udp, one)
		}
	}
	if len(udp) != 1 || !strings.Contains(udp[0].Text, "the same for 27 more: x01, x02,") {
		t.Errorf("%+v", udp)
	}
}
