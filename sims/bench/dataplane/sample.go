package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const clockTick = 10 * time.Millisecond // USER_HZ is 100 on every Linux

// sample is one measurement of one proxy.
type sample struct {
	cpu      float64 // microseconds of the proxy's processes per request
	rate     float64 // requests per second
	p50, p99 float64 // microseconds
	memory   float64 // resident, in megabytes, at the end
}

func (p proxy) measure(ctx context.Context, l loader, d time.Duration) (_ sample, err error) {
	if p.tap != nil {
		end, failed := p.tap.start()
		if failed != nil {
			return sample{}, failed
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	if _, err := l.run(ctx, time.Second); err != nil {
		return sample{}, err
	}
	before, _, err := p.usage()
	if err != nil {
		return sample{}, err
	}
	report, err := l.run(ctx, d)
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", p.name, err)
	}
	after, memory, err := p.usage()
	if err != nil {
		return sample{}, err
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	return sample{us(after-before) / float64(report.requests), report.rate, us(report.p50), us(report.p99), memory}, nil
}

// usage returns the processor time and the memory of the proxy's processes and of their
// children.
func (p proxy) usage() (cpu time.Duration, memory float64, _ error) {
	for _, process := range p.processes {
		if err := process.Ended(); err != nil {
			return 0, 0, err
		}
		pids := []int{process.PID()}
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", process.PID())) // nginx has workers
		for _, child := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				pids = append(pids, pid)
			}
		}
		for _, pid := range pids {
			used, resident, err := usage(pid)
			if err != nil {
				return 0, 0, err
			}
			cpu, memory = cpu+used, memory+resident
		}
	}
	return cpu, memory, nil
}

// usage returns the user and system time of a process with all its threads, and its
// resident memory in megabytes.
func usage(pid int) (cpu time.Duration, memory float64, _ error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("the proxy is gone: %w", err)
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the process name may contain blanks
	f := strings.Fields(rest)
	if len(f) < 22 {
		return 0, 0, fmt.Errorf("process %d: unexpected stat line", pid)
	}
	var n [3]int64
	for i, field := range []string{f[11], f[12], f[21]} {
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return 0, 0, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return time.Duration(n[0]+n[1]) * clockTick, float64(n[2]) * float64(os.Getpagesize()) / (1 << 20), nil
}

// loader sends requests for a period. A failed request is an error.
type loader interface {
	unit() string // what it counts as requests
	run(ctx context.Context, d time.Duration) (report, error)
}

// report is what a loader has measured.
type report struct {
	requests int
	rate     float64
	p50, p99 time.Duration
}

var errNothing = errors.New("no request was served")

func (wrk) unit() string    { return "request" }
func (h2load) unit() string { return "request" }
func (bulk) unit() string   { return "MiB" }

// wrk sends as many requests over HTTP/1.1 as it can.
type wrk struct {
	addr, path  string
	connections int
	secured     bool // https
	once        bool // a new connection for each request
}

func (w wrk) run(ctx context.Context, d time.Duration) (report, error) {
	args := []string{"-t1", "-c" + strconv.Itoa(w.connections), "-d" + strconv.Itoa(int(d.Seconds())) + "s", "--latency", "-H", "Ringway-Service: echo"}
	if w.once {
		args = append(args, "-H", "Connection: close")
	}
	out, err := exec.CommandContext(ctx, "wrk", append(args, scheme(w.secured)+w.addr+w.path)...).CombinedOutput()
	if err != nil {
		return report{}, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	r, err := parseWrk(string(out))
	if err != nil {
		return report{}, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	return r, nil
}

func scheme(secured bool) string {
	if secured {
		return "https://"
	}
	return "http://"
}

// parseWrk reads wrk's report.
func parseWrk(out string) (r report, err error) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch {
		case strings.Contains(line, "Non-2xx") || strings.Contains(line, "Socket errors"):
			return r, fmt.Errorf("failed requests: %s", strings.TrimSpace(line))
		case len(f) == 2 && f[0] == "50%":
			r.p50, err = time.ParseDuration(f[1])
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
		return r, errNothing
	}
	return r, nil
}

// h2load sends calls over HTTP/2, requests over HTTP/2 and TLS, or requests over HTTP/1.1 at a
// rate.
type h2load struct {
	addr    string // or several, separated by commas, which get equal parts of clients and rate
	call    bool   // POST a message as gRPC does
	body    string // the path of the message
	path    string // of the request
	secured bool   // HTTP/2 over TLS
	clients int
	streams int // of each client
	rate    int // requests per second of all clients; 0 as many as possible
}

func (h h2load) run(ctx context.Context, d time.Duration) (report, error) {
	dir, err := os.MkdirTemp("", "h2load")
	if err != nil {
		return report{}, err
	}
	defer os.RemoveAll(dir)
	addrs := strings.Split(h.addr, ",")
	logs, errs := make([]string, len(addrs)), make([]error, len(addrs))
	var group sync.WaitGroup
	for i, addr := range addrs {
		logs[i] = filepath.Join(dir, strconv.Itoa(i))
		args := append([]string{"-t1", "-c" + strconv.Itoa(h.clients/len(addrs)), "-D" + strconv.Itoa(int(d.Seconds())) + "s", "--log-file=" + logs[i]}, h.requests(addr)...)
		group.Go(func() {
			if out, err := exec.CommandContext(ctx, "h2load", args...).CombinedOutput(); err != nil {
				errs[i] = fmt.Errorf("h2load: %w\n%s", err, out)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return report{}, err
	}
	r, err := readH2loadLogs(logs...)
	if err != nil {
		return report{}, fmt.Errorf("h2load to %s: %w", h.addr, err)
	}
	r.rate = float64(r.requests) / d.Seconds()
	return r, nil
}

// requests returns the arguments that describe the requests.
func (h h2load) requests(addr string) (args []string) {
	if h.rate > 0 {
		args = append(args, fmt.Sprintf("--rps=%g", float64(h.rate)/float64(h.clients)))
	}
	switch {
	case h.secured:
		args = append(args, "-m"+strconv.Itoa(h.streams), "-H", "Ringway-Service: echo", "https://"+addr+h.path)
	case h.call:
		args = append(args, "-m"+strconv.Itoa(h.streams), "-d", h.body, "-H", "Ringway-Service: calls", "-H", "content-type: application/grpc", "-H", "te: trailers", "http://"+addr+h.path)
	default:
		args = append(args, "--h1", "-H", "Ringway-Service: echo", "http://"+addr+h.path)
	}
	return args
}

// readH2loadLogs reads logs of h2load together.
func readH2loadLogs(paths ...string) (r report, _ error) {
	var all []int
	for _, path := range paths {
		us, err := readH2loadLog(path)
		if err != nil {
			return r, err
		}
		if len(us) == 0 {
			return r, errNothing
		}
		all = append(all, us...)
	}
	slices.Sort(all)
	at := func(share float64) time.Duration {
		return time.Duration(all[int(share*float64(len(all)-1))]) * time.Microsecond
	}
	return report{requests: len(all), p50: at(0.5), p99: at(0.99)}, nil
}

// readH2loadLog returns the durations in microseconds from a log of h2load: start, status and
// duration of each request.
func readH2loadLog(path string) (durations []int, _ error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) != 3 {
			return nil, fmt.Errorf("unexpected line %q", lines.Text())
		}
		if f[1] != "200" {
			return nil, fmt.Errorf("a request has failed: status %s", f[1])
		}
		us, err := strconv.Atoi(f[2])
		if err != nil {
			return nil, err
		}
		durations = append(durations, us)
	}
	return durations, nil
}
