package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
)

// ServicesCommand is `services [SERVICE]` of a relay: the services that the relay knows, or
// the peers of one service.
func ServicesCommand() *cobra.Command {
	c := &cobra.Command{Use: "services [SERVICE]", Short: "list the services that a relay knows, or the peers of one", Args: arguments(cobra.MaximumNArgs(1)),
		Long: "RANGE is the number of workers that this relay connects to; a relay that forwards\n" +
			"a service has none. REQUESTS counts since the relay started. For one service, the\n" +
			"peers are the workers of the range or, where the service is forwarded, relays;\n" +
			"endpoints that take no new requests, such as drained ones, are listed last.\n\n" +
			"The exit code is 2 when the relay knows no such service.",
		Example: "  relay services\n  relay services billing --watch\n  relay services billing -o json | jq '.peers[] | select(.state != \"active\")'"}
	call := serviceCall(c)
	c.Long += "\n\n" + fleetHelp +
		"A request that is forwarded counts once, at the relay of the client. WORKERS is the most\n" +
		"workers that one relay knows, EVICTED how many workers are evicted by how many relays."
	c.Example += "\n  relay services --all --watch"
	var all fleetFlags
	all.declare(c.Flags(), "the sums over all relays and gates")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := all.check(cmd); err != nil {
			return err
		}
		if all.on {
			if len(args) > 0 {
				return errors.New("--all lists all services: leave out the name")
			}
			return all.show(cmd, call, fleetServicesTable)
		}
		if len(args) == 0 {
			return get(cmd, call, "services", servicesTable)
		}
		return get(cmd, call, "services/"+url.PathEscape(args[0]), serviceTable)
	}
	return c
}

func servicesTable(out io.Writer, a *api.Services, style tableStyle) error {
	columns := []string{"SERVICE", "ROLE", ">ENDPOINTS", ">READY", ">RELAYS", ">RANGE", ">IN FLIGHT", ">REQUESTS"}
	refuses := slices.ContainsFunc(a.Services, func(s api.ListedService) bool { return len(s.Refused) > 0 })
	if refuses {
		columns = append(columns, ">REFUSED")
	}
	if style.wide {
		columns = append(columns, "PLACES")
	}
	t := newTable(style.colour, columns...)
	for _, s := range a.Services {
		ready := cell{fmt.Sprint(s.Ready), plain}
		if s.Ready == 0 {
			ready.style = styleBad
		}
		requests := count(s.Requests)
		if style.wide {
			requests = fmt.Sprint(s.Requests)
		}
		row := []any{s.Service, s.Role, fmt.Sprint(s.Endpoints), ready, fmt.Sprint(s.Relays), fmt.Sprint(s.Range), fmt.Sprint(s.InFlight), requests}
		if refuses {
			row = append(row, fmt.Sprint(len(s.Refused)))
		}
		if style.wide {
			row = append(row, s.RangeText)
		}
		t.add(row...)
	}
	return t.writeTo(out)
}

func serviceTable(w io.Writer, a *api.Service, style tableStyle) error {
	var b strings.Builder
	fmt.Fprintf(&b, "service    %s\nrelay      %s, %s\n", printable(a.Service, a.Relay, a.Role)...)
	if a.Index >= 0 {
		fmt.Fprintf(&b, "index      %d of %d relays\n", a.Index, len(a.AffineRelays))
	}
	if a.RangeText != "" {
		fmt.Fprintf(&b, "range      %s\n", process.Printable(a.RangeText))
	}
	if a.RelaysRaised != "" {
		fmt.Fprintf(&b, "relays     %s\n", process.Printable(a.RelaysRaised))
	}
	fmt.Fprintf(&b, "endpoints  %d", a.Endpoints)
	out := leftOut(a)
	if len(out) > 0 {
		fmt.Fprintf(&b, ", %d of them not taking new requests", len(out))
	}
	for _, worker := range slices.Sorted(maps.Keys(a.Refused)) {
		fmt.Fprintf(&b, "\nrefused    worker %s: %s", printable(worker, a.Refused[worker])...)
	}
	fmt.Fprintf(&b, "\nin flight  %d\npolicy     %s\n\n", a.InFlight, process.Printable(policyText(a.Policy)))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	columns := []string{"PEER", "STATE", "CONNECTED", ">WEIGHT", ">LATENCY", ">IN FLIGHT", ">REQUESTS", ">FAILURES", ">ERRORS"}
	if style.wide {
		columns = append(columns, ">SCORE", "ADDRESS", "LAST REASON")
	}
	t := newTable(style.colour, columns...)
	for _, p := range a.Peers {
		connected := cell{yesNo(p.Connected), plain}
		if !p.Connected {
			connected.style = styleFair
		}
		row := []any{p.Node, stateCell(p.State), connected, fmt.Sprintf("%.4f", p.Weight), latency(p.EWMAms), fmt.Sprint(p.InFlight),
			count(p.Requests), count(p.Failures), percent(p.ErrorRate)}
		if style.wide {
			row = append(row, fmt.Sprintf("%.4g", p.Score), p.Address, p.LastReason)
		}
		t.add(row...)
	}
	for _, e := range out {
		row := []any{e.NodeID, stateCell(offerState(e)), "", "", "", "", "", "", ""}
		if style.wide {
			row = append(row, "", e.Address, "")
		}
		t.add(row...)
	}
	return t.writeTo(w)
}

