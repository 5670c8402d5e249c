package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

//go:embed haproxy.cfg.tmpl
var haproxyConfig string

//go:embed nginx.conf.tmpl
var nginxConfig string

// The addresses of the proxies, except those of members that the fleet chooses.
const (
	relaySite      = "127.0.0.1:18088" // with TLS for clients
	haproxySite    = "127.0.0.1:18089"
	haproxyHTTP1   = "127.0.0.1:18090"
	haproxyH2C     = "127.0.0.1:18091"
	haproxyTLS     = "127.0.0.1:18092"
	nginxHTTP1     = "127.0.0.1:18093"
	nginxH2C       = "127.0.0.1:18094"
	relayTCP       = "127.0.0.1:18102"
	haproxyTCP     = "127.0.0.1:18103"
	haproxySpliced = "127.0.0.1:18104"
)

const workers = 6

// fleet holds the processes of the measurements.
type fleet struct {
	dir         string
	body        string         // the path of the body of a call
	clear, mtls *procs.Fleet   // relay and gate; a relay that reaches its workers over TLS
	all         []*procs.Fleet // with those that shapes start
	others      map[string]*procs.Process
	order       []string // of others
}

func (f *fleet) start(cfg procs.Config) error {
	p, err := procs.Launch(cfg)
	if err == nil {
		f.others[cfg.Name] = p
		f.order = append(f.order, cfg.Name)
	}
	return err
}

// cluster returns a fleet without members.
func (f *fleet) cluster() *procs.Fleet {
	c := procs.NewFleet(procs.FleetConfig{Cluster: "bench", Environment: "bench", Binaries: f.dir})
	f.all = append(f.all, c)
	return c
}

func (f *fleet) stop() {
	for _, c := range f.all {
		c.Stop()
	}
	for _, name := range slices.Backward(f.order) {
		f.others[name].Kill()
	}
	_ = os.RemoveAll(f.dir)
}

// newFleet builds the binaries, and prepares a cluster without and one with certificates. The
// caller must stop the fleet, even after an error.
func newFleet() (*fleet, error) {
	dir, err := os.MkdirTemp("", "dataplane")
	if err != nil {
		return nil, err
	}
	f := &fleet{dir: dir, body: filepath.Join(dir, "body"), others: map[string]*procs.Process{}}
	if err := procs.Build("../..", dir, false, "github.com/ringway/ringway/cmd/relay", "github.com/ringway/ringway/cmd/worker"); err != nil {
		return f, err
	}
	f.clear, f.mtls = f.cluster(), f.cluster()
	return f, f.mtls.Secure(dir)
}

func startFleet(ctx context.Context) (_ *fleet, err error) {
	f, err := newFleet()
	defer func() {
		if err != nil && f != nil {
			f.stop()
		}
	}()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(f.body, slices.Repeat([]byte("x"), 133), 0o600), f.certifySite()); err != nil {
		return nil, err
	}
	if err := f.start(procs.Config{Name: "backends", Binary: self, Env: []string{roleVariable + "=backends"}}); err != nil {
		return nil, err
	}
	return f, errors.Join(f.startMembers(), f.startOthers(), ctx.Err())
}

// site is the file with the certificate for clients and its key.
const site = "site.pem"

// certifySite makes the certificate that the proxies show clients.
func (f *fleet) certifySite() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "site"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(f.path(site), slices.Concat(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})), 0o600)
}

func (f *fleet) path(name string) string { return filepath.Join(f.dir, name) }

// startMembers starts a relay, a gate that forwards to it, a relay that reaches its workers
// over TLS, and the workers.
func (f *fleet) startMembers() error {
	return errors.Join(
		f.clear.Start(f.clear.Relay("r1"), procs.Config{Args: []string{"--ingress-addr", "tls://" + relaySite,
			"--ingress-tls-cert", f.path(site), "--ingress-tls-key", f.path(site), "--tcp-ingress", relayTCP + "=bytes"}}),
		f.clear.Start(f.clear.Relay("g1"), procs.Config{Args: []string{"--role", "gate"}}),
		f.mtls.Start(f.mtls.Relay("s1"), procs.Config{}),
		startWorkers(f.clear, func(n int) []string {
			return append(httpAndCalls(n), "bytes="+backends(sessionPort)[n]+";protocol=tcp")
		}),
		startWorkers(f.mtls, echoes),
	)
}

// echoes returns the only service of a worker in most clusters.
func echoes(n int) []string { return []string{"echo=" + backends(httpPort)[n]} }

// httpAndCalls returns the services of requests over HTTP/1.1 and of calls.
func httpAndCalls(n int) []string {
	return append(echoes(n), "calls="+backends(callPort)[n]+";protocol=h2c")
}

// startWorkers starts the workers of a cluster, with the services of each index.
func startWorkers(c *procs.Fleet, services func(n int) []string) (err error) {
	for n := range workers {
		var args []string
		for _, s := range services(n) {
			args = append(args, "--service", s)
		}
		err = c.Start(c.Worker(fmt.Sprintf("w%d", n+1)), procs.Config{Args: args})
	}
	return err
}

// threeRelays starts three relays of one cluster with six workers, so every relay connects to
// every worker. flags returns further flags of the relay with an index.
func (f *fleet) threeRelays(flags func(n int) []string) (c *procs.Fleet, relays []proxy, err error) {
	c = f.cluster()
	for n := range 3 {
		r := c.Relay(fmt.Sprintf("r%d", n+1))
		err = c.Start(r, procs.Config{Args: flags(n)}) // also the error of an earlier one
		relays = append(relays, through(r, r.Ingress))
	}
	if err == nil {
		err = startWorkers(c, echoes)
	}
	return c, relays, err
}

