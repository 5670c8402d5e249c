package command

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/settings"
)

// RelayReloadCommand is `reload` of a relay: it reads its settings again.
func RelayReloadCommand() *cobra.Command {
	c := &cobra.Command{Use: "reload", Short: "read the settings again and apply what can change at run time", Args: cobra.NoArgs,
		Long: "What SIGHUP does, with an answer: which settings were applied, and which have changed\n" +
			"but need a restart. The process reads the file and the environment that it was\n" +
			"started with. If anything is invalid, nothing changes.",
		Example: "  relay config validate relay.yaml && relay reload"}
	call := relayCall(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var answer relay.ReloadAnswer
		return call.call(cmd, http.MethodPost, "reload", nil, &answer, func(w io.Writer) error { return reloadText(w, answer) })
	}
	return c
}

func reloadText(w io.Writer, a relay.ReloadAnswer) error {
	var b strings.Builder
	changes(&b, "applied", a.Applied)
	changes(&b, "needs a restart", a.NeedsRestart)
	if b.Len() == 0 {
		b.WriteString("no setting has changed\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// changes lists settings under what became of them.
func changes(b *strings.Builder, what string, list []settings.Change) {
	for _, c := range list {
		fmt.Fprintf(b, "%s: %s\n", what, daemon.Printable(c.String()))
	}
}
