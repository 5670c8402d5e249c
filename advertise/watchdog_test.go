package advertise

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/logtest"
)

// watched runs a catalogue until the test ends.
func watched(t *testing.T) (*Catalogue, *logtest.Log) {
	log := &logtest.Log{}
	c, err := New(Config{Gossip: newStill("r1"), Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c, log
}

func TestALoopThatPanicsIsStartedAgainAndSaysSoAndTheLastViewStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := watched(t)
		time.Sleep(time.Minute)
		before := c.View()
		for n := range 3 {
			if err := c.onLoop(t.Context(), func() { panic("out of cheese") }); !errors.Is(err, errPanicked) {
				t.Errorf("the caller of a turn that panics gets %v", err)
			}
			synctest.Wait()
			if c.View() != before {
				t.Error("the view of before is gone")
			}
			if err := c.onLoop(t.Context(), func() {}); err != nil { // waits for the restart
				t.Fatal(err)
			}
			synctest.Wait()
			if c.View() == before {
				t.Error("no view is published after the restart")
			}
			before = c.View()
			if got := testutil.ToFloat64(c.metrics.restarts); got != float64(n+1) || log.Lines("out of cheese") != n+1 {
				t.Errorf("%v restarts after %d panics, log:\n%s", got, n+1, log)
			}
		}
	})
}

func TestALoopThatHangsForThirtySecondsSaysSoOnceAndViewsAreStillRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := watched(t)
		time.Sleep(time.Minute)
		for n := range 2 {
			resume := make(chan struct{})
			c.calls <- func() { <-resume }
			time.Sleep(25 * time.Second)
			if log.Lines("does not turn") != n {
				t.Errorf("after 25 s:\n%s", log)
			}
			time.Sleep(time.Minute)
			if log.Lines("does not turn") != n+1 || c.View() == nil {
				t.Errorf("after 85 s:\n%s", log)
			}
			close(resume)
			time.Sleep(10 * time.Second)
		}
	})
}
