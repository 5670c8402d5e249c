package command

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/relay"
)

// RelayDrainCommand is `drain` of a relay: out of rotation, without a stop.
func RelayDrainCommand() *cobra.Command {
	return relayDrain(&cobra.Command{Use: "drain", Short: "take a relay out of rotation without stopping it",
		Long: "From now on /readyz answers 503 with the reason \"draining\", so that load balancers\n" +
			"send nothing new, and answers to clients close their connection. The relay stays a\n" +
			"member, keeps its connections to workers and carries whatever still reaches it, from\n" +
			"clients and from other relays. undrain takes it back; so does a restart. To leave the\n" +
			"fleet for good, stop the process: it finishes its requests.",
		Example: "  relay drain\n  relay drain -o json | jq .in_flight"})
}

// RelayUndrainCommand is `undrain` of a relay, which takes a drain back.
func RelayUndrainCommand() *cobra.Command {
	return relayDrain(&cobra.Command{Use: "undrain", Short: "take a drained relay back into rotation",
		Long: "The relay is ready again, unless it has another reason not to be: see its /readyz.", Example: "  relay undrain"})
}

func relayDrain(c *cobra.Command) *cobra.Command {
	c.Args = cobra.NoArgs
	call := relayCall(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var answer relay.DrainAnswer
		return call.call(cmd, http.MethodPost, cmd.Name(), nil, &answer, func(w io.Writer) error { return relayDrainText(w, answer) })
	}
	return c
}

func relayDrainText(w io.Writer, a relay.DrainAnswer) error {
	text := fmt.Sprintf("%s is in rotation again: it is ready unless `relay health --ready` names another reason\n", daemon.Printable(a.Relay))
	if a.Draining {
		text = fmt.Sprintf("%s is draining since %s, %d requests in flight\n", daemon.Printable(a.Relay), a.Since.Local().Format(time.TimeOnly), a.InFlight)
	}
	_, err := io.WriteString(w, text)
	return err
}
