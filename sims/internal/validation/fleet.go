package validation

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	model "github.com/ringway/ringway/sims/internal/fleet"
)

// patience is the longest wait for a state of the fleet.
const patience = time.Minute

// fleet holds the processes of relays and agents, and the backends, which run in this process.
type fleet struct {
	dir      string
	relays   []relayProcess
	agents   []*process
	backends []*backend
	admin    *http.Client
}

type relayProcess struct {
	*process
	gossip, ingress, admin string
}

// startFleet builds and starts the fleet and waits until every relay serves its range. After
// an error no process is running.
func startFleet(ctx context.Context, c Case) (f *fleet, err error) {
	f = &fleet{admin: &http.Client{Timeout: 10 * time.Second}}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	if f.dir, err = os.MkdirTemp("", "ringway-validation-"); err != nil {
		return f, err
	}
	if err = build(ctx, f.dir); err != nil {
		return f, err
	}
	if f.backends, err = startBackends(c.slowFactors()); err != nil {
		return f, err
	}
	var free ports
	address := func() string {
		addr, freeErr := free.free()
		err = errors.Join(err, freeErr)
		return addr
	}
	for range c.Relays {
		f.relays = append(f.relays, relayProcess{gossip: address(), ingress: address(), admin: address()})
	}
	var seeds []string
	for _, r := range f.relays {
		seeds = append(seeds, r.gossip)
	}
	common := []string{"run", "--cluster", "sims", "--environment", "validation", "--join", strings.Join(seeds, ","), "--log-format", "json", "--log-level", "warn"}
	for i := range f.relays {
		r := &f.relays[i]
		peer := address()
		if err != nil {
			return f, err
		}
		r.process, err = start(ctx, f.dir, model.RelayID(i), append(slices.Clone(common), "--id", model.RelayID(i),
			"--gossip-addr", r.gossip, "--ingress-addr", r.ingress, "--peer-addr", peer, "--admin-addr", r.admin,
			"--relays-per-service", strconv.Itoa(c.Relays), "--min-peers-per-worker", strconv.Itoa(perWorker), "--min-peers-per-relay", "1",
			"--peer-slack", strconv.Itoa(slack), "--member-grace", "1s", "--expose-route-headers")...)
		if err != nil {
			return f, err
		}
	}
	for i, b := range f.backends {
		gossip, admin := address(), address()
		if err != nil {
			return f, err
		}
		agent, startErr := start(ctx, f.dir, model.WorkerID(i), append(slices.Clone(common), "--id", model.WorkerID(i),
			"--gossip-addr", gossip, "--admin-addr", admin, "--sidecar-addr", "127.0.0.1:0", "--service", service+"="+b.addr())...)
		if startErr != nil {
			return f, startErr
		}
		f.agents = append(f.agents, agent)
	}
	err = await(ctx, patience, f.processes(), func() error { return f.connected(ctx, c) })
	if err != nil {
		return f, fmt.Errorf("wait until the fleet is connected: %w", err)
	}
	return f, nil
}

func (f *fleet) processes() (all []*process) {
	for _, r := range f.relays {
		if r.process != nil {
			all = append(all, r.process)
		}
	}
	return append(all, f.agents...)
}

// stop ends all processes and backends of the fleet and removes their files.
func (f *fleet) stop() {
	for _, p := range f.processes() {
		p.kill()
	}
	for _, b := range f.backends {
		b.die()
	}
	f.admin.CloseIdleConnections()
	if f.dir != "" {
		_ = os.RemoveAll(f.dir)
	}
}

// ingress returns the ingress addresses of the relays.
func (f *fleet) ingress() (out []string) {
	for _, r := range f.relays {
		out = append(out, r.ingress)
	}
	return out
}

