package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/relay/routing"
)

// RouteCommand is `route SERVICE`: where a request would go now, and why.
func RouteCommand() *cobra.Command {
	c := &cobra.Command{Use: "route SERVICE", Short: "say which worker a request would go to, and why", Args: arguments(cobra.ExactArgs(1)),
		Long: "It asks one relay how it would pick an endpoint for a request, with the code that\n" +
			"picks. Nothing is sent. Where chance takes part, the next request may go elsewhere.\n" +
			"A relay that forwards the service says to which relays.\n\n" +
			"The exit code is 2 when the relay knows no such service, or when nobody could be\n" +
			"picked.",
		Example: "  relay route billing\n  relay route billing --key alice\n  relay route billing --key alice -o json | jq -r .decision.winner"}
	call := relayCall(c.Flags())
	call.watchable(c.Flags())
	c.ValidArgsFunction = call.completeServices
	key := c.Flags().String("key", "", "key of the request, as in its Ringway-Key header")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		path := "services/" + url.PathEscape(args[0]) + "/route"
		if *key != "" {
			path += "?key=" + url.QueryEscape(*key)
		}
		var a relay.RouteAnswer
		return call.read(cmd, func(ctx context.Context) ([]byte, error) {
			text, err := call.fetch(ctx, http.MethodGet, path, nil, &a)
			switch {
			case err != nil:
			case a.Decision != nil && a.Decision.Winner == "":
				err = fmt.Errorf("%w: %s", ErrNothingMatched, a.Decision.Reason)
			case a.Role == "none":
				err = fmt.Errorf("%w: %s has no endpoint that takes requests", ErrNothingMatched, a.Service)
			case a.Decision == nil && len(a.Relays) == 0:
				err = fmt.Errorf("%w: %s forwards %s and knows no relay that serves it", ErrNothingMatched, a.Relay, a.Service)
			}
			return text, err
		}, func(w io.Writer) error {
			return routeTable(w, &a, tableStyle{call.wide(), coloured(cmd.OutOrStdout())})
		})
	}
	return c
}

func routeTable(out io.Writer, a *relay.RouteAnswer, style tableStyle) error {
	w := newRows(out)
	row := func(name, format string, values ...any) { w.add(name+"\t"+format, values...) }
	row("service", "%s", a.Service)
	row("relay", "%s, %s", a.Relay, a.Role)
	if a.Key != "" {
		row("key", "%s", a.Key)
	}
	d := a.Decision
	if d == nil {
		if a.Role == "none" {
			row("reason", "%s has no endpoint that takes requests", a.Service)
			return w.Flush()
		}
		if a.Next != "" {
			row("next", "%s: %s", a.Next, a.NextReason)
		}
		row("reason", "%s does not serve %s: it forwards to one of the relays that do", a.Relay, a.Service)
		if err := w.Flush(); err != nil {
			return err
		}
		return relaysTable(out, a.Relays, style)
	}
	row("strategy", "%s (%s)", d.Strategy, originText[d.Origin])
	row("winner", "%s", cmp.Or(d.Winner, "nobody"))
	row("reason", "%s", d.Reason)
	row("score", "%s", d.Measure)
	if err := w.Flush(); err != nil {
		return err
	}
	return candidatesTable(out, d, style)
}

// originText says where a strategy comes from.
var originText = map[routing.Origin]string{
	routing.FromServiceSetting: "the relay's setting for this service",
	routing.FromAdvertisement:  "advertised by the service",
	routing.FromSetting:        "the relay's setting for all services",
	routing.FromDefault:        "the default",
}

func candidatesTable(out io.Writer, d *routing.Decision, style tableStyle) error {
	if len(d.Candidates) == 0 {
		return nil
	}
	figure := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	columns := []string{"WON", "CANDIDATE"}
	if style.wide {
		columns = append(columns, "INSTANCE", "ADDRESS")
	}
	columns = append(columns, ">SCORE")
	parts := d.Candidates[0].Parts != nil
	if parts {
		columns = append(columns, ">LATENCY", ">QUEUE", ">SUCCESS", ">RAMP")
	}
	t := newTable(style.colour, append(columns, "NOTE")...)
	for _, c := range d.Candidates {
		won := cell{"", plain}
		if c.Node == d.Winner {
			won = cell{"yes", good}
		}
		row := []any{won, c.Node}
		if style.wide {
			row = append(row, c.ID, c.Address)
		}
		row = append(row, figure(c.Score))
		if p := c.Parts; p != nil {
			row = append(row, figure(p.LatencyMs)+" ms", figure(p.Queue), figure(p.Success), figure(p.Ramp))
		} else if parts {
			row = append(row, "", "", "", "")
		}
		t.add(append(row, c.Note)...)
	}
	if _, err := io.WriteString(out, "\n"); err != nil {
		return err
	}
	return t.writeTo(out)
}

func relaysTable(out io.Writer, relays []relay.RouteRelay, style tableStyle) error {
	if len(relays) == 0 {
		return nil
	}
	t := newTable(style.colour, "RELAY", "ADDRESS", "ROLE", "HEALTH", ">ESTIMATE", ">IN FLIGHT")
	for _, r := range relays {
		t.add(r.Relay, r.Address, r.Role, r.Health, strconv.FormatFloat(r.EstimateMs, 'g', 4, 64)+" ms", strconv.Itoa(r.InFlight))
	}
	if _, err := io.WriteString(out, "\n"); err != nil {
		return err
	}
	return t.writeTo(out)
}
