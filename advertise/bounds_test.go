package advertise

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// reasonOf is the reason of a refusal, "" if there is none.
func reasonOf(err error) string {
	var bad *invalid
	if errors.As(err, &bad) {
		return bad.reason
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestTheMailboxKeepsTheNewestFewOfEachInstance(t *testing.T) {
	b := newMailbox(mailPerKey + 2)
	put := func(id string, sequence uint64, hint bool) bool {
		return b.put(mail{from: instance{id, 1}, stamp: stamp{sequence: sequence}, hint: hint})
	}
	for _, sequence := range []uint64{3, 7, 5, 1, 5, 2, 9, 6} { // 4 of them, the newest
		if !put("a", sequence, false) {
			t.Errorf("%d is refused", sequence)
		}
	}
	if !put("a", 1, true) || !put("b", 1, false) || put("c", 1, false) || put("b", 2, false) {
		t.Error("what has room is taken, and no more")
	}
	if !put("a", 10, false) || !put("b", 1, false) {
		t.Error("what takes no place of another one is refused when the mailbox is full")
	}
	if len(b.wake) != 1 || b.count != mailPerKey+2 {
		t.Errorf("%d messages, woken %d times", b.count, len(b.wake))
	}
	got := map[string][]uint64{}
	for _, m := range b.take() {
		key := fmt.Sprint(m.from.id, m.hint)
		got[key] = append(got[key], m.stamp.sequence)
		slices.Sort(got[key])
	}
	if want := "map[afalse:[6 7 9 10] atrue:[1] bfalse:[1]]"; fmt.Sprint(got) != want {
		t.Errorf("the mailbox has %v, want %s", got, want)
	}
	if len(b.take()) != 0 || !put("c", 1, false) {
		t.Error("an empty mailbox has room")
	}
}

func TestAHintIsBounded(t *testing.T) {
	hint := func(fields ...any) []byte {
		b, err := encode(fields)
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{kindHint}, b...)
	}
	good := hint("w", 1, 2, 3, 4)
	for name, c := range map[string]struct {
		message []byte
		reason  string
	}{
		"as it should be":           {good, ""},
		"with a later field":        {hint("w", 1, 2, 3, 4, "later"), ""},
		"without a size":            {hint("w", 1, 2, 3), "malformed"},
		"of the largest record":     {hint("w", 1, 2, 3, MaxRecordBytes), ""},
		"of a larger one":           {hint("w", 1, 2, 3, MaxRecordBytes+1), "too_large"},
		"with the last sequence":    {hint("w", 1, uint64(maxSequence), 3, 4), ""},
		"with a higher one":         {hint("w", 1, uint64(maxSequence)+1, 3, 4), "malformed"},
		"without an id":             {hint("", 1, 2, 3, 4), "malformed"},
		"with a long id":            {hint(strings.Repeat("w", MaxNodeIDBytes+1), 1, 2, 3, 4), "node_id"},
		"with bytes behind it":      {append(slices.Clone(good), 0), "malformed"},
		"cut short":                 {good[:len(good)-1], "malformed"},
		"empty":                     {nil, "malformed"},
		"of another kind":           {[]byte{9}, "format"},
		"as long as a mail":         {append([]byte{9}, make([]byte, maxMailBytes-1)...), "format"},
		"longer than a mail may be": {make([]byte, maxMailBytes+1), "malformed"},
	} {
		m, err := decodeMail(c.message)
		if reasonOf(err) != c.reason {
			t.Errorf("%s: %v, want %q", name, err, c.reason)
		}
		if err == nil && (!m.hint || m.from.id != "w" || m.from.epoch != 1 || m.stamp.hash != 3) {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// silent is a Gossip that nothing calls.
type silent struct{ Gossip }

func TestSettingsThatCannotHoldAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		cfg Config
		ok  bool
	}{
		"the defaults":                 {Config{Gossip: silent{}}, true},
		"no gossip":                    {Config{}, false},
		"a negative interval":          {Config{Gossip: silent{}, Interval: -1}, false},
		"a negative publish interval":  {Config{Gossip: silent{}, PublishInterval: -1}, false},
		"the least rate":               {Config{Gossip: silent{}, ExchangeRate: minExchangeRate}, true},
		"a rate below":                 {Config{Gossip: silent{}, ExchangeRate: minExchangeRate - 1}, false},
		"a negative number of service": {Config{Gossip: silent{}, Rules: Rules{MaxServices: -1}}, false},
	} {
		if err := c.cfg.validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := Config{Gossip: silent{}}
	if err := cfg.validate(); err != nil || cfg.Interval != 30*time.Second || cfg.PublishInterval != time.Second || cfg.ExchangeRate != 1_000_000 || cfg.Seed == 0 || cfg.Now == nil || cfg.Logger == nil {
		t.Errorf("the defaults are %+v: %v", cfg, err)
	}
}

func TestAnAddressThatOthersCannotReachIsNotOffered(t *testing.T) {
	for _, c := range []struct {
		address, gossip string
		reason, proven  string // the second: among members with certificates
	}{
		{"10.0.0.1:80", "10.0.0.1:7401", "", ""},
		{"0.0.0.0:80", "10.0.0.1:7401", "address", "address"},
		{"[::]:80", "127.0.0.1:7401", "address", "address"},
		{"[::ffff:0.0.0.0]:80", "127.0.0.1:7401", "address", "address"},
		{"127.0.0.1:80", "10.0.0.1:7401", "address", "address"},
		{"[::ffff:127.0.0.1]:80", "10.0.0.1:7401", "address", "address"},
		{"127.0.0.1:80", "127.0.0.1:7401", "", ""},
		{"127.0.0.1:80", "[::ffff:127.0.0.1]:7401", "", ""},
		{"127.0.0.1:80", "", "", refusedForeignHost},
		{"10.0.0.2:80", "10.0.0.1:7401", "", refusedForeignHost},
		{"localhost:80", "10.0.0.1:7401", "", refusedHostName},
	} {
		for rules, want := range map[*Rules]string{{}: c.reason, {Proven: true}: c.proven} {
			if got := reasonOf(rules.CheckOffer(c.address, c.gossip)); got != want {
				t.Errorf("%s of a member at %s, proven %v: %q, want %q", c.address, c.gossip, rules.Proven, got, want)
			}
		}
	}
}

// An operator must see that the limit on names is reached, however many refusals there are.
func TestAListOfRefusalsThatIsCutShowsTheLimitOnServices(t *testing.T) {
	a := newAdmission(Rules{}, nil)
	refuses := func(id string, reasons ...string) {
		v := verdict{epoch: 1}
		for _, reason := range reasons {
			v.refusals = append(v.refusals, Refusal{Worker: id, Reason: reason})
		}
		a.record(id, v)
	}
	lists := func(want int, last string) {
		t.Helper()
		list := a.list()
		if len(list) != want || want > 0 && list[want-1].Worker != last {
			t.Errorf("%d refusals are listed, want %d, the last of them of %s: %+v", len(list), want, last, list[max(0, len(list)-1):])
		}
	}
	lists(0, "")
	for i := range maxRefusals + 20 {
		refuses(fmt.Sprintf("w%03d", i), refusedForeignHost)
		if i == maxRefusals-1 {
			lists(maxRefusals, "w099")
		}
	}
	lists(maxRefusals, "w099")
	refuses("z", refusedForeignHost, refusedServices)
	lists(maxRefusals+1, "z")
	if a.full != 1 {
		t.Errorf("%d records are beyond the limit", a.full)
	}
	refuses("a", refusedServices) // is on the list
	lists(maxRefusals, "w098")
	refuses("a", refusedForeignHost)
	lists(maxRefusals+1, "z")
	a.forget("z")
	a.forget("z")
	lists(maxRefusals, "w098")
	refuses("a")
	if a.full != 0 || len(a.refused) != maxRefusals+20 {
		t.Errorf("%d records are beyond the limit, of %d members something is refused", a.full, len(a.refused))
	}
	if ids := a.retry(time.Now()); len(ids) != 0 {
		t.Errorf("tried again are %q", ids)
	}
	refuses("z", refusedServices)
	refuses("b", refusedNewNames)
	if ids := a.retry(time.Now()); !slices.Equal(ids, []string{"b", "z"}) {
		t.Errorf("tried again are %q", ids)
	}
}

// A list cannot make a member send a record several times.
func TestARecordThatIsListedTwiceIsComparedOnce(t *testing.T) {
	s, now := newStore(storeConfig{}), time.Now()
	s.setMembers(snapshotOf(map[string]uint64{"w": 1, "x": 1}), now)
	raw, err := Record{NodeID: "w", Epoch: 1, Sequence: 5}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, result, err := s.merge(raw, now); result != applied {
		t.Fatal(result, err)
	}
	older, newer, unknown := listed{instance{"w", 1}, stamp{sequence: 4}}, listed{instance{"w", 1}, stamp{sequence: 6}}, listed{instance{"x", 1}, stamp{sequence: 1}}
	for name, c := range map[string]struct {
		theirs        []listed
		newer, wanted int
	}{
		"older there": {[]listed{older, older}, 1, 0}, "newer there": {[]listed{newer, newer}, 0, 1}, "unknown here": {[]listed{unknown, unknown}, 0, 1},
		"the same": {[]listed{{instance{"w", 1}, s.entries[instance{"w", 1}].stamp}}, 0, 0},
	} {
		if newer, wanted := s.compare(bitmap{}, c.theirs, true); len(newer) != c.newer || len(wanted) != c.wanted {
			t.Errorf("%s: %d are sent and %d wanted, want %d and %d", name, len(newer), len(wanted), c.newer, c.wanted)
		}
	}
}
