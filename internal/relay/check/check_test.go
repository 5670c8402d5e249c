package check_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/relay/check"
	"github.com/ringway/ringway/membership"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// healthy is a fleet in which all is well: three relays, two workers, certificates and
// gossip keys.
func healthy() *check.Fleet {
	f := &check.Fleet{
		Now: now, Self: facts("r1"), Workers: 2,
		Services:  []check.Service{{Name: "echo", Wanted: 3, Plan: planned(3, map[string]int{"w1": 3, "w2": 3})}},
		Keys:      []membership.KeyResult{{Member: "w1", Fingerprints: []string{"aaaa"}}, {Member: "w2", Fingerprints: []string{"aaaa"}}},
		Addresses: map[string]string{"r1": "10.0.0.1:7400", "r2": "10.0.0.2:7400", "r3": "10.0.0.3:7400", "w1": "10.0.1.1:7401", "w2": "10.0.1.2:7401"},
	}
	for _, id := range []string{"r2", "r3"} {
		theirs := facts(id)
		theirs.Back = &check.Back{}
		f.Peers = append(f.Peers, check.Peer{ID: id, Addr: theirs.PeerAddr, Facts: &theirs, Asked: now.Add(-2 * time.Millisecond), Took: 2 * time.Millisecond})
		f.Pings = append(f.Pings, check.Ping{ID: id, Role: "relay", Addr: theirs.GossipAddr})
	}
	for _, id := range []string{"w1", "w2"} {
		f.Pings = append(f.Pings, check.Ping{ID: id, Role: "worker", Addr: f.Addresses[id]})
	}
	return f
}

func planned(relays int, perWorker map[string]int) *api.Plan {
	return &api.Plan{Relays: make([]api.PlannedRelay, relays), RelaysPerWorker: perWorker}
}

func facts(id string) check.Facts {
	return check.Facts{
		Relay: id, Role: "relay", Version: "v1.2.3", Time: now.Add(-time.Millisecond),
		Settings:   []check.Setting{{Name: "min-peers-per-worker", Value: "3"}, {Name: "strategy", Value: "projection"}, {Name: "skip-relay"}},
		MembersSum: "1111", ServicesSum: "2222", Members: []string{"r1", "r2", "r3", "w1", "w2"}, MemberCount: 5,
		GossipKeys: []string{"aaaa"}, SharedKey: "ssss",
		Certificate: &check.Certificate{NotBefore: now.Add(-10 * day), NotAfter: now.Add(80 * day), AuthorityBefore: now.Add(-300 * day), AuthorityAfter: now.Add(3350 * day)},
		Descriptors: check.Descriptors{Open: 40, Limit: 65536, Links: 2, Requests: 10_000},
		GossipAddr:  "10.0.0." + id[1:] + ":7400", PeerAddr: "10.0.0." + id[1:] + ":7420",
	}
}

