package command

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/membership/identity"
)

// BlockCommand is `block`: it refuses the requests of a caller or to a service at one relay.
func BlockCommand() *cobra.Command {
	root := &cobra.Command{Use: "block", Short: "refuse the requests of a caller or to a service for a time", Args: cobra.NoArgs,
		Long: "The relay answers 403 to requests that are blocked. It decides for its own clients only,\n" +
			"so block with --all at every relay and gate. A token is then sent to the others only\n" +
			"over TLS (--admin-tls-cert). A block ends with its time, with remove, or with the relay;\n" +
			"a reload keeps it. One that stays belongs in blocks of the file.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	root.Example = "  relay block add --caller 203.0.113.7 --for 30m --reason scraper --all\n  relay block list --all"
	call := relayCall(root.PersistentFlags())
	ask := func(cmd *cobra.Command, all bool, method string, body []byte) error {
		first := true
		one := func(_ context.Context, call *adminCall, id string) error {
			path := "blocks"
			if id != "" { // another relay refuses it before it acts
				path += "?relay=" + url.QueryEscape(id)
			}
			var answer api.Blocks
			return call.read(cmd, func(ctx context.Context) ([]byte, error) {
				text, err := call.fetch(ctx, method, path, body, &answer)
				if err == nil {
					err = call.is(id)(answer.Relay) // a relay of an earlier release does not check it
				}
				if err == nil && all {
					err = call.separate(cmd.OutOrStdout(), first)
					first = false
				}
				if err != nil {
					return nil, err
				}
				return text, nil
			}, func(p *page) { blocksTable(p, &answer) })
		}
		if !all {
			return one(cmd.Context(), call, "")
		}
		return call.atAll(cmd.Context(), cmd.ErrOrStderr(), []identity.Role{identity.RoleRelay, identity.RoleGate}, one)
	}
	const everywhere = "at all relays and gates, one after the other, at the admin addresses that they announce"
	change := func(operation string, c *cobra.Command) *cobra.Command {
		request := api.BlockRequest{Operation: operation}
		c.Args = cobra.NoArgs
		c.Flags().StringVar(&request.Caller, "caller", "*", "name in a client's certificate, address (of IPv6 with its whole /64), or what a trusted proxy names; * is each")
		c.Flags().StringVar(&request.Service, "service", "*", "name of the service; * is each")
		all := c.Flags().Bool("all", false, everywhere)
		var last time.Duration
		if operation == api.AddBlock {
			c.Flags().DurationVar(&last, "for", time.Hour, "how long, 1s to 720h")
			c.Flags().StringVar(&request.Reason, "reason", "", "for operators; clients see it where --expose-route-headers is set")
		}
		c.RunE = func(cmd *cobra.Command, _ []string) error {
			request.ForMs = last.Milliseconds()
			body, err := json.Marshal(request)
			if err != nil {
				return err
			}
			return ask(cmd, *all, http.MethodPost, body)
		}
		return c
	}
	list := &cobra.Command{Use: "list", Short: "the blocks in effect, and what each has refused", Example: "  relay block list --all\n  relay block list --watch", Args: cobra.NoArgs}
	all := list.Flags().Bool("all", false, everywhere)
	list.RunE = func(cmd *cobra.Command, _ []string) error { return ask(cmd, *all, http.MethodGet, nil) }
	call.watchable(list.Flags())
	list.MarkFlagsMutuallyExclusive("all", "watch")
	root.AddCommand(
		change(api.AddBlock, &cobra.Command{Use: "add", Short: "block a caller, a service, or a caller at a service",
			Long:    "A block of the same caller and service is replaced: the time begins again.",
			Example: "  relay block add --caller batch.example.com --service billing --for 2h\n  relay block add --service reports --reason repair"}),
		list,
		change(api.RemoveBlock, &cobra.Command{Use: "remove", Short: "end a block before its time",
			Long:    "The exit code is 2 when no command has added such a block, with --all at one of the relays.",
			Example: "  relay block remove --caller batch.example.com --service billing"}),
	)
	return root
}

func blocksTable(p *page, a *api.Blocks) {
	if len(a.Blocks) == 0 {
		p.line("%s: nothing is blocked", a.Relay)
		return
	}
	t := p.table("RELAY", "CALLER", "SERVICE", "UNTIL", "ORIGIN", ">REFUSED", "REASON")
	for _, b := range a.Blocks {
		until := ""
		if !b.Until.IsZero() {
			until = b.Until.UTC().Format(time.RFC3339)
		}
		t.add(a.Relay, b.Caller, b.Service, until, b.Origin, strconv.FormatUint(b.Refused, 10), b.Reason)
	}
	t.write()
}
