package requestlog

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slow adds a request as package ingress does.
func (l *Log) slow(id string, took time.Duration, most int) {
	if r := (Record{ID: id, FirstByte: took, Total: time.Hour}); l.Slowest(r.Slow()) {
		l.AddSlowest(&r, most)
	}
}

func TestTheSlowestRequestsOfEachWindowAreWrittenWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "requests.log")
		l, _ := newLog(t, path)
		start(t, l)
		written := func() []string {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			ids := idsIn(t, text)
			slices.Sort(ids)
			return ids
		}
		var adding sync.WaitGroup
		order := rand.New(rand.NewPCG(1, 2)).Perm(1000)
		for part := range slices.Chunk(order, 250) {
			adding.Go(func() {
				for _, i := range part {
					l.slow(fmt.Sprint("a", i), time.Duration(i+1)*time.Millisecond, 3)
				}
			})
		}
		adding.Wait()
		time.Sleep(slowWindow - time.Second)
		if got := written(); len(got) != 0 {
			t.Errorf("%v are written before the window has ended", got)
		}
		time.Sleep(2 * time.Second)
		want := []string{"a997", "a998", "a999"}
		if got := written(); !slices.Equal(got, want) {
			t.Errorf("%v are written, want %v", got, want)
		}
		l.slow("b1", time.Millisecond, 3) // fast, but the slowest of its window
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := written(); !slices.Equal(got, append(want, "b1")) {
			t.Errorf("%v are written at the end, want b1, too", got)
		}
		if l.slow("c1", time.Second, 3); l.count(dropStopped) != 1 {
			t.Error("a slow request after the end is not counted as dropped")
		}
	})
}

func TestTheNumberOfTheSlowestCanChangeWithinAWindow(t *testing.T) {
	l, _ := newLog(t, "unused")
	for most, want := range map[int]int{2: 2, 5: 5} {
		l.slowest.lines = nil
		l.slowest.floor.Store(-1)
		for i := range 10 {
			l.slow("x", time.Duration(i), most)
		}
		if n := len(l.slowest.lines); n != want {
			t.Errorf("%d lines of at most %d", n, want)
		}
		l.slow("less", time.Hour, 1)
		if n := len(l.slowest.lines); n != want || l.slowest.lines[0].took != time.Hour {
			t.Errorf("%d lines after a reload to 1, the first of %v", n, l.slowest.lines[0].took)
		}
	}
}
