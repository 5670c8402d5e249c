package command

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/daemon"
)

// completeTimeout is what a person waits for after a Tab.
const completeTimeout = time.Second

// completeServices gives the shell the services that the process knows. When it does
// not answer there is nothing to complete, and nothing is said.
func (c *adminCall) completeServices(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	const quiet = cobra.ShellCompDirectiveNoFileComp
	if len(given) > 0 && c.process == "relay" { // its verbs take one service
		return nil, quiet
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeTimeout)
	defer cancel()
	var answer struct {
		Services []struct{ Service, Name string } // a relay says service, a worker name
	}
	if _, err := c.fetch(ctx, http.MethodGet, "services", nil, &answer); err != nil {
		return nil, quiet
	}
	var names []string
	for _, s := range answer.Services {
		if name := s.Service + s.Name; !slices.Contains(given, name) && daemon.Printable(name) == name {
			names = append(names, name)
		}
	}
	return names, quiet
}
