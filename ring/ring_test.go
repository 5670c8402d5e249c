package ring_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ringway/ringway/ring"
	"pgregory.net/rapid"
)

// names draws a set of distinct names in no particular order.
func names(low, high int) *rapid.Generator[[]string] {
	return rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}-[0-9]{1,3}`), low, high, rapid.ID[string])
}

func mustRing(t testing.TB, virtualNodes int, members ...string) *ring.Ring {
	t.Helper()
	r, err := ring.New(virtualNodes, members...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// slowRing is the dumb reference: every position of every member, sorted anew.
func slowRing(virtualNodes int, members []string, key string) []string {
	type place struct {
		position uint64
		member   string
	}
	var places []place
	for _, member := range members {
		for seed := range virtualNodes {
			places = append(places, place{ring.Hash(member, uint64(seed)), member})
		}
	}
	h := ring.Hash(key, 0)
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.position-h, b.position-h), cmp.Compare(a.member, b.member)) // clockwise distance
	})
	var out []string
	for _, p := range places {
		if !slices.Contains(out, p.member) {
			out = append(out, p.member)
		}
	}
	return out
}

func TestLookupFindsTheNextPositionsClockwise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := names(1, 30).Draw(t, "members")
		virtualNodes := rapid.IntRange(1, 12).Draw(t, "virtual nodes")
		r, err := ring.New(virtualNodes, members...)
		if err != nil {
			t.Fatal(err)
		}
		for k := range 20 {
			key := fmt.Sprint("key-", k)
			want := slowRing(virtualNodes, members, key)
			if got, ok := r.Lookup(key); !ok || got != want[0] {
				t.Fatalf("Lookup(%q) = %q, %v; want %q", key, got, ok, want[0])
			}
			for _, n := range []int{1, 2, len(members), len(members) + 5} {
				if got := r.LookupN(key, n); !slices.Equal(got, want[:min(n, len(want))]) {
					t.Fatalf("LookupN(%q, %d) = %q; want the first of %q", key, n, got, want)
				}
			}
		}
	})
}

func TestAKeyEqualToAMemberLandsOnThatMember(t *testing.T) {
	r := mustRing(t, 4, "a", "b", "c")
	for _, name := range r.Members() {
		if got, _ := r.Lookup(name); got != name {
			t.Errorf("Lookup(%q) = %q", name, got)
		}
	}
}

func TestRemovingAMemberMovesOnlyItsKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := names(2, 20).Draw(t, "members")
		before, err := ring.New(8, members...)
		if err != nil {
			t.Fatal(err)
		}
		gone := rapid.SampledFrom(members).Draw(t, "gone")
		after := before.Without(gone)
		for k := range 100 {
			key := fmt.Sprint("key-", k)
			was, _ := before.Lookup(key)
			now, _ := after.Lookup(key)
			if was != gone && now != was {
				t.Fatalf("%q moved from %q to %q when %q left", key, was, now, gone)
			}
			if now == gone {
				t.Fatalf("%q still belongs to %q, which left", key, gone)
			}
		}
	})
}

func TestWithAndWithoutEqualAFreshRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := names(0, 30).Draw(t, "members")
		virtualNodes := rapid.IntRange(1, 8).Draw(t, "virtual nodes")
		cut := rapid.IntRange(0, len(all)).Draw(t, "cut")
		old, added := all[:cut], all[cut:]

		base, err := ring.New(virtualNodes, old...)
		if err != nil {
			t.Fatal(err)
		}
		grown, err := base.With(added...)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := ring.New(virtualNodes, all...)
		if err != nil {
			t.Fatal(err)
		}
		same := func(a, b *ring.Ring) {
			walk := func(r *ring.Ring) []string { return slices.Collect(r.Walk(0)) }
			if !slices.Equal(walk(a), walk(b)) || !slices.Equal(a.Members(), b.Members()) ||
				a.Len() != b.Len() || a.VirtualNodes() != b.VirtualNodes() {
				t.Fatalf("rings differ:\n%q\n%q", walk(a), walk(b))
			}
		}
		same(grown, fresh)
		same(fresh.Without(added...), base)
		same(base.Without("not a member"), base)
		if base.Len() != cut {
			t.Fatalf("With changed the ring that it started from: %d members, had %d", base.Len(), cut)
		}
	})
}

func TestAddingAMemberMovesItsShareOfTheKeys(t *testing.T) {
	const members, keys = 9, 20_000
	var ids []string
	for i := range members {
		ids = append(ids, fmt.Sprint("relay-", i))
	}
	before := mustRing(t, 64, ids...)
	after, err := before.With("relay-new")
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	for k := range keys {
		key := fmt.Sprint("key-", k)
		was, _ := before.Lookup(key)
		now, _ := after.Lookup(key)
		if was != now {
			moved++
			if now != "relay-new" {
				t.Fatalf("%q moved to %q, which is not new", key, now)
			}
		}
	}
	// With 64 positions each, a share has a standard deviation of about an eighth.
	if share := float64(moved) / keys * (members + 1); share < 0.5 || share > 1.5 {
		t.Errorf("the new member took %.2f of its fair share", share)
	}
}

func TestTheWalkMeetsEveryVirtualNodeOnce(t *testing.T) {
	r := mustRing(t, 5, "a", "b", "c")
	for _, from := range []uint64{0, 1 << 63, 1<<64 - 1} {
		count := map[string]int{}
		for member := range r.Walk(from) {
			count[member]++
		}
		for _, name := range r.Members() {
			if count[name] != 5 {
				t.Errorf("from %d: %q came up %d times, want 5", from, name, count[name])
			}
		}
	}
}

func TestAnEmptyRingAnswersNothing(t *testing.T) {
	r := mustRing(t, 0)
	if got, ok := r.Lookup("key"); ok {
		t.Errorf("Lookup on an empty ring = %q", got)
	}
	if got := r.LookupN("key", 3); len(got) != 0 {
		t.Errorf("LookupN on an empty ring = %q", got)
	}
	if got := mustRing(t, 3, "a").Without("a"); got.Len() != 0 {
		t.Errorf("a ring that lost its only member holds %q", got.Members())
	}
	if got := mustRing(t, 3, "a").LookupN("key", -1); len(got) != 0 {
		t.Errorf("LookupN of -1 members = %q", got)
	}
	if got := r.VirtualNodes(); got != ring.DefaultVirtualNodes {
		t.Errorf("0 virtual nodes became %d, want the default of %d", got, ring.DefaultVirtualNodes)
	}
}

func TestBadMembersAndSizesAreRefused(t *testing.T) {
	base := mustRing(t, 8, "a", "b")
	for name, build := range map[string]func() (*ring.Ring, error){
		"empty":     func() (*ring.Ring, error) { return ring.New(8, "a", "") },
		"duplicate": func() (*ring.Ring, error) { return ring.New(8, "a", "b", "a") },
		"present":   func() (*ring.Ring, error) { return base.With("c", "b") },
		"negative":  func() (*ring.Ring, error) { return ring.New(-1) },
		"too many":  func() (*ring.Ring, error) { return ring.New(65) },
	} {
		r, err := build()
		if err == nil || r != nil {
			t.Errorf("%s: got %v, %v; want an error", name, r, err)
		}
		if name == "empty" && !errors.Is(err, ring.ErrEmptyName) ||
			(name == "duplicate" || name == "present") && !errors.Is(err, ring.ErrDuplicateName) {
			t.Errorf("%s: %v is not the error that was promised", name, err)
		}
	}
}
