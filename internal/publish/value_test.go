package publish_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ringway/ringway/internal/publish"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	var config publish.Value[string]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	watch := config.Watch(ctx)
	for _, s := range []string{"one", "two", "three"} {
		config.Store(&s)
	}
	fmt.Println(*<-watch, *config.Load())
	// Output: three three
}

func TestAWatcherGetsTheCurrentValueFirst(t *testing.T) {
	var v publish.Value[int]
	one := 1
	v.Store(&one)
	if got := <-v.Watch(t.Context()); *got != 1 {
		t.Fatalf("first value %d, want 1", *got)
	}
}

func TestASlowWatcherGetsOnlyTheNewestAndDelaysNoOther(t *testing.T) {
	var v publish.Value[int]
	slow, quick := v.Watch(t.Context()), v.Watch(t.Context())
	for i := range 100 {
		v.Store(&i)
		if got := <-quick; *got != i {
			t.Fatalf("quick watcher got %d, want %d", *got, i)
		}
	}
	if got := <-slow; *got != 99 {
		t.Fatalf("slow watcher got %d, want the newest, 99", *got)
	}
}

func TestTheChannelIsClosedWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v publish.Value[int]
		ctx, cancel := context.WithCancel(t.Context())
		ch := v.Watch(ctx)
		cancel()
		synctest.Wait()
		if _, open := <-ch; open {
			t.Fatal("the channel is still open")
		}
		n := 1
		v.Store(&n) // a publisher does not notice that a watcher went
	})
}

func TestASingleChangeIsActedOnImmediatelyAndABurstOnceForEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer, changes, pending := publish.NewPacer(), make(chan int), false
		var acts []int64
		start := time.Now()
		go func() {
			defer close(changes)
			for _, at := range []time.Duration{0, 10, 20, 150, 310, 500} {
				time.Sleep(time.Until(start.Add(at * time.Millisecond)))
				changes <- 1
			}
			time.Sleep(time.Second)
		}()
		for open := true; open; {
			select {
			case _, open = <-changes:
				pending = open
			case <-pacer.C:
			}
			if pending && pacer.May() {
				pending = false
				pacer.Begin(100 * time.Millisecond)
				acts = append(acts, time.Since(start).Milliseconds())
			}
		}
		if want := []int64{0, 100, 200, 310, 500}; !slices.Equal(acts, want) {
			t.Errorf("acted after %v ms, want %v", acts, want)
		}
	})
}
