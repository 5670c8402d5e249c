package command

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
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
		return call.call(cmd, http.MethodPost, cmd.Name(), nil, &answer, func(p *page) { relayDrainText(p, answer) })
	}
	return c
}

func relayDrainText(p *page, a api.Drain) {
	if a.Draining {
		p.line("%s is draining since %s, %d requests in flight", a.Relay, a.Since.Local().Format(time.TimeOnly), a.InFlight)
		return
	}
	p.line("%s is in rotation again: it is ready unless `relay health --ready` names another reason", a.Relay)
}

// RelayReloadCommand is `reload` of a relay: the relay reads its settings again.
func RelayReloadCommand() *cobra.Command {
	c := &cobra.Command{Use: "reload", Short: "read the settings again and apply what can change at run time", Args: cobra.NoArgs,
		Long: "What SIGHUP does, with an answer: which settings were applied, and which have changed\n" +
			"but need a restart or, of the plan, are not in use because the fleet plans with others.\n" +
			"The process reads the file and the environment that it was started with. If anything\n" +
			"is invalid, also together with settings that need a restart, nothing changes.",
		Example: "  relay config validate relay.yaml && relay reload"}
	call := relayCall(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var answer api.Reload
		return call.call(cmd, http.MethodPost, "reload", nil, &answer, func(p *page) { reloadText(p, answer) })
	}
	return c
}

func reloadText(p *page, a api.Reload) {
	changes(p, "applied", a.Applied)
	changes(p, "needs a restart", a.NeedsRestart)
	changes(p, "not in use", a.NotInUse)
	if a.Reason != "" {
		p.line("%s", a.Reason)
	}
	if len(a.Applied)+len(a.NeedsRestart)+len(a.NotInUse) == 0 {
		p.line("no setting has changed")
	}
}

// changes lists the changed settings under a heading.
func changes(p *page, what string, list []settings.Change) {
	for _, c := range list {
		p.line("%s: %s", what, c.String())
	}
}

// DrainCommand is `drain`: relays send no new requests to services of a worker.
func DrainCommand() *cobra.Command {
	return drainCommand("drain", "stop new requests to services, to all of them when none is named",
		"Requests in flight finish, and the worker stays a member. Draining all of a\nworker's services drains those, too, that a reload adds. It ends with undrain, for\na service that a reload removes, or with the worker.")
}

// UndrainCommand is `undrain`: it revokes a drain.
func UndrainCommand() *cobra.Command {
	return drainCommand("undrain", "offer drained services again, all of them when none is named",
		"A service whose check fails is offered when it passes.")
}

func drainCommand(verb, short, long string) *cobra.Command {
	c := &cobra.Command{Use: verb + " [SERVICE...]", Short: short, Long: long + "\n\nThe exit code is 2 when the worker has no such service; nothing has changed then."}
	c.Example = "  worker " + verb + "\n  worker " + verb + " billing"
	call := workerCall(c.Flags())
	c.ValidArgsFunction = call.completeServices
	c.RunE = func(cmd *cobra.Command, names []string) error {
		body, err := json.Marshal(api.WorkerDrainRequest{Services: names})
		if err != nil {
			return err
		}
		var answer api.WorkerServices
		if err := call.call(cmd, http.MethodPost, verb, body, &answer, func(p *page) { workerServicesTable(p, &answer) }); err != nil || call.output == formJSON || call.output == formYAML {
			return err
		}
		if answer.Announced == nil || !*answer.Announced {
			fmt.Fprintln(cmd.ErrOrStderr(), "the relays do not know this yet: the worker announces it when it has joined: see its /readyz")
		}
		return nil
	}
	return c
}

// ReloadCommand is `reload`: the worker reads its services again.
func ReloadCommand() *cobra.Command {
	c := &cobra.Command{Use: "reload", Short: "read the settings and the file of services again", Args: cobra.NoArgs,
		Long:    "What SIGHUP does, with an answer. Services are added, changed and removed without\ntouching the others; of the settings the log level is applied, and the others that\nhave changed are named: they need a restart. If anything is invalid, nothing changes.",
		Example: "  worker reload"}
	call := workerCall(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var change api.WorkerReload
		return call.call(cmd, http.MethodPost, "reload", nil, &change, func(p *page) { changeTable(p, change) })
	}
	return c
}

func changeTable(p *page, change api.WorkerReload) {
	for _, list := range []struct {
		what  string
		names []string
	}{{"added", change.Added}, {"changed", change.Changed}, {"removed", change.Removed}, {"needs a restart", change.NeedsRestart}} {
		if len(list.names) > 0 {
			p.line("%s: %s", list.what, strings.Join(list.names, ", "))
		}
	}
	changes(p, "applied", change.Settings)
	if change.Empty() && len(change.Settings) == 0 {
		p.line("no service has changed")
	}
}
