package routing

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
)

// planned are settings with a version and a number of relays per worker.
func planned(version uint64, m int) PlanSettings {
	c := DefaultPlanSettings()
	c.Version, c.Minimums.PeersPerWorker = version, m
	return c
}

// says are statements of relays, in the order of their ids.
type says map[string]advertise.PlanSettings

func (s says) All() func(func(string, *advertise.RelayStatement) bool) {
	return func(yield func(string, *advertise.RelayStatement) bool) {
		ids := make([]string, 0, len(s))
		for id := range s {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		for _, id := range ids {
			if !yield(id, &advertise.RelayStatement{Plan: s[id]}) {
				return
			}
		}
	}
}

func stated(version uint64, m int) advertise.PlanSettings {
	return advertise.PlanSettings{Version: version, Body: planned(version, m).Text()}
}

// step is one input of an agreement, and what must be in use after it.
type step struct {
	own     PlanSettings
	others  says
	version uint64
	m       int
	// events are "version by author" for adoptions, "reason relay" for refusals.
	events []string
}

func TestRelaysUseTheHighestVersionAndKeepWhatTheyUse(t *testing.T) {
	for name, test := range map[string]struct {
		unfirm, alone bool // it does not know the others yet; it does not follow the fleet
		steps         []step
	}{
		"no version: each its own": {steps: []step{
			{planned(0, 3), says{"r2": stated(0, 5)}, 0, 3, nil},
			{planned(0, 4), says{"r2": stated(0, 5)}, 0, 4, []string{"0 by r1"}},
		}},
		"a higher version of another relay": {steps: []step{
			{planned(0, 3), says{"r2": stated(8, 5)}, 8, 5, []string{"8 by r2"}},
			{planned(0, 3), says{"r2": stated(8, 5)}, 8, 5, nil},
		}},
		"it outlives its author, and names it": {steps: []step{
			{planned(7, 3), says{"r3": {Version: 8, Author: "r2", Body: planned(8, 5).Text()}}, 8, 5, []string{"8 by r2"}},
			{planned(7, 3), nil, 8, 5, nil},
		}},
		"the own configuration, reloaded": {steps: []step{
			{planned(7, 3), says{"r2": stated(7, 3)}, 7, 3, nil},
			{planned(8, 5), says{"r2": stated(7, 3)}, 8, 5, []string{"8 by r1"}},
			{planned(9, 3), says{"r2": stated(8, 5)}, 9, 3, []string{"9 by r1"}},
		}},
		"a restart with an old file": {unfirm: true, steps: []step{
			{planned(7, 4), says{"r2": stated(8, 5), "r3": stated(8, 5)}, 8, 5, []string{"8 by r2"}},
		}},
		"a restart with other values of the version in use": {unfirm: true, steps: []step{
			{planned(8, 4), says{"r2": stated(8, 5)}, 8, 5, []string{"conflict r1", "8 by r2"}},
			{planned(8, 4), says{"r2": stated(8, 5)}, 8, 5, nil},
		}},
		"equal versions with other values": {steps: []step{
			{planned(8, 4), says{"r2": stated(8, 5)}, 8, 4, []string{"conflict r2"}},
			{planned(8, 4), says{"r2": stated(8, 5)}, 8, 4, nil},
			{planned(9, 4), says{"r2": stated(8, 5)}, 9, 4, []string{"9 by r1"}},
		}},
		"split versions heal by the majority": {steps: []step{
			{planned(8, 4), says{"r2": stated(8, 5), "r3": stated(8, 4)}, 8, 4, []string{"conflict r2"}},
			{planned(8, 4), says{"r2": stated(8, 5), "r3": stated(8, 5)}, 8, 5, []string{"conflict r1", "8 by r2"}},
		}},
		"half are no majority": {steps: []step{
			{planned(8, 4), says{"r2": stated(8, 5), "r3": stated(8, 5), "r4": stated(8, 4)}, 8, 4, []string{"conflict r2", "conflict r3"}},
		}},
		"two values of a new version: those of most relays": {steps: []step{
			{planned(7, 3), says{"r2": stated(8, 4), "r3": stated(8, 5), "r4": stated(8, 5)}, 8, 5, []string{"conflict r2", "8 by r3"}},
		}},
		"a downgrade by another relay": {steps: []step{
			{planned(8, 4), says{"r2": stated(7, 5), "r3": stated(6, 6)}, 8, 4, nil},
		}},
		"a downgrade of the own file": {steps: []step{
			{planned(8, 4), nil, 8, 4, nil},
			{planned(7, 5), nil, 8, 4, nil},
			{planned(0, 5), nil, 8, 4, nil},
		}},
		"the own file with other values of the version in use": {steps: []step{
			{planned(8, 4), nil, 8, 4, nil},
			{planned(8, 5), nil, 8, 4, []string{"conflict r1"}},
			{planned(8, 5), nil, 8, 4, nil},
		}},
		"hostile values": {steps: []step{
			{planned(8, 4), says{"r2": stated(9, 2)}, 8, 4, []string{"invalid r2"}},
			{planned(8, 4), says{"r2": stated(9, 2)}, 8, 4, nil},
			{planned(8, 4), says{"r2": {Version: MaxPlanVersion + 1}}, 8, 4, []string{"invalid r2"}},
			{planned(8, 4), says{"r2": stated(10, 2), "r3": stated(9, 5)}, 9, 5, []string{"invalid r2", "9 by r3"}},
		}},
		"a relay that does not follow": {alone: true, steps: []step{
			{planned(7, 4), says{"r2": stated(8, 5)}, 7, 4, nil},
			{planned(6, 3), says{"r2": stated(8, 5)}, 6, 3, []string{"6 by r1"}},
		}},
		"its own statement is none of another relay": {steps: []step{
			{planned(7, 4), says{"r1": stated(8, 5)}, 7, 4, nil},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgreement("r1", test.steps[0].own, !test.alone)
			a.firm = !test.unfirm
			for i, s := range test.steps {
				var got []string
				for _, e := range a.merge(s.others.All(), s.own, !test.alone) {
					if e.refused == "" {
						got = append(got, fmt.Sprintf("%d by %s", e.stated.Version, e.relay))
					} else if got = append(got, e.refused+" "+e.relay); e.err == nil {
						t.Error("a refusal without a reason")
					}
				}
				in := a.agreed()
				if in.Version != s.version || in.Minimums.PeersPerWorker != s.m || !slices.Equal(got, s.events) {
					t.Errorf("step %d: version %d with m=%d after %q, want %d with %d after %q", i+1, in.Version, in.Minimums.PeersPerWorker, got, s.version, s.m, s.events)
				}
				if out := a.inUse.stated(); out.Version != s.version || out.Body != planned(s.version, s.m).Text() {
					t.Errorf("step %d: states %+v", i+1, out)
				}
			}
		})
	}
}

func TestWhatARelayRemembersOfRefusedSettingsIsBounded(t *testing.T) {
	a := newAgreement("r1", planned(8, 4), true)
	a.firm = true
	for i := range 10 * maxReportedPlans {
		a.merge(says{"r2": {Version: uint64(9 + i), Body: "strategy=none"}}.All(), planned(8, 4), true)
	}
	if len(a.reported) > maxReportedPlans {
		t.Errorf("%d refusals are remembered, want at most %d", len(a.reported), maxReportedPlans)
	}
}

// What cannot be stated would hold back the traffic of the relay, which is in the same statement.
func TestSettingsWithoutAVersionCanBeStatedHoweverLongTheyAre(t *testing.T) {
	cookies := map[string]string{}
	for i := range 1000 {
		cookies[fmt.Sprintf("service-%d", i)] = "sid"
	}
	own := DefaultPlanSettings().WithNeeds(StrategiesConfig{SessionCookies: cookies})
	if err := own.Stateable(); err == nil {
		t.Fatal("the settings are not long enough for this test")
	}
	if stated := newAgreement("r1", own, true).inUse.stated(); len(stated.Body) > advertise.MaxPlanBody || stated.Version != 0 {
		t.Errorf("version %d with %d bytes is stated", stated.Version, len(stated.Body))
	}
}

func TestSettingsSurviveTheirText(t *testing.T) {
	c := PlanSettings{
		PlanConfig: affinity.PlanConfig{
			RelaysPerService: 7, Minimums: affinity.Minimums{PeersPerWorker: 4, PeersPerRelay: 5}, PeersPerTier: 6, ZoneSlack: 1.25,
			IndexSource: affinity.IndexRank, Strategy: affinity.Rendezvous,
		},
		MaxRelaysPerService: 9, Skip: map[string][]string{"a": {"r 1;&=", "r2"}, "b": {"r1"}},
		Selections: map[string]Need{"": NeedAll, "a": NeedAll, "b": NeedNone, "c": NeedVersion, "d": NeedAll}, Cookies: map[string]Need{"a": NeedAll, "b": NeedNone},
	}
	got, err := ParsePlanSettings(0, c.Text())
	if err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("%q became %+v, %v", c.Text(), got, err)
	}
	if got, err := ParsePlanSettings(3, ""); err != nil || got.Version != 3 || got.Text() != DefaultPlanSettings().Text() {
		t.Errorf("settings that are left out: %+v, %v", got, err)
	}
	if _, err := ParsePlanSettings(3, "min-peers-per-worker=5&relays-per-service=4"); err == nil {
		t.Error("fewer relays for a service than each of its workers needs are not refused")
	}
	if _, err := ParsePlanSettings(3, c.Text()+"&later-setting=1"); err != nil {
		t.Errorf("a setting of a later release: %v", err)
	}
	if !reflect.DeepEqual(fieldsOf(PlanSettings{}), []string{"Version", "PlanConfig", "MaxRelaysPerService", "Skip", "Selections", "Cookies"}) {
		t.Error("PlanSettings has another field: add it to planFields, and here")
	}
	ofOneService := []string{"Service", "Relays", "Skip", "Workers", "WorkersOrdered", "WholeRange", "Previous"}
	if got := slices.DeleteFunc(fieldsOf(affinity.PlanConfig{}), func(name string) bool { return slices.Contains(ofOneService, name) }); !reflect.DeepEqual(got, []string{"RelaysPerService", "Minimums", "PeersPerTier", "ZoneSlack", "IndexSource", "Strategy"}) {
		t.Errorf("affinity.PlanConfig has other settings, %q: add them to planFields, and here", got)
	}
}

