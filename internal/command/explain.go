package command

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/relay"
)

// ExplainCommand is `explain SERVICE`: what one relay does for a service, and why.
func ExplainCommand() *cobra.Command {
	c := &cobra.Command{Use: "explain SERVICE", Short: "say why a relay serves a service, and why it connects to a worker or not", Args: arguments(cobra.ExactArgs(1)),
		Long: "In the drawing, every line is a relay and every column a place on the ring of workers:\n" +
			"# where the relay connects to all workers of the column, + to some, . to none.\n\n" +
			"The exit code is 2 when the relay knows no such service, or the worker does not offer it.",
		Example: "  relay explain billing\n  relay explain billing --worker billing-7"}
	call := relayCall(c.Flags())
	call.watchable(c.Flags())
	c.ValidArgsFunction = call.completeServices
	worker := c.Flags().String("worker", "", "id of a worker to explain")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		path := "services/" + url.PathEscape(args[0]) + "/explain"
		if *worker != "" {
			path += "?worker=" + url.QueryEscape(*worker)
		}
		var answer relay.ExplainAnswer
		return call.call(cmd, http.MethodGet, path, nil, &answer, func(w io.Writer) error { return explainTable(w, &answer) })
	}
	return c
}

func explainTable(out io.Writer, a *relay.ExplainAnswer) error {
	w := newRows(out)
	row := func(name, format string, values ...any) { w.add(name+"\t"+format, values...) }
	row("service", "%s", a.Service)
	row("relay", "%s, %s", a.Relay, a.Role)
	row("reason", "%s", a.Reason)
	if a.Strategy != "" {
		row("strategy", "%s, index by %s", a.Strategy, a.IndexSource)
	}
	if a.Fallback != "" {
		row("fallback", "%s", a.Fallback)
	}
	if a.Index >= 0 {
		row("index", "%d", a.Index)
	}
	if a.Range != "" {
		row("range", "%s", a.Range)
	}
	if p := a.Plan; p != nil {
		row("minimums", "%d relays for each worker, %d workers for each relay", p.PeersPerWorker, p.PeersPerRelay)
		row("ratio", "%.4g, of %d workers and %d relays", p.Ratio, p.Workers, p.Relays)
		if a.Index >= 0 {
			row("length", "%d of %d workers", p.Length, p.Workers)
		}
		row("computed", "%s", p.Computed.UTC().Format(time.RFC3339))
	}
	if x := a.Worker; x != nil {
		fmt.Fprintln(w)
		row("worker", "%s, %s", x.Worker, x.Offer)
		row("in range", "%s", yesNo(x.InRange))
		row("reason", "%s", x.Reason)
		if x.Position >= 0 {
			row("position", "%d of %d", x.Position, x.Ring)
		}
		if x.Distance >= 0 {
			row("distance", "%d", x.Distance)
		}
		if x.Tier != "" {
			row("tier", "%s, %s", x.Tier, cmp.Or(x.Group, "another group"))
		}
		if x.Address != "" {
			row("address", "%s", x.Address)
		}
		row("connected", "%s, link %s", yesNo(x.Connected), x.Link)
		row("weight", "%.4f", x.Weight)
		row("balancer", "%s", cmp.Or(x.Balancer, "-"))
		if x.LastReason != "" {
			row("last reason", "%s", x.LastReason)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if a.Drawing != "" {
		if _, err := fmt.Fprint(out, "\n", daemon.PrintableLines(a.Drawing)); err != nil {
			return err
		}
	}
	return nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
