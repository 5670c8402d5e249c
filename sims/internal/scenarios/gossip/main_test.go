package gossip

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// One test leaves a goroutine in a bubble, to see that this is an error.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/ringway/ringway/sims/internal/scenarios/gossip.waitForever"))
}
