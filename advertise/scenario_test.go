package advertise

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ringway/ringway/internal/clusterscript"
)

// Every file in testdata is the history of a fleet; its statements are listed in
// [cluster.forms]. Real members on unmodified memberlist play it, under a virtual clock.
// LONG_TESTS plays what takes minutes, and only that: more than 100 members, and the other
// seeds of the smallest size.
func TestEveryHistoryKeepsThePromisesOfTheCatalogue(t *testing.T) {
	histories, err := clusterscript.Files("testdata")
	if err != nil {
		t.Fatal(err)
	}
	long := os.Getenv("LONG_TESTS") != ""
	for _, h := range histories {
		// Also those that are not played here must be well formed.
		if _, err := h.Steps(h.Sizes[0], (&cluster{}).forms()); err != nil {
			t.Error(err)
			continue
		}
		for i, size := range h.Sizes {
			for j, seed := range h.Seeds {
				if clusterscript.Raced && !slices.Contains(h.Raced, size) || j > 0 && i > 0 || long != (j > 0 || size > 100) {
					continue
				}
				t.Run(fmt.Sprintf("%s/N=%d/seed=%d", h.Name, size, seed), func(t *testing.T) {
					t.Parallel()
					inCluster(t, seed, func(f *cluster) {
						if err := f.Play(h, size, f.forms()); err != nil {
							t.Error(err)
						}
						t.Logf("%d views checked; %v", f.views, f.Network.Counters())
					})
				})
			}
		}
	}
}

// inCluster runs a test in a bubble of its own.
func inCluster(t *testing.T, seed uint64, run func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		f := newCluster(seed)
		defer f.close()
		run(f)
	})
}

func readHistory(t *testing.T, text string) *clusterscript.History {
	t.Helper()
	h, err := clusterscript.Read("h.txt", text)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestEveryExpectationFailsWhereItDoesNotHold(t *testing.T) {
	inCluster(t, 1, func(f *cluster) {
		if err := f.Play(readHistory(t, `
			join 2 relays, 3 workers through r1
			expect converged within 90s
			withdraw the offer of w3
			expect converged within 90s
			kill w2
			partition w1 | others                  # so that it cannot answer
			forge a record of w1 at r2
			expect r1 does not see the offer of w1 within 4s
		`), 0, f.forms()); err != nil {
			t.Fatal(err)
		}
		if err := f.Refute(readHistory(t, `
			expect agreement
			expect converged
			expect r1 sees everything within 1s
			expect r1 sees the offer of w3
			expect r1, r2 do not see the offer of w2
			expect r1 sees nothing forged
			expect one of all counted "no such result"
			expect w1 published 99 times
		`), f.forms()); err != nil {
			t.Error(err)
		}
	})
}
