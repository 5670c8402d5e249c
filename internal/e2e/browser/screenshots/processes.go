package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/traffic"
)

// processes is a fleet of real processes with certificates. Each process has its own
// loopback address with the default ports.
type processes struct {
	dir, binaries  string
	relays         []string // addresses
	workers        map[string]*exec.Cmd
	all            []*exec.Cmd
	backends       []*traffic.Service
	relayAdmins    []string
	workerAdmins   []string
	ingresses      []string
	nextWorkerHost int
}

func startProcesses(ctx context.Context, dir, binaries string, relays, workers int) (*processes, error) {
	p := &processes{dir: dir, binaries: binaries, workers: map[string]*exec.Cmd{}, nextWorkerHost: 101}
	if _, err := p.tool(ctx, "tls", "ca", "create", "--out", filepath.Join(dir, "ca"), "--name", "ringway-pictures", "--days", "30"); err != nil {
		return p, err
	}
	keys, err := p.tool(ctx, "keys", "generate")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "gossip.keys"), keys, 0o600)
	}
	if err != nil {
		return p, err
	}
	for n := 1; n <= relays; n++ {
		host := fmt.Sprintf("127.0.1.%d", n)
		p.relays = append(p.relays, host+":7400")
		p.relayAdmins, p.ingresses = append(p.relayAdmins, host+":7430"), append(p.ingresses, "http://"+host+":7410")
		err := p.start(ctx, "relay", fmt.Sprintf("relay-%d", n), "--gossip-addr", host+":7400", "--ingress-addr", host+":7410", "--peer-addr", host+":7420", "--admin-addr", host+":7430")
		if err != nil {
			return p, err
		}
	}
	for n := 1; n <= workers; n++ {
		if err := p.startWorker(ctx, fmt.Sprintf("worker-%d", n)); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *processes) startWorker(ctx context.Context, id string) error {
	b, err := traffic.Serve(traffic.NewStub(traffic.StubConfig{Name: id, Median: 12 * time.Millisecond, Stream: uint64(p.nextWorkerHost)}))
	if err != nil {
		return err
	}
	p.backends = append(p.backends, b)
	host := fmt.Sprintf("127.0.1.%d", p.nextWorkerHost)
	p.nextWorkerHost++
	p.workerAdmins = append(p.workerAdmins, host+":7431")
	return p.start(ctx, "worker", id, "--gossip-addr", host+":7401", "--sidecar-addr", host+":7421", "--admin-addr", host+":7431",
		"--service", "checkout="+b.Addr()+";check=tcp", "--service", "search="+b.Addr()+";check=tcp")
}

// start starts a relay or worker with a certificate.
func (p *processes) start(ctx context.Context, role, id string, args ...string) error {
	own := filepath.Join(p.dir, id)
	if _, err := p.tool(ctx, "tls", "cert", "create", "--ca", filepath.Join(p.dir, "ca"), "--role", role, "--node", id, "--days", "20", "--cluster", "shop", "--environment", "production", "--out", own); err != nil {
		return err
	}
	args = append([]string{
		"run", "--cluster", "shop", "--environment", "production", "--id", id, "--join", strings.Join(p.relays, ","), "--log-level", "error",
		"--tls-cert", own + ".crt", "--tls-key", own + ".key", "--tls-ca", filepath.Join(p.dir, "ca", "ca.crt"), "--gossip-key-file", filepath.Join(p.dir, "gossip.keys"),
	}, args...)
	c := exec.CommandContext(ctx, filepath.Join(p.binaries, role), args...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", id, err)
	}
	p.all = append(p.all, c)
	if role == "worker" {
		p.workers[id] = c
	}
	return nil
}

func (p *processes) tool(ctx context.Context, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(p.binaries, "relay"), args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("relay %s: %w", strings.Join(args[:2], " "), err)
	}
	return out, nil
}

// stop kills all processes, waits for them and stops the backends.
func (p *processes) stop() {
	for _, c := range p.all {
		_ = c.Process.Kill() // it may have ended
	}
	for _, c := range p.all {
		_ = c.Wait() // it reports the kill
	}
	for _, b := range p.backends {
		b.Die()
	}
}
