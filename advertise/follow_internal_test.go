package advertise

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A relay that is slow to answer has failed nothing yet.
func TestAProgramThatAwaitsItsFirstRelayGetsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := NewAdvertiser(AdvertiserConfig{
			Cluster: "test", Environment: "ci", ID: "p1", Attach: []string{"127.0.0.1:7420"},
			OnEvent: func(e Event) { t.Errorf("an event while the first answer is awaited: %+v", e) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 4*time.Second)
		defer stop()
		a.follow(ctx) // its member is not started, so no attempt to attach ends
		if err := a.node.Status().Err; err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}
