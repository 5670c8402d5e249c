package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/e2e/browser"
	"github.com/ringway/ringway/internal/traffic"
)

const (
	dashboardFile = "../../../deploy/grafana/ringway.json"
	// watched is the time range of the charts; a worker is killed in the middle.
	watched = 90 * time.Second
)

// mostLines is the number of lines that can be distinguished in a chart.
const mostLines = 12

// leftover matches a label in a legend that a series does not have.
var leftover = regexp.MustCompile(`\{\{[a-z_]+\}\}`)

// shownRows are the rows of the dashboard that are drawn.
var shownRows = []string{"Overview", "Service: $service"}

type panel struct {
	Type, Title string
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct{ Defaults struct{ Unit string } }
	lines       []chartLine
}

type chartLine struct {
	name string
	series
}

// dashboard draws panels of the Grafana dashboard with data of a fleet of processes.
func dashboard(ctx context.Context, dir, binaries string) (err error) {
	panels, err := readPanels()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "ringway-dashboard-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	fleet, err := startProcesses(ctx, work, binaries, 3, 9)
	defer fleet.stop()
	if err != nil {
		return err
	}
	prometheus, err := startPrometheus(ctx, work, fleet)
	if err != nil {
		return err
	}
	defer func() {
		_ = prometheus.Process.Kill() // it may have ended
		_ = prometheus.Wait()         // it reports the kill
	}()
	loading, enough := context.WithCancel(ctx)
	var load sync.WaitGroup
	defer load.Wait()
	defer enough()
	load.Go(func() {
		traffic.Load(loading, traffic.LoadConfig{Targets: fleet.ingresses, Services: []string{"checkout", "checkout", "search"}, Rate: 300, Random: rand.New(rand.NewPCG(1, 1))})
	})
	const lead = 20 * time.Second // until rates have a full window
	time.Sleep(lead + watched/2)
	if err := fleet.workers["worker-4"].Process.Kill(); err != nil {
		return err
	}
	time.Sleep(watched / 2)
	for _, p := range panels {
		if err := p.ask(ctx); err != nil {
			return err
		}
	}
	panels = slices.DeleteFunc(panels, func(p *panel) bool { return len(p.lines) > mostLines })
	return drawDashboard(ctx, filepath.Join(dir, "dashboard-panels.png"), panels)
}

// readPanels reads the panels of shownRows that show values over time.
func readPanels() ([]*panel, error) {
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		return nil, err
	}
	var d struct{ Panels []*panel }
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", dashboardFile, err)
	}
	var out []*panel
	shown := false
	for _, p := range d.Panels {
		switch {
		case p.Type == "row":
			shown = slices.Contains(shownRows, p.Title)
		case shown && (p.Type == "stat" || p.Type == "timeseries"):
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no row of %q", dashboardFile, shownRows)
	}
	return out, nil
}

// ask sends the queries of a panel to Prometheus, for all services and instances.
func (p *panel) ask(ctx context.Context) error {
	variables := strings.NewReplacer("$__rate_interval", "10s", "$service", ".*", "$instance", ".*")
	for _, t := range p.Targets {
		found, err := query(ctx, variables.Replace(t.Expr), watched)
		if err != nil {
			return fmt.Errorf("panel %s: %w", p.Title, err)
		}
		for _, s := range found {
			name := t.LegendFormat
			for label, value := range s.Labels {
				name = strings.ReplaceAll(name, "{{"+label+"}}", value)
			}
			p.lines = append(p.lines, chartLine{strings.TrimSpace(leftover.ReplaceAllString(name, "")), s})
		}
	}
	slices.SortFunc(p.lines, func(a, b chartLine) int { return strings.Compare(a.name, b.name) })
	return nil
}

func drawDashboard(ctx context.Context, file string, panels []*panel) (err error) {
	page := drawPanels(panels)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page) // an error concerns only the connection of the browser
	}))
	defer server.Close()
	chromium, err := browser.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, chromium.Close()) }()
	tab, err := chromium.Tab(browser.TabConfig{Width: 1400, Height: 400, Scale: 1.25})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tab.Close()) }()
	if err := tab.Go(server.URL + "/"); err != nil {
		return err
	}
	png, err := tab.Picture()
	if err != nil {
		return err
	}
	return os.WriteFile(file, png, 0o644)
}

// newest returns the last value, and whether there is one.
func (p *panel) newest() (float64, bool) {
	if len(p.lines) == 0 || len(p.lines[0].Values) == 0 {
		return 0, false
	}
	v := p.lines[0].Values
	return v[len(v)-1], !math.IsNaN(v[len(v)-1])
}
