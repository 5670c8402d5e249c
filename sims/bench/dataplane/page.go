package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringway/ringway/sims/internal/plot"
	pages "github.com/ringway/ringway/sims/internal/report"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// graphs are the kinds of traffic that have a picture, by the name of its file.
var graphs = map[string]string{
	"HTTP/1.1, 128 B, 32 connections":  "cost-128b",
	"HTTP/1.1, 16 KiB, 32 connections": "cost-16kib",
	"HTTP/1.1, 1 MiB, 32 connections":  "cost-1mib",
}

// writePage replaces the section cost of a page by the figures of runs, which -json has written, and
// draws the graphs into images. All runs must have measured the same.
func writePage(page, images string, files []string) error {
	runs, err := readRuns(files)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	var out strings.Builder
	writeMachine(&out, runs)
	pictures := map[string][]byte{}
	for k, c := range runs[0].Traffic {
		var same []comparison // of each run
		for _, r := range runs {
			same = append(same, r.Traffic[k])
		}
		writeTraffic(&out, same)
		if name := graphs[c.Name]; name != "" {
			if pictures[name+".svg"], err = plot.SVG(graph(same)); err != nil {
				return err
			}
			fmt.Fprintf(&out, "\n![CPU per request, %s](../images/%s.svg)\n", c.Name, name)
		}
	}
	updated, err := pages.ReplaceSection(string(text), "cost", out.String())
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	for name, svg := range pictures {
		if err := os.WriteFile(filepath.Join(images, name), svg, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(page, []byte(updated), 0o644)
}

// readRuns returns the results in the files: at least one, all of the same traffic and proxies.
func readRuns(files []string) (runs []results, err error) {
	if len(files) == 0 {
		return nil, errors.New("-page needs the files that runs with -json have written")
	}
	sameProxy := func(a, b figures) bool { return a.Name == b.Name }
	sameTraffic := func(a, b comparison) bool {
		return a.Name == b.Name && slices.EqualFunc(a.Proxies, b.Proxies, sameProxy)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var r results
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s has no results of -json: %w", file, err)
		}
		if runs = append(runs, r); len(r.Traffic) == 0 || !slices.EqualFunc(r.Traffic, runs[0].Traffic, sameTraffic) {
			return nil, fmt.Errorf("%s has measured nothing, or not the same as %s: use runs with the same -only", file, files[0])
		}
	}
	return runs, nil
}

func writeMachine(out *strings.Builder, runs []results) {
	r := runs[0]
	fmt.Fprintf(out, "\n%d runs, each of %d rounds of %g s, on %d processors that load, proxies and backends share.\n\n| program | version |\n|---|---|\n", len(runs), r.Rounds, r.Seconds, r.CPUs)
	for _, name := range []string{"relay", "haproxy", "nginx", "go", "wrk", "h2load", "kernel"} {
		if version := r.Programs[name]; version != "" {
			fmt.Fprintf(out, "| %s | %s |\n", name, version)
		}
	}
}

// writeTraffic writes a table of one kind of traffic: the medians of each run, and of the ratios also
// the lowest and the highest round of all runs.
func writeTraffic(out *strings.Builder, runs []comparison) {
	first := runs[0]
	fmt.Fprintf(out, "\n### %s\n\n| proxy | CPU, µs per %s | × %s | of all rounds | p50, ms | p99, ms | memory, MB |\n|---|---|---|---|---|---|---|\n", first.Name, first.Unit, first.Proxies[0].Name)
	for i, p := range first.Proxies {
		of := func(format string, get func(figures) float64) string {
			var texts []string
			for _, r := range runs {
				text := "–"
				if v := get(r.Proxies[i]); v > 0 {
					text = fmt.Sprintf(format, v)
				}
				texts = append(texts, text)
			}
			return strings.Join(texts, " · ")
		}
		low, high := p.Ratio.Min, p.Ratio.Max
		for _, r := range runs {
			low, high = min(low, r.Proxies[i].Ratio.Min), max(high, r.Proxies[i].Ratio.Max)
		}
		fmt.Fprintf(out, "| %s | %s | %s | %.2f–%.2f | %s | %s | %s |\n", p.Name,
			of("%.1f", func(f figures) float64 { return f.CPU.Median }), of("%.2f", func(f figures) float64 { return f.Ratio.Median }), low, high,
			of("%.2f", func(f figures) float64 { return f.P50.Median / 1000 }), of("%.2f", func(f figures) float64 { return f.P99.Median / 1000 }),
			of("%.0f", func(f figures) float64 { return f.Memory.Median }))
	}
}

// graph draws the CPU of each proxy, side by side for every run.
func graph(runs []comparison) *scenario.Plot {
	first := runs[0]
	p := &scenario.Plot{Name: graphs[first.Name], Title: first.Name, X: scenario.Axis{Label: "run"}, Y: scenario.Axis{Label: "CPU per " + first.Unit, Unit: "µs"}}
	for i := range runs {
		p.Categories = append(p.Categories, fmt.Sprint("run ", i+1))
	}
	for i, proxy := range first.Proxies {
		var values []float64
		for _, r := range runs {
			values = append(values, r.Proxies[i].CPU.Median)
		}
		p.Bars(proxy.Name, values)
	}
	return p
}