// connected returns an error until every relay serves a range and is connected to all workers
// in the range.
func (f *fleet) connected(ctx context.Context, c Case) error {
	for _, r := range f.relays {
		p, err := f.plan(ctx, r)
		if err != nil {
			return err
		}
		if n := len(p.RelaysPerWorker); n != c.Workers || len(p.Relays) != c.Relays {
			return fmt.Errorf("%s plans with %d relays and %d workers of %d and %d", r.name, len(p.Relays), n, c.Relays, c.Workers)
		}
		m, err := f.metrics(ctx, r)
		if err != nil {
			return err
		}
		want := len(p.Relays[slices.IndexFunc(p.Relays, func(o plannedRelay) bool { return o.Relay == r.name })].Workers)
		if open := int(m[`ringway_peering_links{state="open"}`]); open < want {
			return fmt.Errorf("%s is connected to %d of %d workers", r.name, open, want)
		}
	}
	return nil
}

// plan is the used part of a relay's answer.
type plan struct {
	Relays          []plannedRelay `json:"relays"`
	RelaysPerWorker map[string]int `json:"relays_per_worker"`
}

type plannedRelay struct {
	Relay   string `json:"relay"`
	Workers []struct {
		Worker string  `json:"worker"`
		Weight float64 `json:"weight"`
	} `json:"workers"`
}

func (f *fleet) plan(ctx context.Context, r relayProcess) (p plan, err error) {
	text, err := f.get(ctx, r, "/api/v1/services/"+service+"/plan")
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

// metrics returns the metrics of a relay, by name and labels as exposed.
func (f *fleet) metrics(ctx context.Context, r relayProcess) (map[string]float64, error) {
	text, err := f.get(ctx, r, "/metrics")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		name, value, ok := cutLast(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(name, "#") {
			out[name] = v
		}
	}
	return out, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func (f *fleet) get(ctx context.Context, r relayProcess, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.admin+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.admin.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // the body is read below
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s answered %s: %.300s", r.name, path, resp.Status, text)
	}
	return text, err
}

// sum adds up one metric over all relays.
func (f *fleet) sum(ctx context.Context, name string) (total float64, err error) {
	for _, r := range f.relays {
		m, err := f.metrics(ctx, r)
		if err != nil {
			return 0, err
		}
		total += m[name]
	}
	return total, nil
}

// process is a program of the fleet.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when the process has ended
}

// start starts a program that ends with ctx at the latest. The output of the program goes to
// a file.
func start(ctx context.Context, dir, name string, args ...string) (*process, error) {
	program, _, _ := strings.Cut(name, "-")
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has a duplicate of the descriptor
	p.cmd = exec.CommandContext(ctx, filepath.Join(dir, program), args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RINGWAY_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = log, log, ownGroup()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code does not matter
		close(p.done)
	}()
	return p, nil
}

// kill sends SIGKILL and waits for the end of the process.
func (p *process) kill() {
	select {
	case <-p.done: // the pid may belong to another process by now
	default:
		_ = p.cmd.Process.Kill()
	}
	<-p.done
}

// ended returns an error with the last lines of the log if the process has ended.
func (p *process) ended() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	text, _ := os.ReadFile(p.log) // without the log the message is only shorter
	return fmt.Errorf("%s ended by itself (%v): %s", p.name, p.cmd.ProcessState, text[max(0, len(text)-600):])
}

// build builds the relay and worker binaries into a directory.
func build(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "github.com/ringway/ringway/cmd/relay", "github.com/ringway/ringway/cmd/worker")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binaries (run this inside the repository): %w\n%s", err, out)
	}
	return nil
}

// ports allocates addresses that are free for TCP and UDP. The ports are below the ephemeral
// range, so that no outgoing connection takes a port between the check and the bind.
type ports struct{ next uint32 }

const firstPort, numPorts = 20000, 12000

func (p *ports) free() (string, error) {
	for range numPorts {
		p.next++
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+(uint32(os.Getpid())*131+p.next)%numPorts)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		c, err := net.ListenPacket("udp", addr)
		_ = l.Close()
		if err != nil {
			continue
		}
		_ = c.Close()
		return addr, nil
	}
	return "", fmt.Errorf("no port of %d to %d is free", firstPort, firstPort+numPorts)
}

// await calls ask until it returns nil, a process has ended, or limit is over.
func await(ctx context.Context, limit time.Duration, all []*process, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		for _, p := range all {
			if ended := p.ended(); ended != nil {
				return ended
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", limit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