var refusal = &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// TestEachTroubleIsFoundAndHasARemedy breaks one thing of a healthy fleet at a time.
// The expectation is "check status subject: a part of the text", and nothing else may
// be found.
func TestEachTroubleIsFoundAndHasARemedy(t *testing.T) {
	for _, c := range []struct {
		name  string
		wound func(*check.Fleet)
		want  []string
		// remedy is a part of that of the first finding.
		remedy string
	}{
		{"nothing", func(*check.Fleet) {}, nil, ""},
		{"no other relay", func(f *check.Fleet) { f.Peers, f.Pings = nil, nil }, nil, ""},
		{"no certificates, no keys", func(f *check.Fleet) {
			f.Keys = nil
			for _, one := range all(f) {
				one.Certificate, one.GossipKeys, one.SharedKey = nil, nil, ""
			}
		}, nil, ""},

		{"workers that advertise different things", func(f *check.Fleet) {
			f.Services[0].Selections = []check.Vote{{Value: "stable", Workers: 2}, {Value: "p2c", Workers: 1}}
			f.Services[0].RelayVotes = []check.Vote{{Value: "", Workers: 2}, {Value: "64", Workers: 1}}
		}, []string{
			"advertised-agree warning echo: the workers of echo advertise different values of selection: stable by 2 workers, p2c by 1 worker; used is stable",
			"advertised-agree warning echo: the workers of echo advertise different values of relays: none by 2 workers, 64 by 1 worker; used is the setting --relays-per-service",
		}, "give all workers of echo the same selection="},
		{"workers that advertise too few relays", func(f *check.Fleet) {
			f.Services[0].RelayVotes = []check.Vote{{Value: "1", Workers: 2}}
		}, []string{"coverage warning echo: the workers of echo advertise relays=1, which the relays raise to 3"}, "advertise relays=3 or more on the workers of echo"},
		{"workers that advertise more relays than there are", func(f *check.Fleet) {
			f.Services[0].Plan = planned(1, map[string]int{"w1": 1, "w2": 1})
			f.Services[0].RelayVotes = []check.Vote{{Value: "4", Workers: 2}}
		}, []string{"coverage warning echo: is served by 1 relay, and each worker should have 3"}, "start 2 relays more"},
		{"offers at listeners of relays", func(f *check.Fleet) {
			f.Services[0].Refused = map[string]string{"w3": "w3 (10.0.0.1:7430): a listener"}
			f.Peers[0].Facts.Missing, f.Peers[0].Facts.MissingCount = []check.Missing{{Service: "echo", Worker: "w2", Refused: "w2 (10.0.0.2:80): its own"}}, 1
		}, []string{
			"offers-used failed w2: the offer of echo by worker w2 is not used by r2: w2 (10.0.0.2:80): its own",
			"offers-used failed w3: the offer of echo by worker w3 is not used by r1: w3 (10.0.0.1:7430): a listener",
		}, "correct what w2 offers; `relay explain echo --worker w2` on r2"},
		{"only offers at listeners of relays", func(f *check.Fleet) {
			f.Services[0].Plan, f.Services[0].Refused = nil, map[string]string{"w1": "w1 (10.0.0.1:7430): a listener"}
		}, []string{"offers-used failed w1: not used by r1"}, "correct what w1 offers"},
		{"a worker that offers the address of another", func(f *check.Fleet) {
			f.Refused = []advertise.Refusal{{Worker: "w1", Reason: "foreign_host", Count: 2, Text: "address 10.0.0.9:80 is not on its host"}}
		}, []string{"offers-used failed w1: 2 offers of worker w1 not used here: address 10.0.0.9:80 is not on its host"}, "correct what w1 offers"},
		{"some workers whose certificates name no services", func(f *check.Fleet) {
			f.Named, f.Nameless = 1, []string{"w2"}
		}, []string{"service-names warning w2: the certificates of 1 of 2 workers name no services, and may offer any: w2"}, "set --require-service-names on all relays"},
		{"no certificate that names services", func(f *check.Fleet) { f.Nameless = []string{"w1", "w2"} }, nil, ""},
		{"names of services everywhere", func(f *check.Fleet) { f.Named = 2 }, nil, ""},
		{"names of services that are required", func(f *check.Fleet) {
			f.Named, f.Nameless, f.NamesRequired = 1, []string{"w2"}, true // its offers are refused, which offers-used reports
		}, nil, ""},
		{"an id of two workers", func(f *check.Fleet) {
			f.Duplicates = []membership.Duplicate{{ID: "w1", Addr: "10.0.1.1:7401", Other: "10.0.1.9:7401"}}
		}, []string{"ids-unique failed w1: the cluster follows the one at 10.0.1.1:7401, and leaves out the one at 10.0.1.9:7401"}, "another --id"},
		{"this relay keeps an id that another has, too", func(f *check.Fleet) {
			f.Duplicates = []membership.Duplicate{{ID: "r1", Addr: "10.0.0.1:7400", Other: "10.0.0.9:7400"}}
		}, []string{"ids-unique failed r1: two processes run as r1"}, "another --id"},
		{"a relay that hangs", func(f *check.Fleet) { f.Peers[1].Facts, f.Peers[1].Err = nil, errors.New("deadline exceeded") },
			[]string{"relays-answer failed r3: does not answer at 10.0.0.3:7420: deadline exceeded"}, "allow TCP"},
		{"a relay that was partitioned away", func(f *check.Fleet) {
			f.Peers[1].Facts, f.Peers[1].Err, f.Peers[1].Gone = nil, errors.New("deadline exceeded"), now.Add(-time.Minute)
		}, []string{"relays-answer failed r3: vanished 1m0s ago"}, "network of r3"},
		{"one that was partitioned long ago", func(f *check.Fleet) {
			f.Peers[1].Facts, f.Peers[1].Err, f.Peers[1].Gone = nil, errors.New("deadline exceeded"), now.Add(-20*time.Minute)
		}, []string{"relays-answer warning r3: vanished 20 minutes ago"}, "network of r3"},
		{"a partition of gossip alone", func(f *check.Fleet) { f.Peers[1].Gone = now.Add(-time.Minute) },
			[]string{"relays-answer failed r3: runs and is not in the view"}, "run `relay check` on r3"},
		{"a relay that crashed", func(f *check.Fleet) {
			f.Peers[1].Facts, f.Peers[1].Err, f.Peers[1].Gone = nil, fmt.Errorf("ask: %w", refusal), now.Add(-time.Minute)
		}, []string{"relays-answer warning r3: nothing listens at"}, "start r3 again"},
		{"a relay of an older version", func(f *check.Fleet) {
			f.Peers[1].Facts, f.Peers[1].Err = nil, fmt.Errorf("%w: it answers 404", check.ErrNoFacts)
		}, []string{"relays-answer warning r3: does not answer facts (older version, or a program with selection/router?)"}, "if r3 runs the relay's binary, upgrade it"},
		{"a relay that answers too many others", func(f *check.Fleet) {
			f.Peers[1].Facts, f.Peers[1].Err = nil, fmt.Errorf("it answers 429: %w", check.ErrBusy)
		}, []string{"relays-answer warning r3: is busy with the questions of other checks: it is not compared"}, "check again later"},
		{"a worker that crashed", func(f *check.Fleet) {
			vanish(f, "w3")
		},
			[]string{"workers-answer warning w3: 1 of 3 workers vanished without leaving 1m0s ago: w3"}, "start w3 again"},
		{"a worker that crashed, and its host answers", func(f *check.Fleet) {
			vanish(f, "w3")
			f.FailedWorkers[0].Asked, f.FailedWorkers[0].TCP = true, refusal
		}, []string{"workers-answer warning w3: 1 of 3 workers have ended: nothing listens at their addresses; vanished 1m0s ago: w3"}, "start w3 again; if gone for good"},
		{"a worker that vanished and hangs", func(f *check.Fleet) {
			vanish(f, "w3")
			f.FailedWorkers[0].Asked, f.FailedWorkers[0].TCP = true, check.ErrHangs
		}, []string{"workers-answer warning w3: 1 of 3 workers hang: they accept connections and do not answer; vanished 1m0s ago: w3"}, "check on the host of w3 what its process waits for"},
		{"a worker whose host vanished", func(f *check.Fleet) {
			vanish(f, "w3")
			f.FailedWorkers[0].Asked, f.FailedWorkers[0].TCP = true, errors.New("i/o timeout")
		}, []string{"workers-answer warning w3: 1 of 3 workers do not answer, neither over UDP nor over TCP (i/o timeout); vanished 1m0s ago: w3"}, "check the host of w3, and the network to it; if gone"},
		{"a worker that vanished and runs", func(f *check.Fleet) {
			vanish(f, "w3")
			f.FailedWorkers[0].Asked = true
		}, []string{"workers-answer failed w3: 1 of 3 workers run and are not in the view; vanished 1m0s ago: w3"}, "allow TCP and UDP between the gossip addresses of w3"},
		{"workers that vanished, and not all were asked", func(f *check.Fleet) {
			vanish(f, "w3", "w4", "w5")
			f.FailedWorkers[0].Asked, f.FailedWorkers[0].TCP = true, check.ErrHangs
		}, []string{"workers-answer failed w3: 1 of 3 workers asked, of 5 in all, hang: they accept connections and do not answer; vanished 1m0s ago: w3; 2 workers more vanished and were not asked"}, "check on the host of w3"},
		{"workers that ended, one of them for a minute", func(f *check.Fleet) {
			vanish(f, "w3")
			f.FailedWorkers[0].Asked, f.FailedWorkers[0].TCP = true, refusal
			f.Pings[2].Err, f.Pings[2].TCP = errors.New("no answer"), refusal
		}, []string{"workers-answer failed w1: 2 of 3 workers have ended: nothing listens at their addresses; 1 vanished 1m0s ago: w1, w3"}, "start w1 again; then the other"},
		{"workers that vanished one after the other", func(f *check.Fleet) {
			vanish(f, "w3", "w4")
			f.Workers, f.FailedWorkers[0].At = 40, now.Add(-3*time.Minute)
		}, []string{"workers-answer warning w3: 2 of 42 workers vanished without leaving, the last 1m0s ago: w3, w4"}, "start w3 again"},
		{"workers that stopped in different ways", func(f *check.Fleet) {
			f.Workers = 40 // of which two were asked
			f.Pings[2].Err, f.Pings[2].TCP = errors.New("no answer"), refusal
			f.Pings[3].Err, f.Pings[3].TCP = errors.New("no answer"), check.ErrHangs
		}, []string{"workers-answer failed w1: 1 of 2 workers asked, of 40 in all, have ended", "workers-answer failed w2: 1 of 2 workers asked, of 40 in all, hang"}, "start w1 again"},

		{"a relay that is not ready", func(f *check.Fleet) { f.Peers[0].Facts.Reasons = []string{"not joined yet"} },
			[]string{"ready failed r2: not joined yet"}, "relay health --ready"},
		{"a relay that is drained", func(f *check.Fleet) { f.Self.Reasons = []string{"draining"} },
			[]string{"ready warning r1: draining"}, "relay undrain"},

		{"a relay at its limit of members", func(f *check.Fleet) { f.Peers[0].Facts.Limits = []string{"--max-members is reached"} },
			[]string{"limits failed r2: --max-members is reached"}, "raise --max-members on all members"},

		{"another minimum", func(f *check.Fleet) { f.Peers[1].Facts.Settings[0].Value = "5" },
			[]string{"settings-agree failed r3: --min-peers-per-worker is 5 on r3, and 3 on r1, r2"}, "set --min-peers-per-worker 3 on r3 (RINGWAY_MIN_PEERS_PER_WORKER"},
		{"this relay is the odd one", func(f *check.Fleet) { f.Self.Settings[1].Value = "rendezvous" },
			[]string{"settings-agree failed r1: --strategy is rendezvous on r1, and projection on r2, r3"}, "set --strategy projection on r1"},
		{"a setting of one relay only", func(f *check.Fleet) { f.Self.Settings[2].Value = "echo=r9" },
			[]string{"settings-agree failed r1: --skip-relay is echo=r9 on r1, and not set on r2, r3"}, ""},
		{"a gate without the cookie and the strategy of the relays", func(f *check.Fleet) { otherPicks(f) },
			[]string{"settings-agree failed r3: --selection is p2c on r3, and echo=stable on r1, r2", "settings-agree failed r3: --session-cookie is not set on r3, and echo=sid on r1, r2"}, "set --selection echo=stable on r3"},
		{"a gate without them that plans with the settings of the fleet", func(f *check.Fleet) {
			otherPicks(f)
			for _, one := range all(f) {
				one.Plan = &check.Plan{Version: 8, Author: "r2", Hash: "aa", FileVersion: 8, FileHash: "aa", FromFleet: true}
			}
		}, nil, ""},
		{"a relay that picks otherwise", func(f *check.Fleet) {
			for _, one := range all(f) {
				one.Settings = append(one.Settings, check.Setting{Name: "selection", Value: "p2c"})
			}
			f.Peers[1].Facts.Settings[3].Value = "stable"
		}, []string{"settings-agree failed r3: --selection is stable on r3, and p2c on r1, r2"}, "set --selection p2c on r3"},
		{"a gate that finds keys elsewhere", func(f *check.Fleet) {
			for _, one := range all(f) {
				one.Settings = append(one.Settings, check.Setting{Name: "key-source", Value: "header:Ringway-Key"})
			}
			f.Peers[1].Facts.Role, f.Peers[1].Facts.Settings[3].Value = "gate", "cookie:sid;caller"
		}, []string{"settings-agree failed r3: --key-source is cookie:sid;caller on r3, and header:Ringway-Key on r1, r2"}, "(RINGWAY_KEY_SOURCE, or the file) and reload it (restart it unless only the file changes)"},
		{"a worker that busy relays overload", func(f *check.Fleet) {
			f.Services[0].Plan.Load, f.Services[0].Plan.Strategy = api.Load{Least: 0.8, Most: 1.21}, affinity.Projection
		}, []string{"coverage warning echo: a worker of echo gets 1.21 times its share"}, "--what-if strategy=rendezvous"},
		{"zones that may load their workers more", func(f *check.Fleet) {
			f.Services[0].Plan.Load, f.Services[0].LoadWanted = api.Load{Least: 0.8, Most: 1.21}, 1.2
		}, nil, ""},
		{"settings of the plan that lag in a file", func(f *check.Fleet) {
			for _, one := range all(f) {
				one.Plan = &check.Plan{Version: 8, Author: "r2", Hash: "aa", FileVersion: 8, FileHash: "aa", FromFleet: true}
			}
			f.Self.Plan.FileVersion, f.Self.Plan.FileHash = 7, "bb"
			f.Peers[1].Facts.Plan.FileHash = "cc"
		}, []string{"plan-agree warning r1, r3: the configuration of r1, r3 does not have version 8"}, "--plan-version 8"},
		{"other settings of the plan in a file of the version in use", func(f *check.Fleet) {
			for _, one := range all(f) {
				one.Plan = &check.Plan{Version: 8, Author: "r2", Hash: "aa", FileVersion: 8, FileHash: "aa", FromFleet: true}
			}
			f.Self.Plan.FileHash = "bb" // with a cookie that the others did not have when they began
		}, []string{"plan-agree warning r1: the configuration of r1 does not have version 8"}, "--plan-version 9"},
		{"two values of one version of the plan", func(f *check.Fleet) {
			for _, one := range all(f) {
				one.Plan = &check.Plan{Version: 8, Author: "r2", Hash: "aa", FileVersion: 8, FileHash: "aa", FromFleet: true}
			}
			f.Self.Plan.Hash, f.Self.Plan.FileHash = "bb", "bb"
		}, []string{"plan-agree failed : version 8 of the settings of the plan has 2 different values"}, "--plan-version 9"},
		{"a relay that does not follow the fleet", func(f *check.Fleet) {
			for _, one := range all(f) {
				one.Plan = &check.Plan{Version: 8, Author: "r2", Hash: "aa", FileVersion: 8, FileHash: "aa", FromFleet: true}
			}
			*f.Self.Plan = check.Plan{Version: 7, Hash: "aa", FileVersion: 7, FileHash: "aa"}
		}, []string{"plan-agree failed r1: the plan is made with the relay's own settings, and version 8 is in use"}, "--plan-from-fleet true"},
		{"a relay that refuses the settings of the fleet", func(f *check.Fleet) {
			for _, one := range all(f) {
				one.Plan = &check.Plan{Version: 8, Author: "r2", Hash: "aa", FileVersion: 8, FileHash: "aa", FromFleet: true}
			}
			f.Self.Plan.Version = 7
		}, []string{"plan-agree failed r1: the plan is made with settings of an earlier version than 8, which r2 uses"}, "settings of the plan refused"},
		{"no version of the plan, and a relay of an earlier release", func(f *check.Fleet) {
			f.Self.Plan, f.Peers[0].Facts.Plan = &check.Plan{Hash: "aa", FileHash: "aa"}, &check.Plan{Hash: "bb", FileHash: "bb"}
		}, nil, ""},
		{"a tie counts this relay's", func(f *check.Fleet) {
			f.Peers = f.Peers[:1]
			f.Peers[0].Facts.Settings[0].Value = "2"
		}, []string{"settings-agree failed r2: --min-peers-per-worker is 2 on r2, and 3 on r1"}, ""},
		{"a setting that a later version does not have", func(f *check.Fleet) { f.Peers[0].Facts.Settings = f.Peers[0].Facts.Settings[:1] }, nil, ""},

		{"other members", func(f *check.Fleet) {
			f.Peers[1].Facts.MembersSum, f.Peers[1].Facts.ServicesSum = "9999", "8888"
			f.Peers[1].Facts.Members, f.Peers[1].Facts.MemberCount = []string{"r1", "r2", "r3", "w9"}, 4
		}, []string{"members-agree failed r3: it lacks w1, w2; it alone has w9"}, "--advertise-addr"},
		{"another life of a member", func(f *check.Fleet) { f.Peers[1].Facts.MembersSum = "9999" },
			[]string{"members-agree failed r3: one of them restarted"}, ""},
		{"other services", func(f *check.Fleet) { f.Peers[1].Facts.ServicesSum = "9999" },
			[]string{"services-agree failed r3: knows other services than r1"}, "exchanges"},
		{"a view that is not trusted", func(f *check.Fleet) { f.Self.Degraded = true },
			[]string{"view-trusted failed r1: lost much"}, "allow TCP and UDP for gossip"},
		{"workers that vanished together, and a view that is not trusted for it", func(f *check.Fleet) {
			vanish(f, "x1", "x2", "x3")
			f.Self.Degraded, f.Peers[0].Facts.Degraded = true, true
		}, []string{
			"workers-answer failed x1: 3 of 5 workers vanished without leaving within 1s, the last 1m0s ago: x1, x2, x3",
			"view-trusted failed r1: lost much", "view-trusted failed r2: lost much",
		}, "start x1 again, or check its network; then the others: many"},
		{"workers that one relay still sees", func(f *check.Fleet) {
			vanish(f, "x1", "x2", "x3")
			f.Peers[1].Facts.MembersSum = "9999"
			f.Peers[1].Facts.Members, f.Peers[1].Facts.MemberCount = append(slices.Clone(f.Self.Members), "x2", "x3"), 7
		}, []string{
			"workers-answer failed x1: 3 of 5 workers vanished without leaving within 1s, the last 1m0s ago: x1, x2, x3",
			"members-agree failed r3: it alone has x2, x3",
		}, "start x1 again, or check its network; then the others: many"},
		{"processes that were refused", func(f *check.Fleet) {
			f.Strangers = []membership.Refused{
				{Host: "10.0.0.8", Field: "cluster", Err: errors.New(`cluster mismatch: ours "shop", theirs "shpo"`), Count: 1, Last: now.Add(-time.Second)},
				{Host: "10.0.0.9", Field: "certificate", Err: errors.New("certificate refused"), Count: 32, Last: now.Add(-time.Minute)},
			}
		}, []string{
			`refusals warning 10.0.0.8: 10.0.0.8 did not become a member, 1 time, the last time 1s ago: cluster mismatch: ours "shop", theirs "shpo"`,
			"refusals warning 10.0.0.9: 10.0.0.9 did not become a member, 32 times, the last time 1m0s ago: certificate refused",
		}, "`worker health --ready` on 10.0.0.8 has its side"},
		{"an unproven member", func(f *check.Fleet) {
			f.Peers[0].Facts.Unproven = []check.Unproven{{Member: "w7", Reason: "it gossips the role \"relay\""}}
		}, []string{"unproven failed w7: r2 leaves w7 out"}, "certificate for its --id"},

		{"a worker that one relay lacks", func(f *check.Fleet) { lack(f.Peers[0].Facts, "w2") },
			[]string{"coverage failed w2: has 2 of 3 relays connected, and needs 3: not r2"}, "relay explain echo --worker w2"},
		{"a worker that has enough without one", func(f *check.Fleet) {
			f.Services[0].Plan.RelaysPerWorker["w2"] = 4
			lack(f.Peers[0].Facts, "w2")
		}, []string{"coverage warning w2: has 3 of 4 relays connected"}, ""},
		{"a worker that no relay reaches", func(f *check.Fleet) {
			for _, one := range all(f) {
				lack(one, "w2")
			}
		}, []string{"coverage failed w2: has 0 of 3 relays connected, and needs 3: not r1, r2, r3"}, "start the service behind w2"},
		{"more missing than told", func(f *check.Fleet) { f.Self.MissingCount = 7 },
			[]string{"coverage failed : 7 connections more"}, ""},
		{"a place kept for a relay that vanished", func(f *check.Fleet) { f.Services[0].Plan.RelaysPerWorker["w1"] = 2 },
			[]string{"coverage failed w1: in the plan of 2 relays, and needs 3"}, "--member-grace"},
		{"two relays only", func(f *check.Fleet) {
			f.Services[0].Plan = planned(2, map[string]int{"w1": 2, "w2": 2})
		}, []string{"coverage warning echo: served by 2 relays, and each worker should have 3"}, "start 1 relay more"},
		{"a service without endpoints", func(f *check.Fleet) { f.Services[0] = check.Service{Name: "echo", Wanted: 3} },
			[]string{"coverage warning echo: no endpoint"}, "worker services"},
		{"workers whose checks fail", func(f *check.Fleet) { f.Workers, f.Idle = 4, []string{"w3", "w4"} },
			[]string{"coverage warning w3: no service is offered by 2 of 4 workers: w3, w4"}, "`worker services` on the host of w3"},
		{"a worker that offers nothing and hangs", func(f *check.Fleet) {
			f.Idle = []string{"w1"}
			f.Pings[2].Err, f.Pings[2].TCP = errors.New("no answer"), check.ErrHangs
		}, []string{"workers-answer failed w1: 1 of 2 workers hang"}, ""},
		{"two services that are probably one", func(f *check.Fleet) {
			other := f.Services[0]
			other.Name = "Echo"
			f.Services = append(f.Services, other)
		}, []string{"coverage warning echo: the services Echo and echo differ only in case"}, "the same name"},

		{"a certificate of 90 days with 17 left", func(f *check.Fleet) {
			f.Self.Certificate.NotAfter = now.Add(17 * day)
			f.Self.Certificate.NotBefore = now.Add(-73 * day)
		},
			[]string{"certificates warning r1: ends in 17 days"}, "relay tls cert create"},
		{"one of a peer with half a day left", func(f *check.Fleet) { f.Peers[1].Facts.Certificate.NotAfter = now.Add(day / 2) },
			[]string{"certificates failed r3: ends in 12 hours"}, "renew it"},
		{"one that has ended", func(f *check.Fleet) { f.Peers[1].Facts.Certificate.NotAfter = now.Add(-time.Hour) },
			[]string{"certificates failed r3: ended 60 minutes ago"}, "renew it"},
		{"an authority that ends", func(f *check.Fleet) { f.Self.Certificate.AuthorityAfter = now.Add(day / 3) },
			[]string{"certificates failed r1: the authority of the certificate of r1 ends in 8 hours"}, "--tls-ca"},
		{"files that cannot be used", func(f *check.Fleet) { f.Self.Certificate.Problem = "half written" },
			[]string{"certificates warning r1: half written"}, "relay tls info"},
		{"a deny list that cannot be used", func(f *check.Fleet) { f.Peers[1].Facts.Certificate.DenyProblem = "line 2: what" },
			[]string{"certificates failed r3: line 2: what"}, "config validate"},
		{"one of an ingress with half a day left", func(f *check.Fleet) {
			f.Peers[1].Facts.Ingress = &check.IngressCertificate{NotBefore: now.Add(-80 * day), NotAfter: now.Add(day / 2)}
		}, []string{"certificates failed r3: a certificate of the ingress of r3 ends in 12 hours"}, "--ingress-tls-cert"},
		{"files of an ingress that cannot be used", func(f *check.Fleet) {
			f.Self.Ingress = &check.IngressCertificate{NotBefore: now.Add(-10 * day), NotAfter: now.Add(80 * day), Problem: "half written"}
		}, []string{"certificates warning r1: cannot use the files of its ingress: half written"}, "relay tls info"},
		{"a relay without a certificate", func(f *check.Fleet) { f.Peers[1].Facts.Certificate = nil },
			[]string{"certificates failed r3: has no certificate"}, "--tls-cert"},

		{"a clock that is ahead", func(f *check.Fleet) { f.Peers[1].Facts.Time = now.Add(90 * time.Second) },
			[]string{"clocks warning r3: at least 1m30s ahead"}, "synchronise"},
		{"a clock that is far behind", func(f *check.Fleet) { f.Peers[1].Facts.Time = now.Add(-time.Hour) },
			[]string{"clocks failed r3: 59 minutes behind"}, "synchronise"},
		{"an answer so slow that it tells nothing", func(f *check.Fleet) {
			f.Peers[1].Took, f.Peers[1].Asked, f.Peers[1].Facts.Time = 4*time.Second, now.Add(-4*time.Second), now
		}, nil, ""},

		{"another gossip key in use", func(f *check.Fleet) { f.Peers[1].Facts.GossipKeys = []string{"bbbb", "aaaa"} },
			[]string{"gossip-keys failed r3: encrypts gossip with the key bbbb, r1 with aaaa"}, "relay keys use"},
		{"a rotation that is not finished", func(f *check.Fleet) { f.Keys[1].Fingerprints = []string{"aaaa", "bbbb"} },
			[]string{"gossip-keys warning w2: has the gossip keys aaaa bbbb"}, "relay keys remove"},
		{"keys in another order", func(f *check.Fleet) {
			f.Self.GossipKeys = []string{"aaaa", "bbbb", "cccc"}
			f.Peers[0].Facts.GossipKeys, f.Peers[1].Facts.GossipKeys = []string{"aaaa", "cccc", "bbbb"}, f.Self.GossipKeys
			f.Keys = nil
		}, nil, ""},
		{"no gossip key", func(f *check.Fleet) { f.Peers[1].Facts.GossipKeys = nil },
			[]string{"gossip-keys failed r3: with the key none"}, ""},
		{"a worker that does not tell", func(f *check.Fleet) { f.Keys[0] = membership.KeyResult{Member: "w1", Error: "refused"} },
			[]string{"gossip-keys warning w1: refused"}, "allow TCP"},
		{"another shared key", func(f *check.Fleet) { f.Peers[1].Facts.SharedKey = "tttt" },
			[]string{"shared-key warning r3: with the key tttt, r1 with ssss"}, "--shared-key-file"},
		{"a shared key that is not told", func(f *check.Fleet) { f.Peers[1].Facts.SharedKey = "" }, nil, ""},

		{"a member that UDP does not reach", func(f *check.Fleet) { f.Pings[2].Err = errors.New("no answer") },
			[]string{"udp failed w1: worker w1 does not answer over UDP at 10.0.1.1:7401"}, "allow UDP"},
		{"a worker that has ended", func(f *check.Fleet) { f.Pings[2].Err, f.Pings[2].TCP = errors.New("no answer"), refusal },
			[]string{"workers-answer failed w1: 1 of 2 workers have ended: nothing listens at their addresses: w1"}, "start w1 again"},
		{"a worker that hangs", func(f *check.Fleet) {
			f.Pings[2].Err, f.Pings[2].TCP = errors.New("no answer"), check.ErrHangs
			lack(f.Peers[0].Facts, "w1")
			f.Keys[0] = membership.KeyResult{Member: "w1", Error: "refused"}
		}, []string{"workers-answer failed w1: 1 of 2 workers hang: they accept connections and do not answer: w1"}, "check on the host of w1 what its process waits for"},
		{"UDP that does not come back", func(f *check.Fleet) { f.Peers[1].Facts.Back.UDP = "no answer" },
			[]string{"udp failed r1: r3 does not reach r1 over UDP at 10.0.0.1:7400"}, "--advertise-addr here"},
		{"a peer address that others do not reach", func(f *check.Fleet) { f.Peers[1].Facts.Back.Peer = "no route to host" },
			[]string{"addresses failed r1: r3 cannot connect to r1 at 10.0.0.1:7420: no route to host"}, "--peer-addr"},
		{"loopback, and others are elsewhere", func(f *check.Fleet) { f.Self.PeerAddr = "127.0.0.1:7420" },
			[]string{"addresses failed r1: the peer address 127.0.0.1:7420, and r1 is on another host"}, ""},
		{"all on loopback", func(f *check.Fleet) {
			for id := range f.Addresses {
				f.Addresses[id] = "127.0.0.1:7400"
			}
			f.Self.GossipAddr, f.Self.PeerAddr = "127.0.0.1:7400", "127.0.0.1:7420"
		}, nil, ""},
		{"every interface", func(f *check.Fleet) { f.Peers[0].Facts.PeerAddr = "0.0.0.0:7420" },
			[]string{"addresses failed r2: 0.0.0.0:7420, which no host has"}, "--peer-addr"},

		{"too few descriptors for the plan", func(f *check.Fleet) {
			f.Self.Descriptors = check.Descriptors{Open: 90, Limit: 256, Links: 200, Requests: 1}
		},
			[]string{"descriptors failed r1: may have 256 files open"}, "LimitNOFILE="},
		{"nearly all in use", func(f *check.Fleet) { f.Self.Descriptors.Open = 60_000 },
			[]string{"descriptors warning r1: 60000 of 65536"}, "raise the limit"},
		{"too few for the requests", func(f *check.Fleet) { f.Self.Descriptors.Limit = 1024 },
			[]string{"descriptors warning r1: it leaves 479 requests at a time, and --max-in-flight is 10000"}, "--max-in-flight"},
		{"the limit of a usual host, and --max-in-flight untouched", func(f *check.Fleet) { f.Self.Descriptors.Limit = 4096 }, nil, ""},
		{"a system that does not tell", func(f *check.Fleet) { f.Self.Descriptors = check.Descriptors{Links: 9999} }, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			c.wound(f)
			report := check.Judge(f)
			var trouble []api.Finding
			said := map[string]bool{}
			for _, one := range report.Findings {
				said[one.Check] = true
				if one.Status == api.OK {
					continue
				}
				trouble = append(trouble, one)
				if one.Text == "" || one.Cause == "" || one.Remedy == "" {
					t.Errorf("it does not say all: %+v", one)
				}
				if _, err := os.Stat(filepath.Join("..", "..", "..", one.Page)); one.Page == "" || err != nil {
					t.Errorf("%s: page %q: %v", one.Check, one.Page, err)
				}
			}
			for _, name := range check.Names() {
				if !said[name] {
					t.Errorf("check %s passed in silence", name)
				}
			}
			if len(trouble) != len(c.want) {
				t.Fatalf("found %+v, want %q", trouble, c.want)
			}
			for i, want := range c.want {
				head, part, _ := strings.Cut(want, ": ")
				got := trouble[i]
				if fmt.Sprintf("%s %s %s", got.Check, got.Status, got.Subject) != head || !strings.Contains(got.Text, part) {
					t.Errorf("found %+v, want %q", got, want)
				}
				if i == 0 && !strings.Contains(got.Remedy, c.remedy) {
					t.Errorf("remedy %q lacks %q", got.Remedy, c.remedy)
				}
			}
			worst := api.OK
			for _, one := range trouble {
				if worst != api.Failed {
					worst = one.Status
				}
			}
			if report.Status != worst || report.Warnings+report.Failures != len(trouble) {
				t.Errorf("status %s with %d and %d, want %s", report.Status, report.Warnings, report.Failures, worst)
			}
		})
	}
}

