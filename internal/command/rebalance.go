package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/membership/identity"
)

// RebalanceCommand is `rebalance`: it asks sessions to go whose worker has more than its
// share.
func RebalanceCommand() *cobra.Command {
	c := &cobra.Command{Use: "rebalance SERVICE", Short: "close sessions of workers that have more than their share, so that clients reconnect", Args: arguments(cobra.ExactArgs(1)),
		Long: "After a scale-out or a rolling restart, WebSockets stay with the workers that were there.\n" +
			"The relay closes the surplus of each worker of its range, above the share that the\n" +
			"weights give it, with the status 1001: clients reconnect, and a new session goes to\n" +
			"the worker that has the fewest. The youngest sessions go first, --rate of them per\n" +
			"second. The surplus is counted again before each, no worker loses more than its\n" +
			"surplus at the beginning plus one, and no session is asked twice.\n\n" +
			"Sessions stay that would come back to the same worker: with a session cookie, or with\n" +
			"a key of the strategy stable (BOUND). So do those without a close frame, such as TCP\n" +
			"(NO CLOSE), unless --cut ends their connections.\n\n" +
			"It concerns the sessions of one relay, or with --all those of each relay, one relay\n" +
			"after the other. A token is then sent to the other relays only over TLS\n" +
			"(--admin-tls-cert). Ctrl-C ends the rebalance.",
		Example: "  relay rebalance chat --dry-run\n  relay rebalance chat --rate 5\n  relay rebalance chat --all -o json | jq -c 'select(.state == \"done\")'"}
	call := relayCall(c.Flags(), formText, formJSON)
	c.ValidArgsFunction = call.completeServices
	dry := c.Flags().Bool("dry-run", false, "show sessions, shares and what would be asked to go; nothing changes")
	rate := c.Flags().Float64("rate", api.DefaultRebalanceRate, "sessions per second that are asked to go, evenly spaced")
	cut := c.Flags().Bool("cut", false, "also end sessions without a close frame: TCP sessions, and upgrades other than WebSocket. Their clients see a connection that ends")
	all := c.Flags().Bool("all", false, "at all relays, one after the other, at the admin addresses that they announce")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := call.form.check(); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		b := &rebalance{
			path: "services/" + url.PathEscape(args[0]) + "/rebalance", dry: *dry,
			query: url.Values{"rate": {fmt.Sprint(*rate)}, "cut": {fmt.Sprint(*cut)}},
			out:   cmd.OutOrStdout(),
		}
		var err error
		if *all {
			err = call.atAll(ctx, cmd.ErrOrStderr(), []identity.Role{identity.RoleRelay}, b.one)
		} else {
			err = b.one(ctx, call, "")
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: %d sessions were asked to go", b.asked+b.last)
		}
		return err
	}
	return c
}

// rebalance prints the answers of one or more relays.
type rebalance struct {
	path  string
	query url.Values
	dry   bool
	out   io.Writer

	asked, last int // sessions, by the relays that are done and by that which runs
}

// errComplete ends the stream after its last line.
var errComplete = errors.New("the rebalance has ended")

// one asks one relay. If id is not empty, no other relay may answer.
func (b *rebalance) one(ctx context.Context, call *adminCall, id string) error {
	query := b.query
	if id != "" {
		query = url.Values{"relay": {id}, "rate": b.query["rate"], "cut": b.query["cut"]}
	}
	if b.dry {
		var answer api.Rebalance
		text, err := call.fetch(ctx, http.MethodGet, b.path+"?"+query.Encode(), nil, &answer)
		if err != nil {
			return err
		}
		if err := call.is(id)(answer.Relay); err != nil {
			return err
		}
		return call.show(b.out, text, func(p *page) { rebalanceText(p, &answer) })
	}
	err := call.followFrom(ctx, b.path+"?"+query.Encode(), follower{
		method: http.MethodPost, check: call.is(id),
		take: func(line []byte) error {
			var answer api.Rebalance
			if err := json.Unmarshal(line, &answer); err != nil {
				return fmt.Errorf("the relay sent a line that is no progress of a rebalance: %w", err)
			}
			b.last = answer.Asked
			if err := call.show(b.out, append(line, '\n'), func(p *page) { rebalanceText(p, &answer) }); err != nil {
				return err
			}
			if answer.State == api.RebalanceDone {
				b.asked, b.last = b.asked+answer.Asked, 0
				return errComplete
			}
			return nil
		},
	})
	if errors.Is(err, errComplete) {
		return nil
	}
	return err
}

// rebalanceText writes tables of the plan and of the end, and a line for the progress.
func rebalanceText(p *page, a *api.Rebalance) {
	sessions, surplus := 0, 0
	for _, w := range a.Workers {
		sessions, surplus = sessions+w.Sessions, surplus+w.Surplus
	}
	line := fmt.Sprintf("%s: %d sessions of %s, %d to go, %d asked", a.Relay, sessions, a.Service, surplus, a.Asked)
	switch {
	case len(a.AskInstead) > 0:
		line = fmt.Sprintf("%s forwards %s and has no session with a worker; those that do are %s", a.Relay, a.Service, strings.Join(a.AskInstead, ", "))
	case a.State == api.RebalanceRunning:
	case a.State == api.RebalanceDone:
		line = fmt.Sprintf("%s: %d sessions of %s, %d asked to go; %s", a.Relay, sessions, a.Service, a.Asked, a.Reason)
	default:
		line = fmt.Sprintf("%s: %d sessions of %s, %d to go", a.Relay, sessions, a.Service, surplus)
	}
	p.line("%s", line)
	if a.State == api.RebalanceRunning || len(a.Workers) == 0 {
		return
	}
	t := p.table("WORKER", ">SESSIONS", ">SHARE", ">SURPLUS", ">BOUND", ">NO CLOSE", ">ASKED", "NOTE")
	for _, w := range a.Workers {
		share, note := fmt.Sprint(w.Share), ""
		switch {
		case w.Out != "":
			share, note = "-", w.Out+": gets no new sessions"
		case w.Joining:
			note = "has just joined: gets few sessions for some seconds"
		}
		t.add(w.Worker, fmt.Sprint(w.Sessions), share, fmt.Sprint(w.Surplus), fmt.Sprint(w.Bound), fmt.Sprint(w.NoClose), fmt.Sprint(w.Asked), note)
	}
	t.write()
}
