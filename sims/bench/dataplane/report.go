package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// results is what a run has measured, as -json writes it.
type results struct {
	// Programs are the versions of what ran, by name.
	Programs map[string]string `json:"programs"`
	CPUs     int               `json:"cpus"`
	Rounds   int               `json:"rounds"`
	Seconds  float64           `json:"seconds"` // of one measurement
	Traffic  []comparison      `json:"traffic"`
}

// comparison is one kind of traffic through each of its proxies.
type comparison struct {
	Name    string    `json:"name"`
	Unit    string    `json:"unit"` // of CPU and Rate
	Proxies []figures `json:"proxies"`
}

// figures has the results of one proxy over the rounds.
type figures struct {
	Name string `json:"name"`
	// CPU is in microseconds of all its processes for each unit. Ratio is that of each round to the
	// CPU of the first proxy in the same round, when the machine was the same.
	CPU   spread `json:"cpu_us"`
	Ratio spread `json:"ratio"`
	Rate  spread `json:"rate"` // units per second
	// P50 and P99 are microseconds, 0 for a load without requests.
	P50    spread `json:"p50_us"`
	P99    spread `json:"p99_us"`
	Memory spread `json:"memory_mb"`
}

// spread is the median of the rounds, and the lowest and the highest.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(v []float64) spread {
	return spread{middle(v), slices.Min(v), slices.Max(v)}
}

func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// summarise returns the figures of a proxy, of whose samples first are those of the first proxy in the
// same rounds.
func summarise(name string, samples, first []sample) figures {
	of := func(get func(i int) float64) spread {
		all := make([]float64, len(samples))
		for i := range samples {
			all[i] = get(i)
		}
		return spreadOf(all)
	}
	return figures{
		Name:   name,
		CPU:    of(func(i int) float64 { return samples[i].cpu }),
		Ratio:  of(func(i int) float64 { return samples[i].cpu / first[i].cpu }),
		Rate:   of(func(i int) float64 { return samples[i].rate }),
		P50:    of(func(i int) float64 { return samples[i].p50 }),
		P99:    of(func(i int) float64 { return samples[i].p99 }),
		Memory: of(func(i int) float64 { return samples[i].memory }),
	}
}

// writeTo writes the medians as a table, and of the ratios also the spread.
func (c comparison) writeTo(out io.Writer) error {
	tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "proxy\tCPU us/%s\tx %s\t(min-max)\t%[1]s/s\tp50 us\tp99 us\tMB\t\n", c.Unit, c.Proxies[0].Name)
	for _, p := range c.Proxies {
		fmt.Fprintf(tw, "%s\t%.1f\t%.3f\t(%.2f-%.2f)\t%.0f\t%s\t%s\t%.0f\t\n", p.Name, p.CPU.Median, p.Ratio.Median, p.Ratio.Min, p.Ratio.Max,
			p.Rate.Median, latency(p.P50.Median), latency(p.P99.Median), p.Memory.Median)
	}
	return tw.Flush()
}

// latency returns microseconds, or a dash for a load without requests.
func latency(us float64) string {
	if us == 0 {
		return "-"
	}
	return strconv.FormatFloat(us, 'f', 0, 64)
}

// versions asks the programs for their versions. One that does not answer has none.
func versions(dir string) map[string]string {
	found := map[string]string{"go": runtime.Version()}
	for name, args := range map[string][]string{
		"relay": {filepath.Join(dir, "relay"), "version"}, "haproxy": {"haproxy", "-v"}, "nginx": {"nginx", "-v"},
		"wrk": {"wrk", "-v"}, "h2load": {"h2load", "--version"}, "kernel": {"uname", "-sr"},
	} {
		out, _ := exec.Command(args[0], args[1:]...).CombinedOutput() // wrk ends with 1
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		found[name] = line
	}
	return found
}

// writeJSON writes the results to a file.
func (r *results) writeJSON(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// mostGrowth is how much of the CPU of an older release a request may cost now. Two relays that are
// equal differ by less than half of the rest.
const mostGrowth = 1.10

// regressions names the kinds of traffic for which a request costs more than it did.
func (r *results) regressions() (grown []string) {
	for _, c := range r.Traffic {
		if now := c.Proxies[len(c.Proxies)-1]; now.Ratio.Median > mostGrowth {
			grown = append(grown, fmt.Sprintf("%s: %.2f times", c.Name, now.Ratio.Median))
		}
	}
	return grown
}
