package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// roleVariable is the environment variable that makes a copy of this program run
// the backends instead of the measurement.
const roleVariable = "RINGWAY_DATAPLANE_ROLE"

type options struct {
	rounds   int
	duration time.Duration
	only     *regexp.Regexp
	calls    bool
	base     string // the sources of an older release, or empty
	json     string // a file for the results, or empty
}

// shape is one kind of traffic, and the proxies that are measured with it. The first one is
// what the others are compared with. A shape may start proxies of its own.
type shape struct {
	name     string
	load     func(addr string) loader
	proxies  func() ([]proxy, error)
	releases bool // measured for two releases, too
}

// running returns proxies that startFleet has started.
func running(p ...proxy) func() ([]proxy, error) {
	return func() ([]proxy, error) { return p, nil }
}

func shapes(f *fleet) []shape {
	http1 := func(path string) func(string) loader {
		return func(addr string) loader { return wrk{addr: addr, path: path, connections: 32} }
	}
	direct := running(f.haproxy(haproxyHTTP1), f.nginx(nginxHTTP1), f.relay())
	calls := running(f.haproxy(haproxyH2C), f.nginx(nginxH2C), f.relay())
	sites := running(f.haproxy(haproxySite), f.site())
	grpc := func(addr string) loader {
		return h2load{addr: addr, call: true, body: f.body, path: "/svc/133", clients: 8, streams: 16}
	}
	return []shape{
		{name: "HTTP/1.1, 128 B, 32 connections", load: http1("/128"), proxies: direct, releases: true},
		{name: "HTTP/1.1, 16 KiB, 32 connections", load: http1("/16384"), proxies: direct, releases: true},
		{name: "HTTP/1.1, 1 MiB, 32 connections", load: http1("/1048576"), proxies: direct},
		{name: "HTTP/1.1, 204 without a body, 32 connections", load: http1("/none"), proxies: direct},
		{name: "HTTP/1.1, 128 B, 16 connections, 2,000 requests/s", load: func(addr string) loader {
			return h2load{addr: addr, path: "/128", clients: 16, rate: 2000}
		}, proxies: direct},
		{name: "HTTP/1.1, 128 B, 1,000 connections", load: func(addr string) loader { return wrk{addr: addr, path: "/128", connections: 1000} }, proxies: direct},
		{name: "gRPC shape over h2c, 8 connections x 16 streams", load: grpc, proxies: calls, releases: true},
		{name: "HTTP/1.1, 128 B, to a relay that forwards; beside the direct way", load: http1("/128"), proxies: running(f.relay(), f.hop())},
		{name: "gRPC shape, to a relay that forwards; beside the direct way", load: grpc, proxies: running(f.relay(), f.hop())},
		{name: "HTTP/1.1, 128 B, 32 connections, TLS at the ingress", load: func(addr string) loader {
			return wrk{addr: addr, path: "/128", connections: 32, secured: true}
		}, proxies: sites},
		{name: "HTTP/2, 128 B, 8 connections x 16 streams, TLS at the ingress", load: func(addr string) loader {
			return h2load{addr: addr, path: "/128", clients: 8, streams: 16, secured: true}
		}, proxies: sites},
		{name: "HTTP/1.1, 128 B, a new connection for each request, TLS at the ingress", load: func(addr string) loader {
			return wrk{addr: addr, path: "/128", connections: 32, secured: true, once: true}
		}, proxies: sites},
		{name: "HTTP/1.1, 128 B, TLS to the sidecars of the workers", load: http1("/128"), proxies: running(f.haproxy(haproxyTLS), f.secured())},
		{name: "TCP, 32 sessions, as many bytes as possible in both directions", load: func(addr string) loader {
			return bulk{addr: addr, sessions: 32}
		}, proxies: running(f.haproxy(haproxyTCP), f.spliced(), f.sessions())},
		{name: "HTTP/1.1, 128 B, 32 connections, with a request log of 1 % of the requests", load: http1("/128"), proxies: f.recorded},
		{name: "HTTP/1.1, 128 B, 3 relays, 2,000 requests/s in all, with relay tap --all", load: func(addr string) loader {
			return h2load{addr: addr, path: "/128", clients: 15, rate: 2000}
		}, proxies: f.tapped},
	}
}

// callShapes are the shapes of calls: answers of several sizes, whose trailers are announced
// or not, over few and many connections.
func callShapes(f *fleet) (all []shape) {
	for _, at := range []struct{ clients, streams int }{{8, 16}, {1, 64}, {64, 1}} {
		for _, size := range []int{0, 37, 133, 4096} {
			for _, trailers := range []struct{ name, path string }{{"trailers", "/svc/"}, {"announced trailers", announcing}} {
				call := h2load{call: true, body: f.body, path: trailers.path + strconv.Itoa(size), clients: at.clients, streams: at.streams}
				all = append(all, shape{
					name:    fmt.Sprintf("gRPC, %d B and %s, %d x %d streams", size, trailers.name, at.clients, at.streams),
					load:    func(addr string) loader { call.addr = addr; return call },
					proxies: running(f.haproxy(haproxyH2C), f.nginx(nginxH2C), f.relay()),
				})
			}
		}
	}
	return all
}

