package main

import (
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenarios/affinity"
	"github.com/ringway/ringway/sims/internal/scenarios/balance"
	"github.com/ringway/ringway/sims/internal/scenarios/capacity"
	"github.com/ringway/ringway/sims/internal/scenarios/churn"
	"github.com/ringway/ringway/sims/internal/scenarios/failover"
	"github.com/ringway/ringway/sims/internal/scenarios/gossip"
	"github.com/ringway/ringway/sims/internal/scenarios/latency"
	"github.com/ringway/ringway/sims/internal/scenarios/overload"
	"github.com/ringway/ringway/sims/internal/scenarios/retrystorm"
	"github.com/ringway/ringway/sims/internal/scenarios/surge"
)

// scenarios are all there are, in the order of lists and reports. A new one goes where a
// reader would look for it.
func scenarios() []scenario.Scenario {
	return []scenario.Scenario{
		affinity.New(),
		balance.New(),
		churn.New(),
		surge.New(),
		latency.New(),
		failover.New(),
		overload.New(),
		retrystorm.New(),
		gossip.New(),
		capacity.New(),
	}
}
