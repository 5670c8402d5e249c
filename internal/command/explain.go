package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
)

// ExplainCommand is `explain SERVICE`: the state of a service on one relay, with the
// reasons.
func ExplainCommand() *cobra.Command {
	c := &cobra.Command{Use: "explain SERVICE", Short: "explain why a relay serves a service, and why it connects to a worker or not", Args: arguments(cobra.ExactArgs(1)),
		Long: "In the drawing, every line is a relay and every column a place on the ring of workers:\n" +
			"# where the relay connects to all workers of the column, + to some, . to none.\n\n" +
			"The exit code is 2 when the relay knows no such service, or the worker does not offer it.",
		Example: "  relay explain billing\n  relay explain billing --worker billing-7"}
	call := serviceCall(c)
	worker := c.Flags().String("worker", "", "id of a worker to explain")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		path := "services/" + url.PathEscape(args[0]) + "/explain"
		if *worker != "" {
			path += "?worker=" + url.QueryEscape(*worker)
		}
		return get(cmd, call, path, explainTable)
	}
	return c
}

func explainTable(p *page, a *api.Explanation) {
	row := p.row
	row("service", "%s", a.Service)
	row("relay", "%s, %s", a.Relay, a.Role)
	row("reason", "%s", a.Reason)
	if a.Strategy != "" {
		row("strategy", "%s, index by %s", a.Strategy, a.IndexSource)
	}
	p.some("fallback", a.Fallback)
	if a.Index >= 0 {
		row("index", "%d", a.Index)
	}
	p.some("range", a.Range)
	if a.SessionCookie != "" {
		row("session", "%s", sessionText(a.SessionCookie))
	}
	row("policy", "%s", policyText(a.Policy))
	if len(a.RateLimits) > 0 && a.Demand > 0 {
		row("arrives", "%.3g/s", a.Demand)
	}
	limitRows(p, &a.Limits)
	if x := a.Plan; x != nil {
		row("minimums", "%d relays for each worker, %d workers for each relay", x.PeersPerWorker, x.PeersPerRelay)
		row("ratio", "%.4g, of %d workers and %d relays", x.Ratio, x.Workers, x.Relays)
		p.some("relays", x.RelaysRaised)
		if a.Index >= 0 {
			row("length", "%d of %d workers", x.Length, x.Workers)
		}
		row("computed", "%s", x.Computed.UTC().Format(time.RFC3339))
	}
	for _, worker := range slices.Sorted(maps.Keys(a.Refused)) {
		row("refused", "worker %s: %s", worker, a.Refused[worker])
	}
	if x := a.Worker; x != nil {
		p.line("")
		row("worker", "%s, %s", x.Worker, x.Offer)
		row("in range", "%s", yesNo(x.InRange))
		row("reason", "%s", x.Reason)
		if x.Position >= 0 {
			row("position", "%d of %d", x.Position, x.Ring)
		}
		if x.Distance >= 0 {
			row("distance", "%d", x.Distance)
		}
		if x.Tier != "" {
			row("tier", "%s, %s", x.Tier, cmp.Or(x.Group, "another group"))
		}
		p.some("address", x.Address)
		row("connected", "%s, link %s", yesNo(x.Connected), x.Link)
		row("weight", "%.4f", x.Weight)
		row("balancer", "%s", cmp.Or(x.Balancer, "-"))
		p.some("last reason", x.LastReason)
	}
	if a.Drawing != "" {
		fmt.Fprint(p, "\n", process.PrintableLines(a.Drawing))
	}
}

// policyText describes the policy of a service: every value with its origin.
func policyText(fields []api.PolicyField) string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = fmt.Sprintf("%s %s (%s)", f.Key, cmp.Or(f.Value, "none"), originText[f.Origin])
	}
	return strings.Join(texts, ", ")
}

// limitRows adds what can refuse requests.
func limitRows(p *page, l *api.Limits) {
	if l.NotForClients {
		p.row("clients", "get 404 unknown_service: --ingress-service of this relay does not have the service")
	}
	for _, b := range l.Blocks {
		p.row("blocked", "%s", blockText(&b))
	}
	for _, limit := range l.RateLimits {
		p.row("limit", "%s", limitText(&limit))
	}
}

// blockText describes a block of all callers.
func blockText(b *api.Block) string {
	text := fmt.Sprintf("for all callers, by %s", b.Origin)
	if !b.Until.IsZero() {
		text += ", until " + b.Until.UTC().Format(time.RFC3339)
	}
	if b.Reason != "" {
		text += ", " + b.Reason
	}
	return fmt.Sprintf("%s; %d refused", text, b.Refused)
}