func fieldsOf(v any) (names []string) {
	for i := range reflect.TypeOf(v).NumField() {
		names = append(names, reflect.TypeOf(v).Field(i).Name)
	}
	return names
}

func TestSettingsBeyondTheirBoundsAreRefusedWithTheirName(t *testing.T) {
	for _, text := range []string{
		"min-peers-per-worker=2", "min-peers-per-worker=-1", "min-peers-per-worker=99999999999999999999", "min-peers-per-worker=1025",
		"min-peers-per-relay=0", "min-peers-per-tier=0", "relays-per-service=-1", "relays-per-service=0", "max-relays-per-service=0", "max-relays-per-service=1025",
		"index-source=dice", "strategy=", "strategy=projection&strategy=rendezvous", "skip-relay=echo", "skip-relay=%2Fa%3Dr1", "skip-relay=echo%3D",
		"selection=", "selection=stable", "selection=all+", "selection=all+%2Fa", "selection=all+a&selection=none+a", "selection=all&selection=none", "session-cookie=version+a", "session-cookie=+a",
	} {
		name, _, _ := strings.Cut(text, "=")
		if _, err := ParsePlanSettings(1, text); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"%zz", "a;b", strings.Repeat("a", advertise.MaxPlanBody+1)} {
		if _, err := ParsePlanSettings(1, text); err == nil {
			t.Errorf("%.20q is accepted", text)
		}
	}
	if err := (PlanSettings{Version: 1}).withDefaults().Stateable(); err != nil {
		t.Error(err)
	}
}

func FuzzPlanSettings(f *testing.F) {
	f.Add(uint64(1), DefaultPlanSettings().Text())
	f.Add(uint64(9), "skip-relay=echo%3Dr1&skip-relay=echo%3Dr1&min-peers-per-worker=1024")
	f.Add(uint64(9), "selection=all&selection=none+echo+other&session-cookie=all+echo")
	f.Fuzz(func(t *testing.T, version uint64, text string) {
		c, err := ParsePlanSettings(version, text)
		if err != nil {
			return
		}
		if err := c.Minimums.Validate(); err != nil || c.Version > MaxPlanVersion || c.PeersPerTier < 1 || c.RelaysPerService < 0 {
			t.Fatalf("%q is accepted as %+v: %v", text, c, err)
		}
		again, err := ParsePlanSettings(version, c.Text())
		if err != nil && len(c.Text()) <= advertise.MaxPlanBody || err == nil && again.Text() != c.Text() {
			t.Fatalf("%q became %q, %v", c.Text(), again.Text(), err)
		}
		if _, err := url.ParseQuery(c.Text()); err != nil {
			t.Fatal(errors.Join(err, fmt.Errorf("%q", c.Text())))
		}
	})
}