// releaseShapes measure a relay of an older release and one of this. Each has workers of its own
// release.
func (f *fleet) releaseShapes(root string) ([]shape, error) {
	old, err := f.older(root)
	all := slices.DeleteFunc(shapes(f), func(s shape) bool { return !s.releases })
	for i := range all {
		all[i].proxies = running(old, f.relay())
	}
	return all, err
}

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "dataplane:", err)
		os.Exit(1)
	}
}

func start() error {
	if os.Getenv(roleVariable) == "backends" {
		return runBackends()
	}
	var o options
	var only string
	var foreign bool
	var page string
	flag.IntVar(&o.rounds, "rounds", 5, "how many times each proxy is measured for each kind of traffic")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "length of one measurement, whole seconds")
	flag.StringVar(&only, "only", "", "a regular expression: only the kinds of traffic whose name matches")
	flag.BoolVar(&o.calls, "grpc", false, "measure calls of gRPC in every shape, in place of the other measurements")
	flag.StringVar(&o.base, "base", "", "the root of an older release's sources: compare its relay with this one, in place of the other measurements, and fail where CPU has grown by more than a tenth")
	flag.StringVar(&o.json, "json", "", "a file that gets the results as JSON")
	flag.StringVar(&page, "page", "", "a page that gets the figures of runs with -json, whose files are the arguments, and graphs in the folder ../images beside it; measures nothing")
	flag.BoolVar(&foreign, "foreign", false, "count the answers that are read by another client, in place of all measurements")
	flag.Parse()
	if page != "" {
		return writePage(page, filepath.Join(filepath.Dir(page), "..", "images"), flag.Args())
	}
	if o.rounds < 1 || o.duration < time.Second {
		return errors.New("-rounds must be at least 1 and -duration at least 1s")
	}
	var err error
	if o.only, err = regexp.Compile("(?i)" + only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	programs := []string{"haproxy", "nginx", "wrk", "h2load"}
	if foreign {
		programs = programs[:2]
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is needed: on Debian, apt-get install haproxy nginx-light wrk nghttp2-client: %w", program, err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if foreign {
		return compareForeign(ctx)
	}
	return measure(ctx, o)
}

func measure(ctx context.Context, o options) error {
	f, err := startFleet(ctx)
	if err != nil {
		return err
	}
	defer f.stop()
	kinds := shapes(f)
	if o.calls {
		kinds = callShapes(f)
	}
	if o.base != "" {
		if kinds, err = f.releaseShapes(o.base); err != nil {
			return err
		}
	}
	r := results{Programs: versions(f.dir), CPUs: runtime.NumCPU(), Rounds: o.rounds, Seconds: o.duration.Seconds()}
	for _, name := range slices.Sorted(maps.Keys(r.Programs)) {
		fmt.Printf("%-8s  %s\n", name, r.Programs[name])
	}
	fmt.Printf("%d processors, which load, proxies and backends share; settings: haproxy.cfg.tmpl, nginx.conf.tmpl, and the relay's defaults\n", r.CPUs)
	for _, s := range kinds {
		if !o.only.MatchString(s.name) {
			continue
		}
		c, err := s.compare(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.Traffic = append(r.Traffic, c)
	}
	if o.json != "" {
		if err := r.writeJSON(o.json); err != nil {
			return fmt.Errorf("-json: %w", err)
		}
	}
	if grown := r.regressions(); o.base != "" && len(grown) > 0 {
		return fmt.Errorf("a request costs more CPU than at %s:\n%s", o.base, strings.Join(grown, "\n"))
	}
	return nil
}

// compare measures the proxies in turn, and prints the figures.
func (s shape) compare(ctx context.Context, o options) (c comparison, err error) {
	c = comparison{Name: s.name, Unit: s.load("").unit()}
	proxies, err := s.proxies()
	if err != nil {
		return c, err
	}
	samples := make([][]sample, len(proxies))
	for _, p := range proxies {
		if err := await(ctx, s.load(p.addr), p.name); err != nil {
			return c, err
		}
	}
	for range o.rounds {
		for i, p := range proxies {
			v, err := p.measure(ctx, s.load(p.addr), o.duration)
			if err != nil {
				return c, err
			}
			samples[i] = append(samples[i], v)
		}
	}
	for i, p := range proxies {
		c.Proxies = append(c.Proxies, summarise(p.name, samples[i], samples[0]))
	}
	fmt.Printf("\n%s; medians of %d rounds of %v\n", s.name, o.rounds, o.duration)
	if err := c.writeTo(os.Stdout); err != nil {
		return c, err
	}
	for _, p := range proxies {
		if p.tap != nil {
			fmt.Printf("%s: %d records read, %d dropped\n", p.name, p.tap.read, p.tap.dropped)
		}
	}
	return c, nil
}

// await waits until a proxy answers all requests.
func await(ctx context.Context, l loader, name string) error {
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if _, err = l.run(ctx, time.Second); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not answer: %w", name, err)
}