func all(f *check.Fleet) []*check.Facts {
	return []*check.Facts{&f.Self, f.Peers[0].Facts, f.Peers[1].Facts}
}

// otherPicks makes r3 a gate without the cookie and the strategy of the relays.
func otherPicks(f *check.Fleet) {
	for _, one := range all(f) {
		one.Settings = append(one.Settings, check.Setting{Name: "selection", Value: "echo=stable"}, check.Setting{Name: "session-cookie", Value: "echo=sid"})
	}
	gate := f.Peers[1].Facts
	gate.Role, gate.Settings[3].Value, gate.Settings[4].Value = "gate", "p2c", ""
}

func lack(one *check.Facts, worker string) {
	one.Missing, one.MissingCount = append(one.Missing, check.Missing{Service: "echo", Worker: worker}), one.MissingCount+1
}

func vanish(f *check.Fleet, workers ...string) {
	for _, id := range workers {
		f.FailedWorkers = append(f.FailedWorkers, check.FailedWorker{Departure: membership.Departure{Member: membership.Member{ID: id}, Reason: membership.Failed, At: now.Add(-time.Minute)}})
	}
}

// A relay that lost much of the cluster keeps the workers that vanished in its plans. They are
// not among those with all connections.
func TestEndpointsThatThePlanKeepsForVanishedWorkersAreCountedApart(t *testing.T) {
	f := healthy()
	vanish(f, "x1", "x2")
	for _, id := range []string{"x1", "x2", "x3"} { // x3 vanished so long ago that no relay reports it
		f.Services[0].Plan.RelaysPerWorker[id] = 3
	}
	f.Addresses["w2"] = "" // an attached worker
	for _, one := range check.Judge(f).Findings {
		if want := "1 service on 2 endpoints: every worker has the relays it needs, all connected; the plans keep 3 endpoints more, whose workers do not answer or are not in the view"; one.Check == "coverage" && one.Text != want {
			t.Errorf("%s %q, want %q", one.Status, one.Text, want)
		}
	}
}

