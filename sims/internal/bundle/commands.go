package bundle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
)

// Commands returns the commands for this fleet: lines for a shell, with the reasons as comments.
// Only numbers and known words of the bundle are in them.
func (f *Fleet) Commands() []string {
	var missing []string
	flag := func(name, value string) string { return " --" + name + " " + value }
	traffic := func(rate, latency string) string {
		text := ""
		if f.Rate >= 0.1 {
			text += flag(rate, strconv.FormatFloat(f.Rate, 'f', 1, 64))
		} else {
			missing = append(missing, "--"+rate)
		}
		if f.Latency >= 100*time.Microsecond {
			text += flag(latency, f.Latency.String())
		} else {
			missing = append(missing, "--"+latency)
		}
		if f.Slots > 0 {
			text += flag("slots", strconv.Itoa(f.Slots))
		} else {
			missing = append(missing, "--slots")
		}
		return text + flag("clients", strconv.Itoa(f.Clients))
	}
	services := len(slices.DeleteFunc(slices.Clone(f.Services), func(s api.ListedService) bool { return s.Endpoints == 0 }))
	fleet := flag("workers", strconv.Itoa(f.Workers)) + flag("services", strconv.Itoa(max(1, services)))
	place := f.word("strategy", "strategy", string(affinity.Projection), string(affinity.Rendezvous)) +
		f.word("index-source", "index", string(affinity.IndexRank), string(affinity.IndexSlot)) +
		" --tls=" + strconv.FormatBool(f.Settings["tls-cert"] != "")
	now := flag("relays", strconv.Itoa(f.Relays)) + f.number("relays-per-service", "relays-per-service") + f.number("min-peers-per-worker", "m") + f.number("min-peers-per-relay", "p")
	capacity := "sims capacity" + fleet + now + traffic("requests", "latency") + " --peak 1" + place + f.number("peer-slack", "slack") + f.duration("peer-drain-delay", "drain")
	missing = nil
	plan := "sims plan" + fleet + traffic("rate", "latency") + place

	out := []string{
		fmt.Sprintf("# Seen by relay %.64q at %s: relays %d, gates %d, workers %d, services %d.", f.Relay, f.Taken.UTC().Format(time.RFC3339), f.Relays, f.Gates, f.Workers, services),
		"# Estimates from this relay alone: the rate (the mean since it started: raise it to that of the busiest time),",
		"# clients, latency (with waits at workers). slots is what the median worker advertises.",
	}
	if len(missing) > 0 {
		out = append(out, "# Unknown, so the defaults of sims are used: "+strings.Join(missing, ", ")+".")
	}
	return append(out,
		"# What it costs now:", capacity,
		"# Does it reach a p99 now? Set --p99 to what you promise:", plan+now,
		"# What would be enough:", plan,
	)
}

// number returns a setting of the relay that is a whole number as a flag, or nothing.
func (f *Fleet) number(setting, flag string) string {
	n, err := strconv.Atoi(f.Settings[setting])
	if err != nil || n < 0 {
		return ""
	}
	return fmt.Sprintf(" --%s %d", flag, n)
}

func (f *Fleet) duration(setting, flag string) string {
	d, err := time.ParseDuration(f.Settings[setting])
	if err != nil || d < time.Millisecond {
		return ""
	}
	return fmt.Sprintf(" --%s %v", flag, d)
}

// word returns a setting that is one of some words as a flag, or nothing.
func (f *Fleet) word(setting, flag string, words ...string) string {
	if !slices.Contains(words, f.Settings[setting]) {
		return ""
	}
	return " --" + flag + " " + f.Settings[setting]
}
