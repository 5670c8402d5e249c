package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/node"
)

// ExplainCommand is `explain SERVICE`: the state of a service on one relay, with the
// reasons.
func ExplainCommand() *cobra.Command {
	c := &cobra.Command{Use: "explain SERVICE", Short: "explain why a relay serves a service, and why it connects to a worker or not", Args: arguments(cobra.ExactArgs(1)),
		Long: "In the drawing, every line is a relay and every column a place on the ring of workers:\n" +
			"# where the relay connects to all workers of the column, + to some, . to none.\n\n" +
			"The exit code is 2 when the relay knows no such service, or the worker does not offer it.",
		Example: "  relay explain billing\n  relay explain billing --worker billing-7"}
	call := relayCall(c.Flags())
	call.watchable(c.Flags())
	c.ValidArgsFunction = call.completeServices
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

func explainTable(out io.Writer, a *api.Explanation, _ tableStyle) error {
	w := newRows(out)
	row := func(name, format string, values ...any) { w.add(name+"\t"+format, values...) }
	row("service", "%s", a.Service)
	row("relay", "%s, %s", a.Relay, a.Role)
	row("reason", "%s", a.Reason)
	if a.Strategy != "" {
		row("strategy", "%s, index by %s", a.Strategy, a.IndexSource)
	}
	if a.Fallback != "" {
		row("fallback", "%s", a.Fallback)
	}
	if a.Index >= 0 {
		row("index", "%d", a.Index)
	}
	if a.Range != "" {
		row("range", "%s", a.Range)
	}
	if a.SessionCookie != "" {
		row("session", "%s", sessionText(a.SessionCookie))
	}
	row("policy", "%s", policyText(a.Policy))
	if p := a.Plan; p != nil {
		row("minimums", "%d relays for each worker, %d workers for each relay", p.PeersPerWorker, p.PeersPerRelay)
		row("ratio", "%.4g, of %d workers and %d relays", p.Ratio, p.Workers, p.Relays)
		if p.RelaysRaised != "" {
			row("relays", "%s", p.RelaysRaised)
		}
		if a.Index >= 0 {
			row("length", "%d of %d workers", p.Length, p.Workers)
		}
		row("computed", "%s", p.Computed.UTC().Format(time.RFC3339))
	}
	for _, worker := range slices.Sorted(maps.Keys(a.Refused)) {
		row("refused", "worker %s: %s", worker, a.Refused[worker])
	}
	if x := a.Worker; x != nil {
		fmt.Fprintln(w)
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
		if x.Address != "" {
			row("address", "%s", x.Address)
		}
		row("connected", "%s, link %s", yesNo(x.Connected), x.Link)
		row("weight", "%.4f", x.Weight)
		row("balancer", "%s", cmp.Or(x.Balancer, "-"))
		if x.LastReason != "" {
			row("last reason", "%s", x.LastReason)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if a.Drawing != "" {
		if _, err := fmt.Fprint(out, "\n", node.PrintableLines(a.Drawing)); err != nil {
			return err
		}
	}
	return nil
}

// policyText describes the policy of a service: every value with its origin.
func policyText(fields []api.PolicyField) string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = fmt.Sprintf("%s %s (%s)", f.Key, cmp.Or(f.Value, "none"), originText[f.Origin])
	}
	return strings.Join(texts, ", ")
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
	c := &cobra.Command{Use: "route SERVICE", Short: "show which worker a request would go to, and why", Args: arguments(cobra.ExactArgs(1)),
		Long: "It asks one relay how it would pick an endpoint for a request, with the code that\n" +
			"picks. Nothing is sent. Where chance takes part, the next request may go elsewhere.\n" +
			"A relay that forwards the service names the relays.\n\n" +
			"The exit code is 2 when the relay knows no such service, or when no worker could be\n" +
			"picked.",
		Example: "  relay route billing\n  relay route billing --key alice\n  relay route billing --key alice -o json | jq -r .decision.winner"}
	call := relayCall(c.Flags())
	call.watchable(c.Flags())
	c.ValidArgsFunction = call.completeServices
	key := c.Flags().String("key", "", "key of the request, as in its Ringway-Key header")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		path := "services/" + url.PathEscape(args[0]) + "/route"
		if *key != "" {
			path += "?key=" + url.QueryEscape(*key)
		}
		var a api.Route
		return call.read(cmd, func(ctx context.Context) ([]byte, error) {
			text, err := call.fetch(ctx, http.MethodGet, path, nil, &a)
			switch {
			case err != nil:
			case a.Decision != nil && a.Decision.Winner == "":
				err = fmt.Errorf("%w: %s", ErrNothingMatched, a.Decision.Reason)
			case a.Role == "none":
				err = fmt.Errorf("%w: %s has no endpoint that takes requests", ErrNothingMatched, a.Service)
			case a.Decision == nil && len(a.Relays) == 0:
				err = fmt.Errorf("%w: %s forwards %s and knows no relay that serves it", ErrNothingMatched, a.Relay, a.Service)
			}
			return text, err
		}, func(w io.Writer, style tableStyle) error { return routeTable(w, &a, style) })
	}
	return c
}

