package routing

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/selection"
)

// unchanged is a catalogue whose view does not change.
type unchanged struct{}

func (unchanged) Watch(context.Context) <-chan *advertise.View { return make(chan *advertise.View) }

func TestARelayWhoseRoutingLoopHangsForThirtySecondsReportsItOnceAndUntilItTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, reg := &logtest.Log{}, prometheus.NewRegistry()
		r, err := New(Config{Self: "r1", Catalogue: unchanged{}, Selection: selection.DefaultConfig(), Epoch: time.Now(), Logger: slog.New(slog.NewTextHandler(log, nil)), Registerer: reg})
		if err != nil {
			t.Fatal(err)
		}
		age := func() float64 { return logtest.Series(t, reg, "ringway_relay_route_loop_age_seconds")[""] }
		expect := func(when string, stalled bool, least, most float64, lines int) {
			t.Helper()
			reason := r.Stalled()
			if (reason != "") != stalled || stalled && !strings.Contains(reason, "has not turned for") || age() < least || age() > most || log.Lines("does not turn") != lines {
				t.Errorf("%s: stalled %q, age %v, log:\n%s", when, reason, age(), log)
			}
		}
		time.Sleep(time.Minute)
		expect("before Run", false, 0, 0, 0)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(time.Minute)
		expect("without work", false, 0, 1, 0)

		for _, lines := range []int{1, 2} {
			resume := make(chan struct{})
			r.calls <- func() { <-resume }
			time.Sleep(29 * time.Second)
			expect("after 29 s", false, 28, 30, lines-1)
			time.Sleep(2 * time.Second)
			expect("after 31 s", true, 30, 32, lines)
			time.Sleep(time.Minute)
			expect("after 91 s", true, 90, 92, lines)
			close(resume)
			synctest.Wait()
			expect("when it turns", false, 0, 1, lines)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		expect("after Run", false, 0, 0, 2)
	})
}
