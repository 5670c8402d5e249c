package command

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/settings"
)

// RelayDrainCommand is `drain` of a relay: it takes the relay out of rotation without a
// stop.
func RelayDrainCommand() *cobra.Command {
	return relayDrain(&cobra.Command{Use: "drain", Short: "take a relay out of rotation without stopping it",
		Long: "From now on /readyz answers 503 with the reason \"draining\", so that load balancers\n" +
			"send nothing new, and answers to clients close their connection. The relay stays a\n" +
			"member, keeps its connections to workers and carries requests that still reach it, from\n" +
			"clients and from other relays. undrain takes it back; so does a restart. To leave the\n" +
			"fleet for good, stop the process: it finishes its requests.",
		Example: "  relay drain\n  relay drain -o json | jq .in_flight"})
}

// RelayUndrainCommand is `undrain` of a relay: it revokes a drain.
func RelayUndrainCommand() *cobra.Command {
	return relayDrain(&cobra.Command{Use: "undrain", Short: "take a drained relay back into rotation",
		Long: "The relay is ready again, unless it has another reason not to be: see its /readyz.", Example: "  relay undrain"})
}

func relayDrain(c *cobra.Command) *cobra.Command {
	c.Args = cobra.NoArgs
	call := relayCall(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var answer api.Drain
		return call.call(cmd, http.MethodPost, cmd.Name(), nil, &answer, func(w io.Writer) error { return relayDrainText(w, answer) })
	}
	return c
}

func relayDrainText(w io.Writer, a api.Drain) error {
	text := fmt.Sprintf("%s is in rotation again: it is ready unless `relay health --ready` names another reason\n", node.Printable(a.Relay))
	if a.Draining {
		text = fmt.Sprintf("%s is draining since %s, %d requests in flight\n", node.Printable(a.Relay), a.Since.Local().Format(time.TimeOnly), a.InFlight)
	}
	_, err := io.WriteString(w, text)
	return err
}

// RelayReloadCommand is `reload` of a relay: the relay reads its settings again.
func RelayReloadCommand() *cobra.Command {
	c := &cobra.Command{Use: "reload", Short: "read the settings again and apply what can change at run time", Args: cobra.NoArgs,
		Long: "What SIGHUP does, with an answer: which settings were applied, and which have changed\n" +
			"but need a restart. The process reads the file and the environment that it was\n" +
			"started with. If anything is invalid, nothing changes.",
		Example: "  relay config validate relay.yaml && relay reload"}
	call := relayCall(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var answer api.Reload
		return call.call(cmd, http.MethodPost, "reload", nil, &answer, func(w io.Writer) error { return reloadText(w, answer) })
	}
	return c
}

func reloadText(w io.Writer, a api.Reload) error {
	var b strings.Builder
	changes(&b, "applied", a.Applied)
	changes(&b, "needs a restart", a.NeedsRestart)
	if b.Len() == 0 {
		b.WriteString("no setting has changed\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// changes lists the changed settings under a heading.
func changes(b *strings.Builder, what string, list []settings.Change) {
	for _, c := range list {
		fmt.Fprintf(b, "%s: %s\n", what, node.Printable(c.String()))
	}
}