// leftOut returns the endpoints that no plan contains any more, drained workers for
// example, or that this relay cannot connect to.
func leftOut(a *api.Service) []*advertise.Endpoint {
	shown := map[string]bool{}
	for _, p := range a.Peers {
		shown[p.Node] = true
	}
	return slices.DeleteFunc(slices.Clone(a.Catalogue), func(e *advertise.Endpoint) bool {
		return offerState(e) == string(advertise.Ready) || shown[e.NodeID]
	})
}

func offerState(e *advertise.Endpoint) string {
	if e.Unreachable && e.State == advertise.Ready {
		return "unreachable"
	}
	return string(e.State)
}

// WorkerServicesCommand is `services [SERVICE...]` of a worker: the services that it
// offers.
func WorkerServicesCommand() *cobra.Command {
	c := &cobra.Command{Use: "services [SERVICE...]", Short: "list the services of a worker and what becomes of them",
		Long: "offered: relays know the service; unhealthy: its check fails; draining: relays send\n" +
			"nothing new.\n\nThe exit code is 2 when the worker has none of the services that are named.",
		Example: "  worker services\n  worker services billing -o json"}
	call := workerCall(c.Flags())
	call.watchable(c.Flags())
	c.ValidArgsFunction = call.completeServices
	c.RunE = func(cmd *cobra.Command, names []string) error {
		if len(names) == 0 {
			return get(cmd, call, "services", workerServicesTable)
		}
		return getDocument(cmd, call, func(ctx context.Context) (*api.WorkerServices, error) {
			var answer api.WorkerServices
			if _, err := call.fetch(ctx, http.MethodGet, "services", nil, &answer); err != nil {
				return nil, err
			}
			kept := []api.WorkerService{}
			for _, s := range answer.Services {
				for _, name := range names {
					if s.Name == name {
						kept = append(kept, s)
					}
				}
			}
			answer.Services = kept
			if len(kept) == 0 {
				return &answer, fmt.Errorf("%w: this worker has no service %s", ErrNothingMatched, strings.Join(names, ", "))
			}
			return &answer, nil
		}, workerServicesTable)
	}
	return c
}

func workerServicesTable(out io.Writer, a *api.WorkerServices, style tableStyle) error {
	columns := []string{"SERVICE", "ADDRESS", "STATE", ">FOR", "CHECK", "ERROR"}
	if style.wide {
		columns = append(columns, "PROTOCOL", ">WEIGHT", ">SLOTS", "VERSION", "TAGS", "SOURCE")
	}
	t := newTable(style.colour, columns...)
	for _, s := range a.Services {
		row := []any{s.Name, s.Address, stateCell(s.State), age(time.Since(s.Since)), s.Check, s.Error}
		if style.wide {
			row = append(row, string(s.Protocol), fmt.Sprint(s.Weight), fmt.Sprint(s.Slots), s.Version, strings.Join(s.Tags, ","), s.Source)
		}
		t.add(row...)
	}
	return t.writeTo(out)
}