// limitText describes a limit on requests per second.
func limitText(l *api.RateLimit) string {
	text := l.Of
	if l.Subject != "" {
		text += " " + l.Subject
	}
	text += ": " + l.Rate
	if l.Burst > 0 {
		text += fmt.Sprintf(", burst %d", l.Burst)
	}
	if l.Share == 0 {
		return text + "; the relays that serve it count"
	}
	return fmt.Sprintf("%s; %.3g %% at this relay, %.3g/s; %d refused", text, 100*l.Share, l.PerSecond, l.Refused)
}

// sessionText describes the session cookie of a service.
func sessionText(cookie string) string {
	return "a request with a valid cookie " + cookie + " goes to the worker that the cookie names"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// RouteCommand is `route SERVICE`: the worker or relay that a request would be sent to now,
// and why.
func RouteCommand() *cobra.Command {
	c := &cobra.Command{Use: "route [SERVICE]", Short: "show which worker a request would go to, and why", Args: arguments(cobra.MaximumNArgs(1)),
		Long: "It asks one relay how it would pick an endpoint for a request, with the code that\n" +
			"picks. Nothing is sent. Where chance takes part, the next request may go elsewhere.\n" +
			"A relay that forwards the service names the relays. It lists the limits on requests per\n" +
			"second and the blocks of all callers. With --url in place of SERVICE it also shows what\n" +
			"names the service of such a request: a header, the domain, or which of the routes.\n\n" +
			"The exit code is 2 when the relay knows no such service, when nothing names one, when\n" +
			"no worker could be picked, or with --url when clients may not reach the service.",
		Example: "  relay route billing\n  relay route billing --key alice\n  relay route --url https://shop.example.com/pay --header 'X-Tenant: acme'\n  relay route billing --key alice -o json | jq -r .decision.winner"}
	call := serviceCall(c)
	key := c.Flags().String("key", "", "key of the request, as in its Ringway-Key header")
	address := c.Flags().String("url", "", "URL of a client's request, in place of SERVICE")
	headers := c.Flags().StringArray("header", nil, "line of the head of the request at --url, as 'NAME: VALUE'; may be repeated")
	c.MarkFlagsMutuallyExclusive("url", "key")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		path := "route?" + url.Values{"url": {*address}, "header": *headers}.Encode()
		switch {
		case (*address == "") == (len(args) == 0):
			return errors.New("name a service, or the URL of a request with --url")
		case *address == "" && len(*headers) > 0:
			return errors.New("--header is a part of a request: give its URL with --url, too")
		case *address == "":
			path = "services/" + url.PathEscape(args[0]) + "/route"
			if *key != "" {
				path += "?key=" + url.QueryEscape(*key)
			}
		}
		var a api.Route
		return call.read(cmd, func(ctx context.Context) ([]byte, error) {
			text, err := call.fetch(ctx, http.MethodGet, path, nil, &a)
			switch {
			case err != nil:
			case a.Naming != nil && a.Service == "":
				err = fmt.Errorf("%w: nothing names a service: the request has no Ringway-Service header, and neither --domain nor a route matches it", ErrNothingMatched)
			case a.Naming != nil && a.NotForClients:
				err = fmt.Errorf("%w: clients of %s get 404 for %s: its --ingress-service does not have the service; add it there", ErrNothingMatched, a.Relay, a.Service)
			case a.Decision != nil && a.Decision.Winner == "":
				err = fmt.Errorf("%w: %s", ErrNothingMatched, a.Decision.Reason)
			case a.Role == "none":
				err = fmt.Errorf("%w: %s has no endpoint that takes requests", ErrNothingMatched, a.Service)
			case a.Decision == nil && len(a.Relays) == 0:
				err = fmt.Errorf("%w: %s forwards %s and knows no relay that serves it", ErrNothingMatched, a.Relay, a.Service)
			}
			return text, err
		}, func(p *page) { routeTable(p, &a) })
	}
	return c
}

func routeTable(p *page, a *api.Route) {
	row := p.row
	row("service", "%s", cmp.Or(a.Service, "none"))
	if n := a.Naming; n != nil && n.By != "" {
		row("named by", "%s", namedBy(n))
	}
	row("relay", "%s, %s", a.Relay, a.Role)
	p.some("key", a.Key)
	if a.SessionCookie != "" {
		row("session", "%s; this one has none", sessionText(a.SessionCookie))
	}
	limitRows(p, &a.Limits)
	d := a.Decision
	if d == nil {
		if a.Role == "none" {
			if a.Service != "" {
				row("reason", "%s has no endpoint that takes requests", a.Service)
			}
			return
		}
		if a.Next != "" {
			row("next", "%s: %s", a.Next, a.NextReason)
		}
		row("reason", "%s does not serve %s: it forwards to one of the relays that do", a.Relay, a.Service)
		relaysTable(p, a.Relays)
		return
	}
	row("strategy", "%s (%s)", d.Strategy, originText[d.Origin])
	if c := d.Canary; c != nil {
		row("canary", "%s gets %.5g %%, %d workers", c.Version, 100*c.Share, c.Workers)
	}
	row("winner", "%s", cmp.Or(d.Winner, "none"))
	row("reason", "%s", d.Reason)
	row("score", "%s", d.Measure)
	candidatesTable(p, d)
}

