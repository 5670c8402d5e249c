package command

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/node"
)

// CheckCommand is `check`: the problems of the fleet, as one relay sees them.
func CheckCommand() *cobra.Command {
	c := &cobra.Command{Use: "check", Short: "check the fleet, and report each fault with its remedy", Args: cobra.NoArgs,
		Long: "One relay asks all others what they are set to, see and are connected to, tries to\n" +
			"reach members over UDP, and compares. What may be over in a moment, because news\n" +
			"travels, is checked three times before it is reported. Nothing is changed.\n\n" +
			"Every finding has the fault, the reason why that matters, the remedy, and where to read\n" +
			"more: ✓ all is well, ! a margin is smaller than it should be, ✗ something is broken.\n\n" +
			"The exit code is 1 when something is broken, with --strict also for warnings.",
		Example: "  relay check\n  relay check --strict -o json | jq -r '.findings[] | select(.status != \"ok\") | .remedy'"}
	call := relayCall(c.Flags(), formTable, formJSON, formYAML)
	strict := c.Flags().Bool("strict", false, "end with exit code 1 for warnings, too")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var report api.Report
		return call.read(cmd, func(ctx context.Context) ([]byte, error) {
			text, err := call.fetch(ctx, http.MethodGet, "check", nil, &report)
			if err == nil && (report.Failures > 0 || *strict && report.Warnings > 0) {
				err = fmt.Errorf("check: %s", tally(&report))
			}
			return text, err
		}, func(w io.Writer) error { return checkText(w, &report, coloured(w)) })
	}
	return c
}

// marks are the first characters of a finding in the output.
var marks = map[api.Status]cell{api.OK: {"✓", styleGood}, api.Warning: {"!", styleFair}, api.Failed: {"✗", styleBad}}

func checkText(w io.Writer, r *api.Report, colour bool) error {
	var b strings.Builder
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Check))
	}
	for _, f := range r.Findings {
		mark := marks[f.Status]
		if mark.text == "" {
			mark = cell{"?", styleFair} // from a newer version
		}
		if colour {
			mark.text = string(mark.style) + mark.text + reset
		}
		fmt.Fprintf(&b, "%s %-*s  %s\n", mark.text, width, node.Printable(f.Check), node.Printable(f.Text))
		for _, more := range []struct{ name, text string }{{"why", f.Cause}, {"do", f.Remedy}, {"see", f.Page}} {
			if more.text != "" {
				fmt.Fprintf(&b, "  %*s  %-3s  %s\n", width, "", more.name, node.Printable(more.text))
			}
		}
	}
	fmt.Fprintf(&b, "\n%s: %s\n", node.Printable(r.Relay), tally(r))
	_, err := io.WriteString(w, b.String())
	return err
}

func tally(r *api.Report) string {
	fine := 0
	for _, f := range r.Findings {
		if f.Status == api.OK {
			fine++
		}
	}
	return fmt.Sprintf("%d fine, %d to watch, %d broken", fine, r.Warnings, r.Failures)
}
