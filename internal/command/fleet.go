package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/api"
)

// fleetFlags are the flags of a command that can show all relays.
type fleetFlags struct {
	on     bool
	window time.Duration
}

const (
	// fleetWindow is the default window of rates.
	fleetWindow = 2 * time.Second
	fleetHelp   = "With --all the relay asks all other relays and gates, over the listener between relays,\n" +
		"twice and --window apart; rates are those of the window.\n"
)

func (f *fleetFlags) declare(flags *pflag.FlagSet, what string) {
	flags.BoolVar(&f.on, "all", false, what)
	flags.DurationVar(&f.window, "window", fleetWindow, "with --all: time over which rates are measured, 50ms to 10s")
}

// check is for a command with or without the flags.
func (f *fleetFlags) check(cmd *cobra.Command) error {
	if window := cmd.Flags().Lookup("window"); window != nil && window.Changed && !f.on {
		return fmt.Errorf("--window %q: it belongs to --all", window.Value)
	}
	return nil
}

// show asks for the whole fleet and prints the document or a table of it.
func (f *fleetFlags) show(cmd *cobra.Command, call *adminCall, table func(*page, *api.Fleet)) error {
	return get(cmd, call, "fleet?window="+f.window.String(), table)
}

func fleetRelaysTable(p *page, f *api.Fleet) {
	t := p.table("RELAY", "ROLE", "STATE", "READY", ">REQ/S", ">ERRORS", ">IN FLIGHT", ">SESSIONS", "VERSION", "+>UP", "+>REQUESTS", "+>FAILED")
	var notes []string
	for _, r := range f.Relays {
		row := []any{r.ID, r.Role, stateCell(string(r.State))}
		switch {
		case !r.Answered:
			row = append(row, cell{"no answer", styleBad}, "", "", "", "", "", "", "", "")
			if r.State == api.MemberLeft {
				row[3] = ""
			}
		case r.Ready:
			row = append(row, cell{"yes", styleGood})
		default:
			row = append(row, cell{"no", styleBad})
			notes = append(notes, r.ID+" is not ready: "+strings.Join(r.Reasons, "; "))
		}
		if r.Answered {
			row = append(row, perSecond(r.Rates, r.RequestsPerSecond), errorShare(r.Rates), fmt.Sprint(r.InFlight), fmt.Sprint(r.Sessions), r.Version,
				age(time.Duration(r.UptimeMs)*time.Millisecond), fmt.Sprint(r.Requests), fmt.Sprint(r.Errors))
		}
		if r.Problem != "" {
			notes = append(notes, r.ID+": "+r.Problem)
		}
		t.add(row...)
	}
	t.write(append(notes, windowNote(f))...)
}

func fleetServicesTable(p *page, f *api.Fleet) {
	t := p.table("SERVICE", ">REQ/S", ">ERRORS", ">IN FLIGHT", ">SESSIONS", ">WORKERS", ">RELAYS", "EVICTED", "+>REQUESTS", "+>FAILED")
	for _, s := range f.Services {
		workers := cell{fmt.Sprint(s.Workers), plain}
		if s.Workers == 0 {
			workers.style = styleBad
		}
		t.add(s.Service, perSecond(s.Rates, s.RequestsPerSecond), errorShare(s.Rates), fmt.Sprint(s.InFlight), fmt.Sprint(s.Sessions), workers, fmt.Sprint(s.Relays), evictedCell(s.Evicted, p.wide),
			fmt.Sprint(s.Requests), fmt.Sprint(s.Errors))
	}
	var notes []string
	for _, r := range f.Relays {
		switch {
		case r.State == api.MemberLeft:
		case !r.Answered:
			notes = append(notes, "without "+r.ID+": "+r.Problem)
		case r.Problem != "":
			notes = append(notes, r.ID+": "+r.Problem)
		}
	}
	t.write(append(notes, windowNote(f))...)
}

// evictedCell has how many workers are evicted by how many relays, or with wide each worker
// with the number of its relays.
func evictedCell(evicted []api.EvictedWorker, wide bool) cell {
	if len(evicted) == 0 {
		return cell{}
	}
	var relays, each []string
	for _, e := range evicted {
		each = append(each, fmt.Sprintf("%s by %d", e.Worker, len(e.Relays)))
		relays = append(relays, e.Relays...)
	}
	if wide {
		return cell{strings.Join(each, ", "), styleFair}
	}
	slices.Sort(relays)
	return cell{fmt.Sprintf("%d by %d", len(evicted), len(slices.Compact(relays))), styleFair}
}

// perSecond formats a rate; it is empty if it was not measured.
func perSecond(r api.Rates, rate float64) string {
	if !r.Measured {
		return ""
	}
	return rateText(rate)
}

// rateText formats a rate: 0.5, 12.3, 12345 is 12.3k.
func rateText(rate float64) string {
	if rate < 1000 {
		return fmt.Sprintf("%.1f", rate)
	}
	return count(uint64(rate + 0.5))
}

func errorShare(r api.Rates) cell {
	if !r.Measured {
		return cell{}
	}
	c := cell{percent(r.ErrorShare()), plain}
	if r.ErrorsPerSecond > 0 {
		c.style = styleBad
	}
	return c
}

func windowNote(f *api.Fleet) string {
	return fmt.Sprintf("rates over %s, asked by %s", time.Duration(f.WindowMs)*time.Millisecond, f.Relay)
}
