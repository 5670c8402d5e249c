package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

//go:embed haproxy.cfg.tmpl
var haproxyConfig string

// roleVariable is the environment variable that makes a copy of this program run
// the backends or the lean ingress instead of the measurement.
const roleVariable = "RINGWAY_DATAPLANE_ROLE"

const (
	haproxyListen = "127.0.0.1:18090"
	targetListen  = "127.0.0.1:18091"
	clockTick     = 10 * time.Millisecond // USER_HZ is 100 on every Linux
)

type options struct {
	rounds      int
	duration    time.Duration
	sizes       []string
	target      string
	connections int
}

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "dataplane:", err)
		os.Exit(1)
	}
}

func start() error {
	switch os.Getenv(roleVariable) {
	case "backends":
		return runBackends()
	case "lean":
		return runLean(targetListen)
	}
	var o options
	var sizes string
	flag.IntVar(&o.rounds, "rounds", 5, "how many times each proxy is measured per size")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "length of one measurement, whole seconds")
	flag.StringVar(&sizes, "sizes", "128,16384", "body sizes in bytes, comma-separated")
	flag.StringVar(&o.target, "target", "relay", "the proxy to compare with HAProxy: relay (the binary with 6 workers) or lean (the engine alone)")
	flag.IntVar(&o.connections, "connections", 32, "client connections")
	flag.Parse()
	o.sizes = strings.Split(sizes, ",")
	for _, s := range o.sizes {
		if n, err := strconv.Atoi(s); err != nil || n < 0 || n > 1<<20 {
			return fmt.Errorf("-sizes: %q is not a number of bytes from 0 to 1048576", s)
		}
	}
	if o.rounds < 1 || o.duration < time.Second {
		return errors.New("-rounds must be at least 1 and -duration at least 1s")
	}
	if o.target != "relay" && o.target != "lean" {
		return fmt.Errorf("-target: %q is neither relay nor lean", o.target)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return measure(ctx, o)
}

// findTools returns the paths of haproxy and wrk, or an error that names the
// packages to install.
func findTools() (haproxy, wrk string, err error) {
	haproxy, err1 := exec.LookPath("haproxy")
	if err1 != nil {
		haproxy, err1 = exec.LookPath("/usr/sbin/haproxy")
	}
	wrk, err2 := exec.LookPath("wrk")
	if err1 != nil || err2 != nil {
		return "", "", errors.New("haproxy and wrk are needed: on Debian, apt-get install haproxy wrk")
	}
	return haproxy, wrk, nil
}

// fleet holds the processes of one measurement.
type fleet struct {
	dir       string
	processes []*procs.Process
}

func (f *fleet) start(cfg procs.Config) (*procs.Process, error) {
	p, err := procs.Launch(cfg)
	if err == nil {
		f.processes = append(f.processes, p)
	}
	return p, err
}

// startSelf starts a copy of this program in a role.
func (f *fleet) startSelf(role string) (*procs.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return f.start(procs.Config{Binary: self, Env: []string{roleVariable + "=" + role}})
}

func (f *fleet) stop() {
	for _, p := range slices.Backward(f.processes) {
		p.Kill()
	}
	_ = os.RemoveAll(f.dir)
}