func routeTable(out io.Writer, a *api.Route, style tableStyle) error {
	w := newRows(out)
	row := func(name, format string, values ...any) { w.add(name+"\t"+format, values...) }
	row("service", "%s", a.Service)
	row("relay", "%s, %s", a.Relay, a.Role)
	if a.Key != "" {
		row("key", "%s", a.Key)
	}
	if a.SessionCookie != "" {
		row("session", "%s; this one has none", sessionText(a.SessionCookie))
	}
	d := a.Decision
	if d == nil {
		if a.Role == "none" {
			row("reason", "%s has no endpoint that takes requests", a.Service)
			return w.Flush()
		}
		if a.Next != "" {
			row("next", "%s: %s", a.Next, a.NextReason)
		}
		row("reason", "%s does not serve %s: it forwards to one of the relays that do", a.Relay, a.Service)
		if err := w.Flush(); err != nil {
			return err
		}
		return relaysTable(out, a.Relays, style)
	}
	row("strategy", "%s (%s)", d.Strategy, originText[d.Origin])
	row("winner", "%s", cmp.Or(d.Winner, "none"))
	row("reason", "%s", d.Reason)
	row("score", "%s", d.Measure)
	if err := w.Flush(); err != nil {
		return err
	}
	return candidatesTable(out, d, style)
}

// originText describes where a strategy, or a field of a policy, was configured.
var originText = map[api.Origin]string{
	api.FromServiceSetting: "the relay's setting for this service",
	api.FromAdvertisement:  "advertised by the service",
	api.FromSetting:        "the relay's setting for all services",
	api.FromDefault:        "the default",
}

func candidatesTable(out io.Writer, d *api.Decision, style tableStyle) error {
	if len(d.Candidates) == 0 {
		return nil
	}
	figure := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	columns := []string{"WON", "CANDIDATE"}
	if style.wide {
		columns = append(columns, "INSTANCE", "ADDRESS")
	}
	columns = append(columns, ">SCORE")
	parts := d.Candidates[0].Parts != nil
	if parts {
		columns = append(columns, ">LATENCY", ">QUEUE", ">HEADROOM", ">SUCCESS", ">RAMP")
	}
	t := newTable(style.colour, append(columns, "NOTE")...)
	for _, c := range d.Candidates {
		won := cell{"", plain}
		if c.Node == d.Winner {
			won = cell{"yes", styleGood}
		}
		row := []any{won, c.Node}
		if style.wide {
			row = append(row, c.ID, c.Address)
		}
		row = append(row, figure(c.Score))
		if p := c.Parts; p != nil {
			row = append(row, figure(p.LatencyMs)+" ms", figure(p.Queue), figure(p.Headroom), figure(p.Success), figure(p.Ramp))
		} else if parts {
			row = append(row, "", "", "", "", "")
		}
		t.add(append(row, c.Note)...)
	}
	if _, err := io.WriteString(out, "\n"); err != nil {
		return err
	}
	return t.writeTo(out)
}

func relaysTable(out io.Writer, relays []api.RouteRelay, style tableStyle) error {
	if len(relays) == 0 {
		return nil
	}
	t := newTable(style.colour, "RELAY", "ADDRESS", "ROLE", "HEALTH", ">ESTIMATE", ">IN FLIGHT")
	for _, r := range relays {
		t.add(r.Relay, r.Address, r.Role, r.Health, strconv.FormatFloat(r.EstimateMs, 'g', 4, 64)+" ms", strconv.Itoa(r.InFlight))
	}
	if _, err := io.WriteString(out, "\n"); err != nil {
		return err
	}
	return t.writeTo(out)
}

