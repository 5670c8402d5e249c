package command

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/relay"
)

// PlanCommand is `plan SERVICE`: who connects to whom, as all relays compute it.
func PlanCommand() *cobra.Command {
	c := &cobra.Command{Use: "plan SERVICE", Short: "show which relays serve a service and which workers they connect to", Args: arguments(cobra.ExactArgs(1)),
		Long: "Every relay computes the same plan. Members that have vanished may keep their place\n" +
			"in it for a while: they are marked absent, and nothing counts them.\n\n" +
			"The exit code is 2 when the relay knows no such service.",
		Example: "  relay plan billing\n  relay plan billing -o wide\n  relay plan billing -o json | jq .coverage"}
	call := relayCall(c.Flags())
	call.watchable(c.Flags())
	c.ValidArgsFunction = call.completeServices
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var answer relay.PlanAnswer
		return call.call(cmd, http.MethodGet, "services/"+url.PathEscape(args[0])+"/plan", nil, &answer, func(w io.Writer) error { return planTable(w, &answer, call.wide()) })
	}
	return c
}

func planTable(out io.Writer, a *relay.PlanAnswer, wide bool) error {
	w := newRows(out)
	w.add("service\t%s", a.Service)
	w.add("strategy\t%s, index by %s", a.Strategy, a.IndexSource)
	if a.Fallback != "" {
		w.add("fallback\t%s", a.Fallback)
	}
	w.add("relays\t%d, each connected to %s", len(a.Relays)-len(a.Absent.Relays), span(a.Coverage.WorkersPerRelay, "worker"))
	w.add("workers\t%d, each connected to %s", len(a.RelaysPerWorker), span(a.Coverage.RelaysPerWorker, "relay"))
	w.add("connections\t%d", a.Connections)
	for _, worker := range a.Absent.Workers {
		w.add("absent\tworker %s keeps its place", worker)
	}
	w.add("")
	if err := w.Flush(); err != nil {
		return err
	}
	w.add("INDEX\tRELAY\tSTATE\tWORKERS\tRANGE")
	for _, r := range a.Relays {
		state, connected := thereOr(r.Absent), 0
		for _, worker := range r.Workers {
			if !worker.Absent {
				connected++
			}
		}
		text := r.Range
		if text == "" {
			text = "-" // rendezvous has none
		}
		w.add("%d\t%s\t%s\t%d\t%s", r.Index, r.Relay, state, connected, text)
	}
	if wide {
		w.add("\nRELAY\tWORKER\tWEIGHT\tSTATE")
		for _, r := range a.Relays {
			for _, worker := range r.Workers {
				w.add("%s\t%s\t%.4f\t%s", r.Relay, worker.Worker, worker.Weight, thereOr(r.Absent || worker.Absent))
			}
		}
	}
	return w.Flush()
}

func thereOr(absent bool) string {
	if absent {
		return "absent"
	}
	return "there"
}

// span says "3 workers" or "3 to 4 workers".
func span(counts relay.MinMax, noun string) string {
	text := fmt.Sprint(counts.Max)
	if counts.Min != counts.Max {
		text = fmt.Sprintf("%d to %d", counts.Min, counts.Max)
	}
	if counts.Max != 1 {
		noun += "s"
	}
	return text + " " + noun
}
