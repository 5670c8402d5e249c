package command

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/relay"
)

// PlanCommand is `plan SERVICE`: who connects to whom, as all relays compute it.
func PlanCommand() *cobra.Command {
	c := &cobra.Command{Use: "plan SERVICE", Short: "show which relays serve a service and which workers they connect to", Args: cobra.ExactArgs(1),
		Long: "Every relay computes the same plan. Members that have vanished may keep their place\n" +
			"in it for a while: they are marked absent, and nothing counts them.\n\n" +
			"The exit code is 2 when the relay knows no such service."}
	call := relayCall(c.Flags(), "table", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var answer relay.PlanAnswer
		return call.call(cmd, http.MethodGet, "services/"+url.PathEscape(args[0])+"/plan", nil, &answer, func(w io.Writer) error { return planTable(w, &answer) })
	}
	return c
}

func planTable(out io.Writer, a *relay.PlanAnswer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "service\t%s\n", a.Service)
	fmt.Fprintf(w, "strategy\t%s, index by %s\n", a.Strategy, a.IndexSource)
	if a.Fallback != "" {
		fmt.Fprintf(w, "fallback\t%s\n", a.Fallback)
	}
	fmt.Fprintf(w, "relays\t%d, each connected to %s\n", len(a.Relays)-len(a.Absent.Relays), span(a.Coverage.WorkersPerRelay, "worker"))
	fmt.Fprintf(w, "workers\t%d, each connected to %s\n", len(a.RelaysPerWorker), span(a.Coverage.RelaysPerWorker, "relay"))
	fmt.Fprintf(w, "connections\t%d\n", a.Connections)
	for _, worker := range a.Absent.Workers {
		fmt.Fprintf(w, "absent\tworker %s keeps its place\n", worker)
	}
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "INDEX\tRELAY\tSTATE\tWORKERS\tRANGE")
	for _, r := range a.Relays {
		state, connected := "there", 0
		if r.Absent {
			state = "absent"
		}
		for _, worker := range r.Workers {
			if !worker.Absent {
				connected++
			}
		}
		text := r.Range
		if text == "" {
			text = "-" // rendezvous has none
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\n", r.Index, r.Relay, state, connected, text)
	}
	return w.Flush()
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
