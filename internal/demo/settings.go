package demo

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/internal/settings"
)

// The forms of the output.
const (
	outputTable = "table"
	outputJSON  = "json"
)

// Settings are what can be told to a demo.
type Settings struct {
	// Relays and Workers are how many of each there are.
	Relays, Workers int
	// Rate is the requests per second that the clients send.
	Rate float64
	// KillEvery is how often a worker dies and is replaced; 0 is never.
	KillEvery time.Duration
	// Seed decides service times, arrivals and victims.
	Seed int
	// For is how long requests are sent; 0 is until the context ends.
	For time.Duration
	// Output is table or json.
	Output string
}

// DefaultSettings are those of `relay demo` outside a terminal.
func DefaultSettings() Settings {
	return Settings{Relays: 3, Workers: 12, Rate: 300, Seed: 1, Output: outputTable}
}

// liveKillEvery is the default of KillEvery where somebody watches: without a
// death now and then the table has little to tell.
const liveKillEvery = 5 * time.Second

// The limits keep the demo a demo: one process, one machine, loopback.
const (
	mostRelays   = 32
	mostWorkers  = 200
	mostRate     = 20_000
	leastKill    = time.Second // a replacement needs about that long to be seen
	leastSurvive = 2
)

// declare adds every setting to set.
func (s *Settings) declare(set *settings.Set) {
	const fleet, load, end = "Fleet", "Load", "Output"
	settings.Int(set, &s.Relays, settings.Spec{Name: "relays", Group: fleet, Usage: "relays to start"}, settings.Between(1, mostRelays))
	settings.Int(set, &s.Workers, settings.Spec{Name: "workers", Group: fleet, Usage: "workers to start"}, settings.Between(1, mostWorkers))
	settings.Float(set, &s.Rate, settings.Spec{Name: "rate", Group: load, Usage: "requests per second"},
		settings.Rule[float64]{Allowed: fmt.Sprintf("more than 0, at most %d", mostRate), Holds: func(r float64) bool { return r > 0 && r <= mostRate }})
	settings.Duration(set, &s.KillEvery, settings.Spec{Name: "kill-every", Group: load, DefaultText: "5s for the live table, otherwise 0",
		Usage: "time between the sudden deaths of a worker, each replaced a moment later; 0 for none"},
		settings.Rule[time.Duration]{Allowed: leastKill.String() + " or more, or 0", Holds: func(d time.Duration) bool { return d == 0 || d >= leastKill }})
	settings.Int(set, &s.Seed, settings.Spec{Name: "seed", Group: load, Usage: "what service times, arrivals and deaths are drawn from"})
	settings.Duration(set, &s.For, settings.Spec{Name: "for", Group: end, DefaultText: "until Ctrl-C",
		Usage: "time to send requests for"}, settings.AtLeast(time.Duration(0)))
	settings.Enum(set, &s.Output, settings.Spec{Name: "output", Short: "o", Group: end, Usage: "form of the output; json is the final report alone"}, outputTable, outputJSON)
	set.Check(func() []settings.Problem {
		if s.KillEvery > 0 && s.Workers < leastSurvive {
			return []settings.Problem{{Setting: "kill-every", Related: []string{"workers"},
				Reason: "the only worker would die, and requests with it", Allowed: "0, or --workers 2 or more"}}
		}
		return nil
	})
}