// recorded starts two relays without a request log and one with it. The second one shows how
// much two processes differ that do the same.
func (f *fleet) recorded() ([]proxy, error) {
	_, relays, err := f.threeRelays(func(n int) []string {
		if n == 2 {
			return []string{"--request-log", f.path("requests.log"), "--request-log-sample", "0.01"}
		}
		return nil
	})
	for i, name := range []string{"relay", "relay, again", "relay, log of 1 %"} {
		relays[i].name = name
	}
	return relays, err
}

// tapped starts three relays, which are measured together: twice without a tap, to show how
// much two measurements differ, and with it.
func (f *fleet) tapped() ([]proxy, error) {
	c, relays, err := f.threeRelays(func(int) []string { return nil })
	all := proxy{name: "3 relays"}
	var ingresses []string
	for _, r := range relays {
		ingresses = append(ingresses, r.addr)
		all.processes = append(all.processes, r.processes...)
	}
	all.addr = strings.Join(ingresses, ",")
	again, watched := all, all
	again.name = "3 relays, again"
	watched.name, watched.tap = "3 relays, relay tap", &tap{dir: f.dir, fleet: c}
	return []proxy{all, again, watched}, err
}

// older builds the relay and the worker of an older release from its sources, starts a cluster of
// them, and returns the way through its relay.
func (f *fleet) older(root string) (proxy, error) {
	dir := f.path("older")
	if err := errors.Join(os.Mkdir(dir, 0o700), procs.Build(root, dir, false, "./cmd/relay", "./cmd/worker")); err != nil {
		return proxy{}, err
	}
	c := procs.NewFleet(procs.FleetConfig{Cluster: "older", Environment: "bench", Binaries: dir})
	f.all = append(f.all, c)
	r := c.Relay("r1")
	if err := errors.Join(c.Start(r, procs.Config{}), startWorkers(c, httpAndCalls)); err != nil {
		return proxy{}, err
	}
	p := through(r, r.Ingress)
	p.name = "relay before"
	return p, nil
}

// startOthers starts HAProxy and nginx.
func (f *fleet) startOthers() error {
	var sidecars []string
	for _, w := range f.mtls.Workers {
		sidecars = append(sidecars, w.Sidecar)
	}
	// HAProxy reads a certificate and its key from one file.
	certificate, err1 := os.ReadFile(f.path("s1.crt"))
	private, err2 := os.ReadFile(f.path("s1.key"))
	if err := errors.Join(err1, err2, os.WriteFile(f.path("haproxy.pem"), append(certificate, private...), 0o600)); err != nil {
		return err
	}
	values := map[string]any{"Dir": f.dir, "HTTP1": haproxyHTTP1, "H2C": haproxyH2C, "TLS": haproxyTLS, "Backends": backends(httpPort), "GRPC": backends(callPort),
		"Secured": sidecars, "Authority": f.path("ca/ca.crt"), "Certificate": f.path("haproxy.pem"), "Site": haproxySite, "SiteCertificate": f.path(site),
		"TCP": haproxyTCP, "Spliced": haproxySpliced, "Sessions": backends(sessionPort)}
	if err := f.write("haproxy.cfg", haproxyConfig, values); err != nil {
		return err
	}
	values["HTTP1"], values["H2C"] = nginxHTTP1, nginxH2C
	if err := f.write("nginx.conf", nginxConfig, values); err != nil {
		return err
	}
	return errors.Join(
		f.start(procs.Config{Name: "haproxy", Binary: "/usr/bin/env", Args: []string{"haproxy", "-db", "-f", f.path("haproxy.cfg")}}),
		f.start(procs.Config{Name: "nginx", Binary: "/usr/bin/env", Args: []string{"nginx", "-c", f.path("nginx.conf")}}),
	)
}

func (f *fleet) write(name, text string, values any) error {
	file, err := os.Create(f.path(name))
	if err != nil {
		return err
	}
	defer file.Close()
	return template.Must(template.New(name).Parse(text)).Execute(file, values)
}

// proxy is one way to the backends.
type proxy struct {
	name, addr string           // several addresses are separated by commas
	processes  []*procs.Process // what it costs
	tap        *tap             // reads during the measurement, or nil
}

func (f *fleet) haproxy(addr string) proxy {
	return proxy{name: "haproxy", addr: addr, processes: []*procs.Process{f.others["haproxy"]}}
}

func (f *fleet) spliced() proxy {
	return proxy{name: "haproxy, splice", addr: haproxySpliced, processes: []*procs.Process{f.others["haproxy"]}}
}

func (f *fleet) nginx(addr string) proxy {
	return proxy{name: "nginx", addr: addr, processes: []*procs.Process{f.others["nginx"]}}
}

// through returns the way through a relay by one of its addresses.
func through(r *procs.Member, addr string) proxy {
	return proxy{name: "relay", addr: addr, processes: []*procs.Process{r.Process}}
}

func (f *fleet) relay() proxy    { return through(f.clear.Relays[0], f.clear.Relays[0].Ingress) }
func (f *fleet) sessions() proxy { return through(f.clear.Relays[0], relayTCP) }
func (f *fleet) site() proxy     { return through(f.clear.Relays[0], relaySite) }
func (f *fleet) secured() proxy  { return through(f.mtls.Relays[0], f.mtls.Relays[0].Ingress) }

func (f *fleet) hop() proxy {
	p := through(f.clear.Relays[1], f.clear.Relays[1].Ingress)
	p.name, p.processes = "gate + relay", append(p.processes, f.clear.Relays[0].Process)
	return p
}