// PlanCommand is `plan SERVICE`: which relay connects to which worker, as all relays
// compute it, or what a change would do to that.
func PlanCommand() *cobra.Command {
	c := &cobra.Command{Use: "plan SERVICE", Short: "show which relays serve a service and which workers they connect to",
		Args: arguments(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed(whatIfFlag) {
				return cobra.MaximumNArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		}),
		Long: "Every relay computes the same plan. Members that have vanished may keep their place\n" +
			"in it for some time: they are marked absent and are not counted. TRAFFIC is what a\n" +
			"relay states, - if it carries about the mean of what the others state.\n\n" +
			"With --what-if the relay compares the plan with the one after a change, of SERVICE or,\n" +
			"without it, of all services added up; nothing changes. A change is a list of\n\n" +
			"    strategy=projection|rendezvous  index=rank|slot  k=auto|N   relays of a service\n" +
			"    m=N  relays of each worker      p=N  workers of each relay  tier=N  workers of a tier\n" +
			"    slack=N  the slack of zones, 1 to 10\n" +
			"    relays=N, +N, -N, +N% or -N%    workers=, likewise, of each service\n" +
			"    skip=RELAY                      may be repeated\n\n" +
			"Members that leave are chosen by a hash of their ids; members that join are called +1,\n" +
			"+2 and so on, and are like those that there are.\n\n" +
			"The exit code is 2 when the relay knows no such service.",
		Example: "  relay plan billing\n  relay plan billing -o wide\n  relay plan billing -o json | jq .coverage\n" +
			"  relay plan billing --what-if strategy=rendezvous,m=4\n  relay plan --what-if relays=+20,workers=-10% -o json | jq .opened"}
	call := relayCall(c.Flags())
	call.watchable(c.Flags())
	c.ValidArgsFunction = call.completeServices
	whatIf := c.Flags().String(whatIfFlag, "", "compare the plan with the one after this change, such as strategy=rendezvous,m=4,relays=+20,workers=-10%")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		path := "plan"
		if len(args) > 0 {
			path = "services/" + url.PathEscape(args[0]) + "/plan"
		}
		if cmd.Flags().Changed(whatIfFlag) {
			return get(cmd, call, path+"?what-if="+url.QueryEscape(*whatIf), planChangeTable)
		}
		return get(cmd, call, path, planTable)
	}
	return c
}

const whatIfFlag = "what-if"

func planChangeTable(out io.Writer, a *api.PlanChange, _ tableStyle) error {
	w := newRows(out)
	if a.Service != "" {
		w.add("service\t%s", a.Service)
	} else {
		w.add("services\tall %d", a.Services)
	}
	w.add("what if\t%s", cmp.Or(a.Change, "nothing changes"))
	if a.MostOpenedBy == "" {
		w.add("opened\t%d", a.Opened)
	} else {
		w.add("opened\t%d, at most %d by one relay (%s)", a.Opened, a.MostOpened, a.MostOpenedBy)
	}
	w.add("closed\t%d", a.Closed)
	if a.Then.Fallback != "" {
		w.add("fallback\t%s", a.Then.Fallback)
	}
	w.add("")
	if err := w.Flush(); err != nil {
		return err
	}
	w.add("\tNOW\tTHEN")
	row := func(name string, text func(*api.PlanFigures) string) {
		w.add("%s\t%s\t%s", name, text(&a.Now), text(&a.Then))
	}
	row("strategy", func(f *api.PlanFigures) string { return string(f.Strategy) })
	row("index", func(f *api.PlanFigures) string { return string(f.IndexSource) })
	row("minimums (m, p)", func(f *api.PlanFigures) string { return fmt.Sprintf("%d, %d", f.PeersPerWorker, f.PeersPerRelay) })
	row("relays", func(f *api.PlanFigures) string { return fmt.Sprint(f.Relays) })
	row("workers", func(f *api.PlanFigures) string { return fmt.Sprint(f.Workers) })
	row("relays of a service", func(f *api.PlanFigures) string { return fmt.Sprintf("%.4g", f.RelaysPerService) })
	row("connections", func(f *api.PlanFigures) string { return fmt.Sprint(f.Connections) })
	row("of a relay, least", func(f *api.PlanFigures) string { return fmt.Sprint(f.WorkersPerRelay.Min) })
	row("of a relay, mean", func(f *api.PlanFigures) string { return fmt.Sprintf("%.1f", f.MeanWorkersPerRelay) })
	row("of a relay, most", func(f *api.PlanFigures) string { return fmt.Sprint(f.WorkersPerRelay.Max) })
	row("requests with a hop", func(f *api.PlanFigures) string { return percent(f.HopShare) })
	row("least loaded worker", func(f *api.PlanFigures) string { return fmt.Sprintf("%.3f", f.LeastLoaded) })
	row("most loaded worker", func(f *api.PlanFigures) string { return fmt.Sprintf("%.3f", f.MostLoaded) })
	return w.Flush()
}

