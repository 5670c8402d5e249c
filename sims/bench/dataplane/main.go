package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"text/tabwriter"
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
}

// shape is one kind of traffic, and the proxies that are measured with it. The first one is
// what the others are compared with. A shape may start proxies of its own.
type shape struct {
	name    string
	load    func(addr string) loader
	proxies func() ([]proxy, error)
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
		{"HTTP/1.1, 128 B, 32 connections", http1("/128"), direct},
		{"HTTP/1.1, 16 KiB, 32 connections", http1("/16384"), direct},
		{"HTTP/1.1, 1 MiB, 32 connections", http1("/1048576"), direct},
		{"HTTP/1.1, 204 without a body, 32 connections", http1("/none"), direct},
		{"HTTP/1.1, 128 B, 16 connections, 2,000 requests/s", func(addr string) loader {
			return h2load{addr: addr, path: "/128", clients: 16, rate: 2000}
		}, direct},
		{"HTTP/1.1, 128 B, 1,000 connections", func(addr string) loader { return wrk{addr: addr, path: "/128", connections: 1000} }, direct},
		{"gRPC shape over h2c, 8 connections x 16 streams", grpc, calls},
		{"HTTP/1.1, 128 B, to a relay that forwards; beside the direct way", http1("/128"), running(f.relay(), f.hop())},
		{"gRPC shape, to a relay that forwards; beside the direct way", grpc, running(f.relay(), f.hop())},
		{"HTTP/1.1, 128 B, 32 connections, TLS at the ingress", func(addr string) loader {
			return wrk{addr: addr, path: "/128", connections: 32, secured: true}
		}, sites},
		{"HTTP/2, 128 B, 8 connections x 16 streams, TLS at the ingress", func(addr string) loader {
			return h2load{addr: addr, path: "/128", clients: 8, streams: 16, secured: true}
		}, sites},
		{"HTTP/1.1, 128 B, a new connection for each request, TLS at the ingress", func(addr string) loader {
			return wrk{addr: addr, path: "/128", connections: 32, secured: true, once: true}
		}, sites},
		{"HTTP/1.1, 128 B, TLS to the sidecars of the workers", http1("/128"), running(f.haproxy(haproxyTLS), f.secured())},
		{"TCP, 32 sessions, as many bytes as possible in both directions", func(addr string) loader {
			return bulk{addr: addr, sessions: 32}
		}, running(f.haproxy(haproxyTCP), f.spliced(), f.sessions())},
		{"HTTP/1.1, 128 B, 32 connections, with a request log of 1 % of the requests", http1("/128"), f.recorded},
		{"HTTP/1.1, 128 B, 3 relays, 2,000 requests/s in all, with relay tap --all", func(addr string) loader {
			return h2load{addr: addr, path: "/128", clients: 15, rate: 2000}
		}, f.tapped},
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
					fmt.Sprintf("gRPC, %d B and %s, %d x %d streams", size, trailers.name, at.clients, at.streams),
					func(addr string) loader { call.addr = addr; return call },
					running(f.haproxy(haproxyH2C), f.nginx(nginxH2C), f.relay()),
				})
			}
		}
	}
	return all
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
	flag.IntVar(&o.rounds, "rounds", 5, "how many times each proxy is measured for each kind of traffic")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "length of one measurement, whole seconds")
	flag.StringVar(&only, "only", "", "a regular expression: only the kinds of traffic whose name matches")
	flag.BoolVar(&o.calls, "grpc", false, "measure calls of gRPC in every shape, in place of the other measurements")
	flag.BoolVar(&foreign, "foreign", false, "count the answers that are read by another client, in place of all measurements")
	flag.Parse()
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
	kinds := shapes
	if o.calls {
		kinds = callShapes
	}
	for _, s := range kinds(f) {
		if !o.only.MatchString(s.name) {
			continue
		}
		if err := s.compare(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// compare measures the proxies in turn, and prints the medians of the rounds. The ratio is
// the median of the ratios of the rounds: within a round the machine is the same.
func (s shape) compare(ctx context.Context, o options) error {
	proxies, err := s.proxies()
	if err != nil {
		return err
	}
	samples := make([][]sample, len(proxies))
	ratios := make([][]float64, len(proxies))
	for _, p := range proxies {
		if err := await(ctx, s.load(p.addr), p.name); err != nil {
			return err
		}
	}
	for range o.rounds {
		for i, p := range proxies {
			v, err := p.measure(ctx, s.load(p.addr), o.duration)
			if err != nil {
				return err
			}
			samples[i] = append(samples[i], v)
			ratios[i] = append(ratios[i], v.cpu/samples[0][len(samples[0])-1].cpu)
		}
	}
	fmt.Printf("\n%s; medians of %d rounds of %v\n", s.name, o.rounds, o.duration)
	tw := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	unit := s.load("").unit()
	fmt.Fprintf(tw, "proxy\tCPU us/%s\tx %s\t%[1]s/s\tp50 us\tp99 us\tMB\t\n", unit, proxies[0].name)
	for i, p := range proxies {
		median := func(get func(sample) float64) float64 {
			var all []float64
			for _, v := range samples[i] {
				all = append(all, get(v))
			}
			return middle(all)
		}
		fmt.Fprintf(tw, "%s\t%.1f\t%.3f\t%.0f\t%s\t%s\t%.0f\t\n", p.name, median(func(v sample) float64 { return v.cpu }), middle(ratios[i]),
			median(func(v sample) float64 { return v.rate }), latency(median(func(v sample) float64 { return v.p50 })),
			latency(median(func(v sample) float64 { return v.p99 })), median(func(v sample) float64 { return v.memory }))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, p := range proxies {
		if p.tap != nil {
			fmt.Printf("%s: %d records read, %d dropped\n", p.name, p.tap.read, p.tap.dropped)
		}
	}
	return nil
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

// latency returns microseconds, or a dash for a load without requests.
func latency(us float64) string {
	if us == 0 {
		return "-"
	}
	return strconv.FormatFloat(us, 'f', 0, 64)
}

func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