func TestALifeIsJudgedByItsLength(t *testing.T) {
	for _, c := range []struct {
		life, left time.Duration
		want       api.Status
	}{
		{365 * day, 74 * day, api.OK}, {365 * day, 72 * day, api.Warning}, {365 * day, 25 * time.Hour, api.Warning}, {365 * day, 23 * time.Hour, api.Failed},
		{30 * day, 8 * day, api.OK}, {30 * day, 6 * day, api.Warning}, {30 * day, 23 * time.Hour, api.Failed},
		{day, 23 * time.Hour, api.OK}, {day, 5 * time.Hour, api.Warning}, {day, time.Hour, api.Failed},
		{time.Hour, 50 * time.Minute, api.OK}, {time.Hour, time.Minute, api.Failed}, {time.Hour, -time.Minute, api.Failed},
	} {
		f := healthy()
		f.Self.Certificate.NotAfter = now.Add(c.left)
		f.Self.Certificate.NotBefore = f.Self.Certificate.NotAfter.Add(-c.life)
		report := check.Judge(f)
		i := slices.IndexFunc(report.Findings, func(one api.Finding) bool { return one.Check == "certificates" })
		if got := report.Findings[i].Status; got != c.want {
			t.Errorf("%v left of %v: %s, want %s", c.left, c.life, got, c.want)
		}
	}
}

