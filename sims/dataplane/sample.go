package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// sample is one measurement of one proxy.
type sample struct {
	cpu  float64 // microseconds of the proxy's process per request
	rate float64 // requests per second
	p99  float64 // microseconds
}

func (s subject) measure(ctx context.Context, o options, wrk, size string) (sample, error) {
	if _, err := s.load(ctx, o, wrk, size, time.Second); err != nil {
		return sample{}, err
	}
	before, err := cpuTime(s.pid)
	if err != nil {
		return sample{}, err
	}
	report, err := s.load(ctx, o, wrk, size, o.duration)
	if err != nil {
		return sample{}, err
	}
	after, err := cpuTime(s.pid)
	if err != nil {
		return sample{}, err
	}
	return sample{
		cpu:  float64((after - before).Microseconds()) / float64(report.requests),
		rate: report.rate,
		p99:  float64(report.p99.Nanoseconds()) / 1000,
	}, nil
}

func (s subject) load(ctx context.Context, o options, wrk, size string, d time.Duration) (wrkReport, error) {
	out, err := exec.CommandContext(ctx, wrk, "-t1", "-c"+strconv.Itoa(o.connections), "-d"+strconv.Itoa(int(d.Seconds()))+"s",
		"--latency", "-H", "Ringway-Service: echo", "http://"+s.address+"/"+size).CombinedOutput()
	if err != nil {
		return wrkReport{}, fmt.Errorf("wrk against %s: %w\n%s", s.name, err, out)
	}
	r, err := parseWrk(string(out))
	if err != nil {
		return wrkReport{}, fmt.Errorf("wrk against %s: %w\n%s", s.name, err, out)
	}
	return r, nil
}

type wrkReport struct {
	requests int
	rate     float64
	p99      time.Duration
}

// parseWrk reads wrk's report. A response other than 2xx and a broken connection
// make the measurement invalid and are errors.
func parseWrk(out string) (r wrkReport, err error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch {
		case strings.Contains(line, "Non-2xx") || strings.Contains(line, "Socket errors"):
			return r, fmt.Errorf("failed requests: %s", strings.TrimSpace(line))
		case len(f) == 2 && f[0] == "99%":
			r.p99, err = time.ParseDuration(f[1])
		case len(f) > 3 && f[1] == "requests" && f[2] == "in":
			r.requests, err = strconv.Atoi(f[0])
		case len(f) == 2 && f[0] == "Requests/sec:":
			r.rate, err = strconv.ParseFloat(f[1], 64)
		}
		if err != nil {
			return r, fmt.Errorf("unexpected line %q: %w", strings.TrimSpace(line), err)
		}
	}
	if r.requests == 0 {
		return r, fmt.Errorf("no request was served")
	}
	return r, nil
}

// cpuTime returns the user and system time of a process with all its threads.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("the proxy is gone: %w", err)
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the process name may contain blanks
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("process %d: unexpected stat line", pid)
	}
	var ticks int64
	for _, v := range f[11:13] {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}