func planTable(out io.Writer, a *api.Plan, style tableStyle) error {
	w := newRows(out)
	w.add("service\t%s", a.Service)
	w.add("strategy\t%s, index by %s", a.Strategy, a.IndexSource)
	if a.Fallback != "" {
		w.add("fallback\t%s", a.Fallback)
	}
	if s := a.Settings; s.Version > 0 || s.FileVersion > 0 {
		w.add("settings\tversion %d by %s (%s)", s.Version, s.Author, s.Hash)
		w.add("\t%s", strings.ReplaceAll(s.Values, "&", " "))
		if s.Lags {
			w.add("\tthe configuration of this relay has version %d (%s)", s.FileVersion, s.FileHash)
		}
		if s.Conflict != "" {
			w.add("\trefused: %s", s.Conflict)
		}
	}
	w.add("relays\t%d, each connected to %s", len(a.Relays)-len(a.Absent.Relays), span(a.Coverage.WorkersPerRelay, "worker"))
	w.add("workers\t%d, each connected to %s", len(a.RelaysPerWorker), span(a.Coverage.RelaysPerWorker, "relay"))
	w.add("connections\t%d", a.Connections)
	w.add("load\tfrom %.2f to %.2f times a worker's share", a.Load.Least, a.Load.Most)
	crosses := 0.0
	for _, z := range a.Zones {
		w.add("traffic\t%4.1f %% from %s to %s", 100*z.Share, z.From, z.To)
		if z.From != z.To {
			crosses += z.Share
		}
	}
	if len(a.Zones) > 0 {
		w.add("\t%4.1f %% crosses between zones", 100*crosses)
	}
	for _, worker := range a.Absent.Workers {
		w.add("absent\tworker %s keeps its place", worker)
	}
	for _, worker := range slices.Sorted(maps.Keys(a.Refused)) {
		w.add("refused\tworker %s: %s", worker, a.Refused[worker])
	}
	w.add("")
	if err := w.Flush(); err != nil {
		return err
	}
	w.add("INDEX\tRELAY\tSTATE\tWORKERS\tTRAFFIC\tRANGE")
	for _, r := range a.Relays {
		state, connected := presence(r.Absent), 0
		for _, worker := range r.Workers {
			if !worker.Absent {
				connected++
			}
		}
		text := r.Range
		if text == "" {
			text = "-" // rendezvous has no range
		}
		traffic := "-" // it states none
		if r.Traffic > 0 {
			traffic = fmt.Sprintf("%d/s = %.2f × mean", r.Traffic, r.TrafficRatio)
		}
		w.add("%d\t%s\t%s\t%d\t%s\t%s", r.Index, r.Relay, state, connected, traffic, text)
	}
	if style.wide {
		w.add("\nRELAY\tWORKER\tWEIGHT\tSTATE")
		for _, r := range a.Relays {
			for _, worker := range r.Workers {
				w.add("%s\t%s\t%.4f\t%s", r.Relay, worker.Worker, worker.Weight, presence(r.Absent || worker.Absent))
			}
		}
	}
	return w.Flush()
}

func presence(absent bool) string {
	if absent {
		return "absent"
	}
	return "there"
}

// span formats "3 workers" or "3 to 4 workers".
func span(counts api.MinMax, noun string) string {
	text := fmt.Sprint(counts.Max)
	if counts.Min != counts.Max {
		text = fmt.Sprintf("%d to %d", counts.Min, counts.Max)
	}
	if counts.Max != 1 {
		noun += "s"
	}
	return text + " " + noun
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

func explainedTable(out io.Writer, a *api.ExplainedRequest, style tableStyle) error {
	w := newRows(out)
	row := func(name, format string, values ...any) { w.add(name+"\t"+format, values...) }
	row("request", "%s", a.ID)
	row("service", "%s", a.Service)
	row("relay", "%s", a.Relay)
	row("began", "%s", a.Time.UTC().Format(time.RFC3339Nano))
	row("result", "%s", strings.TrimSpace(fmt.Sprintf("%d %s %s", a.Status, a.Outcome, a.Code)))
	row("took", "%.3f ms", a.DurationMs)
	if err := w.Flush(); err != nil {
		return err
	}
	for i, attempt := range a.Attempts {
		if _, err := fmt.Fprintf(out, "\nattempt %d\n", i+1); err != nil {
			return err
		}
		row("endpoint", "%s", cmp.Or(attempt.Endpoint, "none"))
		if attempt.ChosenBy != "" {
			row("chosen by", "%s", attempt.ChosenBy)
		}
		switch {
		case attempt.Failure != "":
			row("result", "%s", attempt.Failure)
		case attempt.Status != 0:
			row("result", "%d", attempt.Status)
		}
		d := attempt.Decision
		if d == nil {
			if err := w.Flush(); err != nil {
				return err
			}
			continue
		}
		row("strategy", "%s (%s)", d.Strategy, cmp.Or(originText[d.Origin], node.Printable(string(d.Origin))))
		if d.Key != "" {
			row("key", "%s", d.Key)
		}
		row("reason", "%s", d.Reason)
		if d.Measure != "" {
			row("score", "%s", d.Measure)
		}
		row("range", "%d workers", d.Range)
		if err := w.Flush(); err != nil {
			return err
		}
		if err := candidatesTable(out, d, style); err != nil {
			return err
		}
	}
	return nil
}
