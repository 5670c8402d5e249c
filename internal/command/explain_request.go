package command

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/node"
)

// ExplainRequestCommand is `explain-request ID`: how the endpoints of one request were
// chosen.
func ExplainRequestCommand() *cobra.Command {
	c := &cobra.Command{Use: "explain-request ID", Short: "show how the endpoints of one request were chosen", Args: arguments(cobra.ExactArgs(1)),
		Long: "A relay with --request-log-explain N remembers this of the newest N requests that are in\n" +
			"the sample of its log: the candidates of each attempt with their scores at that time,\n" +
			"and why one won. ID is ringway.request.id in the record of the request.\n\n" +
			"The exit code is 2 when the relay does not remember the request.",
		Example: "  relay explain-request bf82ebf170477b3b-000000000000"}
	call := relayCall(c.Flags())
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var answer api.ExplainedRequest
		return call.call(cmd, http.MethodGet, "requests/"+url.PathEscape(args[0])+"/explain", nil, &answer, func(w io.Writer) error {
			return explainedTable(w, &answer, tableStyle{call.wide(), coloured(cmd.OutOrStdout())})
		})
	}
	return c
}

func explainedTable(out io.Writer, a *api.ExplainedRequest, style tableStyle) error {
	w := newRows(out)
	row := func(name, format string, values ...any) { w.add(name+"\t"+format, values...) }
	row("request", "%s", a.ID)
	row("service", "%s", a.Service)
	row("relay", "%s", a.Relay)
	row("began", "%s", a.Time.UTC().Format(time.RFC3339Nano))
	row("result", "%s", strings.TrimSpace(fmt.Sprintf("%d %s %s", a.Status, a.Outcome, a.Code)))
	row("took", "%.3f ms", a.DurationMs)
	if err := w.Flush(); err != nil {
		return err
	}
	for i, attempt := range a.Attempts {
		if _, err := fmt.Fprintf(out, "\nattempt %d\n", i+1); err != nil {
			return err
		}
		row("endpoint", "%s", cmp.Or(attempt.Endpoint, "none"))
		if attempt.ChosenBy != "" {
			row("chosen by", "%s", attempt.ChosenBy)
		}
		switch {
		case attempt.Failure != "":
			row("result", "%s", attempt.Failure)
		case attempt.Status != 0:
			row("result", "%d", attempt.Status)
		}
		d := attempt.Decision
		if d == nil {
			if err := w.Flush(); err != nil {
				return err
			}
			continue
		}
		row("strategy", "%s (%s)", d.Strategy, cmp.Or(originText[d.Origin], node.Printable(string(d.Origin))))
		if d.Key != "" {
			row("key", "%s", d.Key)
		}
		row("reason", "%s", d.Reason)
		if d.Measure != "" {
			row("score", "%s", d.Measure)
		}
		row("range", "%d workers", d.Range)
		if err := w.Flush(); err != nil {
			return err
		}
		if err := candidatesTable(out, d, style); err != nil {
			return err
		}
	}
	return nil
}
