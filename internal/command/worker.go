package command

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/node"
)

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
		if err := call.call(cmd, http.MethodPost, verb, body, &answer, func(w io.Writer) error {
			return workerServicesTable(w, &answer, tableStyle{call.wide(), coloured(cmd.OutOrStdout())})
		}); err != nil || call.output == formJSON || call.output == formYAML {
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
		return call.call(cmd, http.MethodPost, "reload", nil, &change, func(w io.Writer) error { return changeTable(w, change) })
	}
	return c
}

func changeTable(w io.Writer, change api.WorkerReload) error {
	var b strings.Builder
	for _, list := range []struct {
		what  string
		names []string
	}{{"added", change.Added}, {"changed", change.Changed}, {"removed", change.Removed}, {"needs a restart", change.NeedsRestart}} {
		if len(list.names) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", list.what, node.Printable(strings.Join(list.names, ", ")))
		}
	}
	changes(&b, "applied", change.Settings)
	if change.Empty() && len(change.Settings) == 0 {
		b.WriteString("no service has changed\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
