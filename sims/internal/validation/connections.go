package validation

import (
	"fmt"

	model "github.com/ringway/ringway/sims/internal/fleet"
)

// slack is the default slack of the relays.
const slack = 2

// simulateDeath counts the connections of the relays, and the connections that they open after
// a worker dies.
func simulateDeath(c Case, victim int) (before, opened int, err error) {
	m := model.NewMesh(model.Size{Relays: c.Relays, Workers: c.Workers, PerWorker: perWorker, PerRelay: 1}, model.RolloutPolicy{Slack: slack})
	m.Service = service
	view, f := m.NewView(), model.New(c.Relays, c.Workers)
	if err = m.Begin(view, f); err != nil {
		return 0, 0, fmt.Errorf("simulate connections: %w", err)
	}
	before, m.Opened = m.Opened, 0
	m.KillWorker(victim)
	f.Workers = model.Without(f.Workers, victim)
	if err = m.All(view, f); err != nil {
		return 0, 0, fmt.Errorf("simulate connections: %w", err)
	}
	return before, m.Opened, nil
}