func measure(ctx context.Context, o options) error {
	haproxy, wrk, err := findTools()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dataplane")
	if err != nil {
		return err
	}
	f := &fleet{dir: dir}
	defer f.stop()
	if _, err := f.startSelf("backends"); err != nil {
		return err
	}
	proxy, err := f.startHAProxy(haproxy)
	if err != nil {
		return err
	}
	var target *procs.Process
	if o.target == "lean" {
		target, err = f.startSelf("lean")
	} else {
		target, err = f.startRelay()
	}
	if err != nil {
		return err
	}
	subjects := []subject{
		{"haproxy", haproxyListen, proxy.PID()},
		{o.target, targetListen, target.PID()},
	}
	for _, s := range subjects {
		if err := s.await(ctx); err != nil {
			return err
		}
	}
	for _, size := range o.sizes {
		if err := compare(ctx, o, wrk, size, subjects); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) startHAProxy(haproxy string) (*procs.Process, error) {
	path := filepath.Join(f.dir, "haproxy.cfg")
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t := template.Must(template.New("haproxy").Parse(haproxyConfig))
	if err := t.Execute(file, map[string]any{"Listen": haproxyListen, "Backends": backendAddresses()}); err != nil {
		return nil, err
	}
	return f.start(procs.Config{Binary: haproxy, Args: []string{"-db", "-f", path}})
}

// startRelay builds both binaries and starts a fleet of one relay and six
// workers; each worker advertises one backend.
func (f *fleet) startRelay() (*procs.Process, error) {
	if err := procs.Build(".", f.dir, false, "github.com/ringway/ringway/cmd/relay", "github.com/ringway/ringway/cmd/worker"); err != nil {
		return nil, err
	}
	const seed = "127.0.0.1:18100"
	start := func(binary, id string, args ...string) (*procs.Process, error) {
		return f.start(procs.Config{Name: id, Binary: binary, Dir: f.dir, Args: append([]string{"run", "--cluster", "bench", "--environment", "bench", "--id", id}, args...)})
	}
	relay, err := start("relay", "r1", "--gossip-addr", seed, "--ingress-addr", targetListen, "--peer-addr", "127.0.0.1:18092", "--admin-addr", "127.0.0.1:18093")
	if err != nil {
		return nil, err
	}
	for i, backend := range backendAddresses() {
		if _, err := start("worker", fmt.Sprintf("w%d", i+1), "--gossip-addr", fmt.Sprintf("127.0.0.1:%d", 18101+i),
			"--admin-addr", fmt.Sprintf("127.0.0.1:%d", 18111+i), "--join", seed, "--service", "echo="+backend); err != nil {
			return nil, err
		}
	}
	return relay, nil
}

// subject is one proxy under measurement.
type subject struct {
	name, address string
	pid           int
}

// await waits until the proxy answers requests with 200.
func (s subject) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}}
	last := "no answer"
	for good := 0; good < 12; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/128", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Ringway-Service", "echo")
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
			last = resp.Status
			if resp.StatusCode == http.StatusOK {
				good++
				continue
			}
		} else {
			last = err.Error()
		}
		good = 0
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s at %s is not ready after 30s: %s", s.name, s.address, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

func compare(ctx context.Context, o options, wrk, size string, subjects []subject) error {
	samples := make([][]sample, len(subjects))
	var ratios []float64
	for range o.rounds {
		for i, s := range subjects {
			v, err := s.measure(ctx, o, wrk, size)
			if err != nil {
				return err
			}
			samples[i] = append(samples[i], v)
		}
		last := len(samples[0]) - 1
		ratios = append(ratios, samples[1][last].cpu/samples[0][last].cpu)
	}
	fmt.Printf("\n%s B, %d connections, medians of %d rounds of %v\n", size, o.connections, o.rounds, o.duration)
	tw := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "proxy\tCPU us/request\treq/s\tp99 us\tx HAProxy\t")
	for i, s := range subjects {
		ratio := 1.0
		if i > 0 {
			ratio = median(ratios)
		}
		fmt.Fprintf(tw, "%s\t%.1f\t%.0f\t%.0f\t%.2f\t\n", s.name,
			medianOf(samples[i], func(v sample) float64 { return v.cpu }),
			medianOf(samples[i], func(v sample) float64 { return v.rate }),
			medianOf(samples[i], func(v sample) float64 { return v.p99 }), ratio)
	}
	return tw.Flush()
}

func medianOf(v []sample, get func(sample) float64) float64 {
	var f []float64
	for _, s := range v {
		f = append(f, get(s))
	}
	return median(f)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