// namedBy describes what names the service of a request.
func namedBy(n *api.Naming) string {
	switch n.By {
	case "header":
		return "the header Ringway-Service"
	case "domain":
		return "the host, by --domain"
	}
	return fmt.Sprintf("route %d: %s", n.Route, n.Text)
}

// originText describes where a strategy, or a field of a policy, was configured.
var originText = map[string]string{
	"service_setting": "the relay's setting for this service",
	"advertisement":   "advertised by the service",
	"setting":         "the relay's setting for all services",
	"default":         "the default",
}

func candidatesTable(p *page, d *api.Decision) {
	if len(d.Candidates) == 0 {
		return
	}
	figure := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	columns := []string{"WON", "CANDIDATE", "+INSTANCE", "+ADDRESS", ">SCORE"}
	parts := slices.ContainsFunc(d.Candidates, func(c api.Candidate) bool { return c.Parts != nil })
	if parts {
		columns = append(columns, ">LATENCY", ">QUEUE", ">HEADROOM", ">SUCCESS", ">RAMP")
	}
	p.line("")
	t := p.table(append(columns, "NOTE")...)
	for _, c := range d.Candidates {
		won := cell{"", plain}
		if c.Node == d.Winner {
			won = cell{"yes", styleGood}
		}
		row := []any{won, c.Node, c.ID, c.Address, figure(c.Score)}
		if p := c.Parts; p != nil {
			row = append(row, figure(p.LatencyMs)+" ms", figure(p.Queue), figure(p.Headroom), figure(p.Success), figure(p.Ramp))
		} else if parts {
			row = append(row, "", "", "", "", "")
		}
		t.add(append(row, c.Note)...)
	}
	t.write()
}

func relaysTable(p *page, relays []api.RouteRelay) {
	if len(relays) == 0 {
		return
	}
	p.line("")
	t := p.table("RELAY", "ADDRESS", "ROLE", "HEALTH", ">ESTIMATE", ">IN FLIGHT")
	for _, r := range relays {
		t.add(r.Relay, r.Address, r.Role, r.Health, strconv.FormatFloat(r.EstimateMs, 'g', 4, 64)+" ms", strconv.Itoa(r.InFlight))
	}
	t.write()
}

// ExplainRequestCommand is `explain-request ID`: how the endpoints of one request were
// chosen.
func ExplainRequestCommand() *cobra.Command {
	c := &cobra.Command{Use: "explain-request ID", Short: "show how the endpoints of one request were chosen", Args: arguments(cobra.ExactArgs(1)),
		Long: "A relay with --request-log-explain N remembers this of the newest N requests that are in\n" +
			"the sample of its log: the candidates of each attempt with their scores at that time,\n" +
			"and why one won. ID is ringway.request.id in the record of the request.\n\n" +
			"The exit code is 2 when the relay does not remember the request.",
		Example: "  relay explain-request bf82ebf170477b3b-000000000000"}
	call := relayCall(c.Flags())
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return get(cmd, call, "requests/"+url.PathEscape(args[0])+"/explain", explainedTable)
	}
	return c
}

func explainedTable(p *page, a *api.ExplainedRequest) {
	row := p.row
	row("request", "%s", a.ID)
	row("service", "%s", a.Service)
	row("relay", "%s", a.Relay)
	row("began", "%s", a.Time.UTC().Format(time.RFC3339Nano))
	row("result", "%s", strings.TrimSpace(fmt.Sprintf("%d %s %s", a.Status, a.Outcome, a.Code)))
	row("took", "%.3f ms", a.DurationMs)
	for i, attempt := range a.Attempts {
		p.line("\nattempt %d", i+1)
		row("endpoint", "%s", cmp.Or(attempt.Endpoint, "none"))
		p.some("chosen by", attempt.ChosenBy)
		switch {
		case attempt.Failure != "":
			row("result", "%s", attempt.Failure)
		case attempt.Status != 0:
			row("result", "%d", attempt.Status)
		}
		d := attempt.Decision
		if d == nil {
			continue
		}
		row("strategy", "%s (%s)", d.Strategy, cmp.Or(originText[d.Origin], d.Origin))
		p.some("key", d.Key)
		row("reason", "%s", d.Reason)
		p.some("score", d.Measure)
		row("range", "%d workers", d.Range)
		candidatesTable(p, d)
	}
}
