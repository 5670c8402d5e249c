package strategy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestWhatIsExplainedIsWhatIsPicked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{Stable, StableSHA256, "manual;preferred=w3,w1,w9", "ordered;preferred=w2", Random, Slots, "slots;samples=1", "slots;maxscan=2"}).Draw(t, "strategy")
		list := endpoints(numbered("w", rapid.IntRange(0, 12).Draw(t, "endpoints"))...)
		var excluded []string
		for i := range list {
			list[i].Weight = float64(rapid.IntRange(0, 3).Draw(t, "weight"))
			list[i].Version = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version")
			gaugeOf(list[i]).load.Store(rapid.Int64Range(0, 6).Draw(t, "load"))
			gaugeOf(list[i]).neverSeen = rapid.Bool().Draw(t, "stale")
			if rapid.Bool().Draw(t, "excluded") {
				excluded = append(excluded, list[i].ID)
			}
		}
		r := Request{Key: rapid.StringMatching(`[a-z]{0,3}`).Draw(t, "key"), Excluded: [][]string{excluded}}
		seed := rapid.Uint64().Draw(t, "seed")
		made := func() *Strategy {
			spec, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			cfg := Config{Spec: spec}
			seeded(seed)(&cfg)
			s, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Update(list); err != nil {
				t.Fatal(err)
			}
			return s
		}
		picked, err := made().Pick(r)
		d := made().Explain(r)
		if (picked == nil) != (d.Winner == nil) || (picked != nil && picked.ID != d.Winner.ID) || err != d.Err && fmt.Sprint(err) != fmt.Sprint(d.Err) {
			t.Fatalf("picked %v, %v; explained as %v, %v", picked, err, d.Winner, d.Err)
		}
		if (picked == nil) == (err == nil) {
			t.Fatalf("picked %v with the error %v", picked, err)
		}
		for _, c := range d.Candidates {
			if slices.Contains(excluded, c.ID) != strings.HasPrefix(c.Note, noteExcluded) {
				t.Fatalf("candidate %+v; excluded are %v", c, excluded)
			}
		}
		if picked == nil {
			return
		}
		if slices.Contains(excluded, picked.ID) {
			t.Fatalf("picked %s, which is excluded", picked.ID)
		}
		if !slices.ContainsFunc(d.Candidates, func(c Candidate) bool { return c.ID == picked.ID && c.Note == noteUsable }) {
			t.Fatalf("picked %s of %+v", picked.ID, d.Candidates)
		}
	})
}

func TestADecisionShowsTheScoresThatDecided(t *testing.T) {
	s := over(t, Stable, "a", "b", "c", "d")
	d := s.Explain(Request{Key: "k", Excluded: [][]string{{"b.1"}}})
	if d.Strategy != Stable || d.Key != "k" || d.Rule == "" || d.Measure == "" || len(d.Candidates) != 4 {
		t.Errorf("%+v", d)
	}
	if !slices.IsSortedFunc(d.Candidates, func(a, b Candidate) int { return int(1e9 * (b.Score - a.Score)) }) {
		t.Errorf("not by falling score: %+v", d.Candidates)
	}
	var order []string
	for _, c := range over(t, StableSHA256, "100", "200", "300").Explain(Request{Key: "stable_key"}).Candidates {
		order = append(order, c.Node)
	}
	if !slices.Equal(order, []string{"300", "100", "200"}) {
		t.Errorf("stable-sha256 tries %v", order)
	}
	list := endpoints("a", "b")
	gaugeOf(list[0]).load.Store(7)
	slots := build(t, "slots;samples=8;jitter=0")
	update(t, slots, list)
	if d := slots.Explain(Request{}); d.Strategy != "slots;samples=8;jitter=0" {
		t.Errorf("%+v", d)
	}
	for _, c := range slots.Explain(Request{}).Candidates {
		if c.Note == noteUsable && c.Score != map[string]float64{"a": 7, "b": 0}[c.Node] {
			t.Errorf("%+v", c)
		}
	}
}
