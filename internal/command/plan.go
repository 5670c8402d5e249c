package command

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
)

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
	call := serviceCall(c)
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

func planChangeTable(p *page, a *api.PlanChange) {
	if a.Service != "" {
		p.line("service\t%s", a.Service)
	} else {
		p.line("services\tall %d", a.Services)
	}
	p.line("what if\t%s", cmp.Or(a.Change, "nothing changes"))
	p.some("ignored", a.Ignored)
	if a.MostOpenedBy == "" {
		p.line("opened\t%d", a.Opened)
	} else {
		p.line("opened\t%d, at most %d by one relay (%s)", a.Opened, a.MostOpened, a.MostOpenedBy)
	}
	p.line("closed\t%d", a.Closed)
	p.some("fallback", a.Then.Fallback)
	p.line("")
	p.line("\tNOW\tTHEN")
	row := func(name string, text func(*api.PlanFigures) string) {
		p.line("%s\t%s\t%s", name, text(&a.Now), text(&a.Then))
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
}

func planTable(p *page, a *api.Plan) {
	p.line("service\t%s", a.Service)
	p.line("strategy\t%s, index by %s", a.Strategy, a.IndexSource)
	p.some("fallback", a.Fallback)
	if s := a.Settings; s.Version > 0 || s.FileVersion > 0 {
		p.line("settings\tversion %d by %s (%s)", s.Version, s.Author, s.Hash)
		p.line("\t%s", strings.ReplaceAll(s.Values, "&", " "))
		if s.Lags {
			p.line("\tthe configuration of this relay has version %d (%s)", s.FileVersion, s.FileHash)
		}
		if s.Conflict != "" {
			p.line("\trefused: %s", s.Conflict)
		}
	}
	p.line("relays\t%d, each connected to %s", len(a.Relays)-len(a.Absent.Relays), span(a.Coverage.WorkersPerRelay, "worker"))
	p.line("workers\t%d, each connected to %s", len(a.RelaysPerWorker), span(a.Coverage.RelaysPerWorker, "relay"))
	p.line("connections\t%d", a.Connections)
	p.line("load\tfrom %.2f to %.2f times a worker's share", a.Load.Least, a.Load.Most)
	crosses := 0.0
	for _, z := range a.Zones {
		p.line("traffic\t%4.1f %% from %s to %s", 100*z.Share, z.From, z.To)
		if z.From != z.To {
			crosses += z.Share
		}
	}
	if len(a.Zones) > 0 {
		p.line("\t%4.1f %% crosses between zones", 100*crosses)
	}
	for _, worker := range a.Absent.Workers {
		p.line("absent\tworker %s keeps its place", worker)
	}
	for _, worker := range slices.Sorted(maps.Keys(a.Refused)) {
		p.line("refused\tworker %s: %s", worker, a.Refused[worker])
	}
	p.line("")
	t := p.table("INDEX", "RELAY", "STATE", "WORKERS", "TRAFFIC", "RANGE")
	for _, r := range a.Relays {
		state, connected := presence(r.Absent), 0
		for _, worker := range r.Workers {
			if !worker.Absent {
				connected++
			}
		}
		traffic := "" // it states none
		if r.Traffic > 0 {
			traffic = fmt.Sprintf("%d/s = %.2f × mean", r.Traffic, r.TrafficRatio)
		}
		t.add(fmt.Sprint(r.Index), r.Relay, state, fmt.Sprint(connected), traffic, r.Range) // rendezvous has no range
	}
	t.write()
	if p.wide {
		p.line("")
		t = p.table("RELAY", "WORKER", "WEIGHT", "STATE")
		for _, r := range a.Relays {
			for _, worker := range r.Workers {
				t.add(r.Relay, worker.Worker, fmt.Sprintf("%.4f", worker.Weight), presence(r.Absent || worker.Absent))
			}
		}
		t.write()
	}
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
