package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
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
func (f *fleetFlags) show(cmd *cobra.Command, call *adminCall, table func(io.Writer, *api.Fleet, tableStyle) error) error {
	return get(cmd, call, "fleet?window="+f.window.String(), table)
}

func fleetRelaysTable(w io.Writer, f *api.Fleet, style tableStyle) error {
	columns := []string{"RELAY", "ROLE", "STATE", "READY", ">REQ/S", ">ERRORS", ">IN FLIGHT", ">SESSIONS", "VERSION"}
	if style.wide {
		columns = append(columns, ">UP", ">REQUESTS", ">FAILED")
	}
	t := newTable(style.colour, columns...)
	var notes []string
	for _, r := range f.Relays {
		row := []any{r.ID, r.Role, stateCell(string(r.State))}
		switch {
		case !r.Answered:
			row = append(row, cell{"no answer", styleBad}, "", "", "", "", "")
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
			row = append(row, perSecond(r.Rates, r.RequestsPerSecond), errorShare(r.Rates), fmt.Sprint(r.InFlight), fmt.Sprint(r.Sessions), r.Version)
		}
		if style.wide && r.Answered {
			row = append(row, age(time.Duration(r.UptimeMs)*time.Millisecond), fmt.Sprint(r.Requests), fmt.Sprint(r.Errors))
		} else if style.wide {
			row = append(row, "", "", "")
		}
		if r.Problem != "" {
			notes = append(notes, r.ID+": "+r.Problem)
		}
		t.add(row...)
	}
	return errors.Join(t.writeNoted(w, notes...), windowNote(w, f))
}

func fleetServicesTable(w io.Writer, f *api.Fleet, style tableStyle) error {
	columns := []string{"SERVICE", ">REQ/S", ">ERRORS", ">IN FLIGHT", ">SESSIONS", ">WORKERS", ">RELAYS", "EVICTED"}
	if style.wide {
		columns = append(columns, ">REQUESTS", ">FAILED")
	}
	t := newTable(style.colour, columns...)
	for _, s := range f.Services {
		workers := cell{fmt.Sprint(s.Workers), plain}
		if s.Workers == 0 {
			workers.style = styleBad
		}
		row := []any{s.Service, perSecond(s.Rates, s.RequestsPerSecond), errorShare(s.Rates), fmt.Sprint(s.InFlight), fmt.Sprint(s.Sessions), workers, fmt.Sprint(s.Relays), evictedCell(s.Evicted, style.wide)}
		if style.wide {
			row = append(row, fmt.Sprint(s.Requests), fmt.Sprint(s.Errors))
		}
		t.add(row...)
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
	return errors.Join(t.writeNoted(w, notes...), windowNote(w, f))
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

func writeNotes(w io.Writer, notes []string) error {
	for _, note := range notes {
		if _, err := fmt.Fprintln(w, process.Printable(note)); err != nil {
			return err
		}
	}
	return nil
}

func windowNote(w io.Writer, f *api.Fleet) error {
	_, err := fmt.Fprintf(w, "rates over %s, asked by %s\n", time.Duration(f.WindowMs)*time.Millisecond, process.Printable(f.Relay))
	return err
}
