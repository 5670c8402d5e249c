package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
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

func servicesTable(p *page, a *api.Services) {
	columns := []string{"SERVICE", "ROLE", ">ENDPOINTS", ">READY", ">RELAYS", ">RANGE", ">IN FLIGHT", ">REQUESTS", "+PLACES"}
	refuses := slices.ContainsFunc(a.Services, func(s api.ListedService) bool { return len(s.Refused) > 0 })
	if refuses {
		columns = slices.Insert(columns, len(columns)-1, ">REFUSED")
	}
	t := p.table(columns...)
	for _, s := range a.Services {
		ready := cell{fmt.Sprint(s.Ready), plain}
		if s.Ready == 0 {
			ready.style = styleBad
		}
		requests := count(s.Requests)
		if p.wide {
			requests = fmt.Sprint(s.Requests)
		}
		row := []any{s.Service, s.Role, fmt.Sprint(s.Endpoints), ready, fmt.Sprint(s.Relays), fmt.Sprint(s.Range), fmt.Sprint(s.InFlight), requests}
		if refuses {
			row = append(row, fmt.Sprint(len(s.Refused)))
		}
		t.add(append(row, s.RangeText)...)
	}
	t.write()
}

func serviceTable(p *page, a *api.Service) {
	p.row("service", "%s", a.Service)
	p.row("relay", "%s, %s", a.Relay, a.Role)
	if a.Index >= 0 {
		p.row("index", "%d of %d relays", a.Index, len(a.AffineRelays))
	}
	p.some("range", a.RangeText)
	p.some("relays", a.RelaysRaised)
	out, without := leftOut(a), ""
	if len(out) > 0 {
		without = fmt.Sprintf(", %d of them not taking new requests", len(out))
	}
	p.row("endpoints", "%d%s", a.Endpoints, without)
	for _, worker := range slices.Sorted(maps.Keys(a.Refused)) {
		p.row("refused", "worker %s: %s", worker, a.Refused[worker])
	}
	p.row("in flight", "%d", a.InFlight)
	p.row("policy", "%s\n", policyText(a.Policy))
	t := p.table("PEER", "STATE", "CONNECTED", ">WEIGHT", ">LATENCY", ">IN FLIGHT", ">REQUESTS", ">FAILURES", ">ERRORS", "+>SCORE", "+ADDRESS", "+LAST REASON")
	for _, p := range a.Peers {
		connected := cell{yesNo(p.Connected), plain}
		if !p.Connected {
			connected.style = styleFair
		}
		t.add(p.Node, stateCell(p.State), connected, fmt.Sprintf("%.4f", p.Weight), latency(p.EWMAms), fmt.Sprint(p.InFlight),
			count(p.Requests), count(p.Failures), percent(p.ErrorRate), fmt.Sprintf("%.4g", p.Score), p.Address, p.LastReason)
	}
	for _, e := range out {
		t.add(e.NodeID, stateCell(offerState(e)), "", "", "", "", "", "", "", "", e.Address, "")
	}
	t.write()
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

func workerServicesTable(p *page, a *api.WorkerServices) {
	t := p.table("SERVICE", "ADDRESS", "STATE", ">FOR", "CHECK", "ERROR", "+PROTOCOL", "+>WEIGHT", "+>SLOTS", "+VERSION", "+TAGS", "+SOURCE")
	for _, s := range a.Services {
		t.add(s.Name, s.Address, stateCell(s.State), age(time.Since(s.Since)), s.Check, s.Error,
			string(s.Protocol), fmt.Sprint(s.Weight), fmt.Sprint(s.Slots), s.Version, strings.Join(s.Tags, ","), s.Source)
	}
	t.write()
}