func TestOnlyWhatMayPassIsWorthAnotherLook(t *testing.T) {
	f := healthy()
	if check.Judge(f).Passing() {
		t.Error("a healthy fleet is looked at again")
	}
	f.Self.Certificate.NotAfter = now
	if check.Judge(f).Passing() {
		t.Error("a certificate does not come back to life")
	}
	f.Self.MembersSum = "9999"
	if !check.Judge(f).Passing() {
		t.Error("views that differ may be on their way to each other")
	}
}

func TestFactsTravelWholeAndBounded(t *testing.T) {
	f := facts("r1")
	for i := range 10_000 {
		f.Members = append(f.Members, fmt.Sprintf("%063d", i))
		f.Missing = append(f.Missing, check.Missing{Service: strings.Repeat("s", 63), Worker: strings.Repeat("w", 63)})
	}
	f.MissingCount = len(f.Missing)
	body, err := f.Encode()
	if err != nil || len(body) > check.MaxFacts {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	got, err := check.DecodeFacts(strings.NewReader(string(body)))
	if err != nil || got.Relay != "r1" || len(got.Missing) != check.MaxMissing || got.MissingCount != 10_000 || !got.Certificate.NotAfter.Equal(f.Certificate.NotAfter) {
		t.Errorf("%v %v", got, err)
	}
	for name, body := range map[string]string{
		"nothing": "", "garbage": "<html>", "too much": `{"relay":"` + strings.Repeat("x", check.MaxFacts) + `"}`, "another format": `{"format":2}`, "no format": `{}`,
	} {
		if _, err := check.DecodeFacts(strings.NewReader(body)); err == nil {
			t.Errorf("%s was taken for facts", name)
		}
	}
}

// A relay whose id another process took over is in no view. What it sees of the others
// is right for that process, and for this one it would be one firewall after the other.
func TestARelayThatLostItsIDReportsOnlyThat(t *testing.T) {
	f := healthy()
	f.Duplicates = []membership.Duplicate{{ID: "r1", Addr: "10.0.0.9:7400", Other: f.Self.GossipAddr}}
	f.Peers[0].Facts, f.Peers[0].Err = nil, errors.New("deadline exceeded")
	f.Peers[1].Facts.Back = &check.Back{UDP: "no answer", Peer: "refused"}
	f.Pings[0].Err = errors.New("no answer")
	report := check.Judge(f)
	if len(report.Findings) != 1 || report.Failures != 1 {
		t.Fatalf("%+v", report.Findings)
	}
	got := report.Findings[0]
	if got.Check != "ids-unique" || got.Subject != "r1" || got.Page != "docs/operations/duplicate-id.md" ||
		!strings.Contains(got.Text, "this process is left out: another one runs as r1 at 10.0.0.9:7400") ||
		!strings.Contains(got.Remedy, "start this one with another --id") {
		t.Errorf("%+v", got)
	}
}

func TestTheTextOfAnotherRelayCannotControlATerminal(t *testing.T) {
	f := healthy()
	f.Peers[0].Facts.Reasons = []string{"\x1b[2J\r\nall is well" + strings.Repeat("x", 1<<20)}
	for _, one := range check.Judge(f).Findings {
		if strings.ContainsAny(one.Text, "\x1b\r\n") || len(one.Text) > 4096 {
			t.Errorf("%.100q", one.Text)
		}
	}
}

// A relay with another setting than the others is found, and the remedy names it.
func Example() {
	fleet := healthy()
	fleet.Peers[1].Facts.Settings[0].Value = "5"
	report := check.Judge(fleet)
	for _, f := range report.Findings {
		if f.Status != api.OK {
			fmt.Println(f.Check, f.Status)
			fmt.Println(f.Text)
			fmt.Println(f.Page)
		}
	}
	fmt.Println(report.Status, report.Failures)
	// Output:
	// settings-agree failed
	// --min-peers-per-worker is 5 on r3, and 3 on r1, r2
	// docs/operations/settings-differ.md
	// failed 1
}

// The fields of a report are for scripts: they do not change their names.
func TestTheReportAsJSON(t *testing.T) {
	f := healthy()
	f.Peers[1].Facts.Settings[0].Value = "5"
	got, err := json.MarshalIndent(check.Judge(f), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/report.json")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		err = os.WriteFile("testdata/report.json", append(got, '\n'), 0o600)
		want = append(got, '\n')
	}
	if err != nil || string(want) != string(got)+"\n" {
		t.Errorf("%v: the report is now\n%s", err, got)
	}
}
