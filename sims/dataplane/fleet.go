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

// The addresses of the proxies.
const (
	relaySite      = "127.0.0.1:18088" // with TLS for clients
	haproxySite    = "127.0.0.1:18089"
	haproxyHTTP1   = "127.0.0.1:18090"
	haproxyH2C     = "127.0.0.1:18091"
	haproxyTLS     = "127.0.0.1:18092"
	nginxHTTP1     = "127.0.0.1:18093"
	nginxH2C       = "127.0.0.1:18094"
	relayIngress   = "127.0.0.1:18095"
	gateIngress    = "127.0.0.1:18096"
	securedIngress = "127.0.0.1:18097"
	relayPeer      = "127.0.0.1:18098"
	securedPeer    = "127.0.0.1:18099"
	gossip         = "127.0.0.1:18100"
	relayTCP       = "127.0.0.1:18102"
	haproxyTCP     = "127.0.0.1:18103"
	haproxySpliced = "127.0.0.1:18104"
	securedGossip  = "127.0.0.1:18200"
)

const (
	cluster     = "bench"
	environment = "bench"
	workers     = 6
)

// fleet holds the processes of the measurements.
type fleet struct {
	dir       string
	body      string // the path of the body of a call
	processes map[string]*procs.Process
	order     []string
}

func (f *fleet) start(cfg procs.Config) error {
	p, err := procs.Launch(cfg)
	if err == nil {
		f.processes[cfg.Name] = p
		f.order = append(f.order, cfg.Name)
	}
	return err
}

func (f *fleet) stop() {
	for _, name := range slices.Backward(f.order) {
		f.processes[name].Kill()
	}
	_ = os.RemoveAll(f.dir)
}

func startFleet(ctx context.Context) (_ *fleet, err error) {
	dir, err := os.MkdirTemp("", "dataplane")
	if err != nil {
		return nil, err
	}
	f := &fleet{dir: dir, body: filepath.Join(dir, "body"), processes: map[string]*procs.Process{}}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	if err := os.WriteFile(f.body, slices.Repeat([]byte("x"), 133), 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := procs.Build(".", dir, false, "github.com/ringway/ringway/cmd/relay", "github.com/ringway/ringway/cmd/worker"); err != nil {
		return nil, err
	}
	if err := f.certify(); err != nil {
		return nil, err
	}
	if err := f.start(procs.Config{Name: "backends", Binary: self, Env: []string{roleVariable + "=backends"}}); err != nil {
		return nil, err
	}
	return f, errors.Join(f.startRelays(), f.startWorkers(), f.startOthers(), ctx.Err())
}

// certify makes the certificates and the gossip key of the members that use TLS.
func (f *fleet) certify() error {
	relay := func(args ...string) (string, error) {
		r := procs.Run(procs.Config{Binary: "relay", Dir: f.dir, Args: args})
		if r.Code != 0 {
			return "", fmt.Errorf("%v", r)
		}
		return r.Stdout, nil
	}
	if _, err := relay("tls", "ca", "create", "--out", f.path("ca"), "--days", "60"); err != nil {
		return err
	}
	key, err := relay("keys", "generate")
	if err != nil {
		return err
	}
	for _, m := range slices.Concat([]string{"s1"}, f.securedWorkers()) {
		role := "worker"
		if m == "s1" {
			role = "relay"
		}
		if _, err := relay("tls", "cert", "create", "--ca", f.path("ca"), "--role", role, "--node", m, "--cluster", cluster,
			"--environment", environment, "--days", "30", "--out", f.path(m)); err != nil {
			return err
		}
		if err := os.WriteFile(f.path(m+".keys"), []byte(key), 0o600); err != nil {
			return err
		}
	}
	if err := f.certifySite(); err != nil {
		return err
	}
	// HAProxy reads a certificate and its key from one file.
	certificate, err1 := os.ReadFile(f.path("s1.crt"))
	private, err2 := os.ReadFile(f.path("s1.key"))
	return errors.Join(err1, err2, os.WriteFile(f.path("haproxy.pem"), append(certificate, private...), 0o600))
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

func (f *fleet) securedWorkers() (names []string) {
	for n := range workers {
		names = append(names, fmt.Sprintf("t%d", n+1))
	}
	return names
}

// member starts a member of a cluster. A secured one has a certificate.
func (f *fleet) member(binary, id, join string, secured bool, args ...string) error {
	all := []string{"run", "--cluster", cluster, "--environment", environment, "--id", id}
	if join != "" {
		all = append(all, "--join", join)
	}
	if secured {
		all = append(all, "--tls-cert", f.path(id+".crt"), "--tls-key", f.path(id+".key"), "--tls-ca", f.path("ca/ca.crt"), "--gossip-key-file", f.path(id+".keys"))
	}
	return f.start(procs.Config{Name: id, Binary: binary, Dir: f.dir, Args: append(all, args...)})
}

// startRelays starts a relay, a gate that forwards to it, and a relay that reaches its
// workers over TLS.
func (f *fleet) startRelays() error {
	return errors.Join(
		f.member("relay", "r1", "", false, "--gossip-addr", gossip, "--ingress-addr", relayIngress, "--ingress-addr", "tls://"+relaySite, "--ingress-tls-cert", f.path(site), "--ingress-tls-key", f.path(site), "--tcp-ingress", relayTCP+"=bytes", "--peer-addr", relayPeer, "--admin-addr", "127.0.0.1:18110"),
		f.member("relay", "g1", gossip, false, "--role", "gate", "--gossip-addr", "127.0.0.1:18101", "--ingress-addr", gateIngress, "--admin-addr", "127.0.0.1:18111"),
		f.member("relay", "s1", "", true, "--gossip-addr", securedGossip, "--ingress-addr", securedIngress, "--peer-addr", securedPeer, "--admin-addr", "127.0.0.1:18210"),
	)
}

func (f *fleet) startWorkers() error {
	var errs []error
	for n := range workers {
		port := func(first int) string { return fmt.Sprintf("127.0.0.1:%d", first+n) }
		errs = append(errs,
			f.member("worker", fmt.Sprintf("w%d", n+1), gossip, false, "--gossip-addr", port(18120), "--admin-addr", port(18130),
				"--service", "echo="+backends(httpPort)[n], "--service", "calls="+backends(callPort)[n]+";protocol=h2c", "--service", "bytes="+backends(sessionPort)[n]+";protocol=tcp"),
			f.member("worker", f.securedWorkers()[n], securedGossip, true, "--gossip-addr", port(18220), "--admin-addr", port(18230),
				"--sidecar-addr", port(18240), "--service", "echo="+backends(httpPort)[n]))
	}
	return errors.Join(errs...)
}

// threeRelays starts three relays of one cluster with six workers, so every relay connects to
// every worker. It uses the ports from first to first+55, and flags returns further flags of
// the relay with an index.
func (f *fleet) threeRelays(name string, first int, flags func(n int) []string) (relays []proxy, _ error) {
	at := func(offset int) string { return fmt.Sprintf("127.0.0.1:%d", first+offset) }
	var errs []error
	for n := range 3 {
		id, join := fmt.Sprintf("%s-r%d", name, n+1), ""
		if n > 0 {
			join = at(0)
		}
		args := []string{"--gossip-addr", at(n), "--ingress-addr", at(10 + n), "--peer-addr", at(20 + n), "--admin-addr", at(30 + n)}
		errs = append(errs, f.member("relay", id, join, false, append(args, flags(n)...)...))
		relays = append(relays, proxy{name: id, addr: at(10 + n), processes: []*procs.Process{f.processes[id]}})
	}
	for n := range workers {
		errs = append(errs, f.member("worker", fmt.Sprintf("%s-w%d", name, n+1), at(0), false, "--gossip-addr", at(40+n), "--admin-addr", at(50+n),
			"--service", "echo="+backends(httpPort)[n]))
	}
	return relays, errors.Join(errs...)
}

// recorded starts two relays without a request log and one with it. The second one shows how
// much two processes differ that do the same.
func (f *fleet) recorded() ([]proxy, error) {
	relays, err := f.threeRelays("log", 18300, func(n int) []string {
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
	const first = 18400
	relays, err := f.threeRelays("tap", first, func(int) []string { return nil })
	all := proxy{name: "3 relays"}
	var ingresses []string
	t := &tap{dir: f.dir}
	for n, r := range relays {
		ingresses = append(ingresses, r.addr)
		all.processes = append(all.processes, r.processes...)
		t.relays = append(t.relays, fmt.Sprintf("127.0.0.1:%d", first+30+n))
	}
	all.addr = strings.Join(ingresses, ",")
	again, watched := all, all
	again.name = "3 relays, again"
	watched.name, watched.tap = "3 relays, relay tap", t
	return []proxy{all, again, watched}, err
}

// startOthers starts HAProxy and nginx.
func (f *fleet) startOthers() error {
	var sidecars []string
	for n := range workers {
		sidecars = append(sidecars, fmt.Sprintf("127.0.0.1:%d", 18240+n))
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
	return proxy{name: "haproxy", addr: addr, processes: []*procs.Process{f.processes["haproxy"]}}
}

func (f *fleet) spliced() proxy {
	return proxy{name: "haproxy, splice", addr: haproxySpliced, processes: []*procs.Process{f.processes["haproxy"]}}
}

func (f *fleet) nginx(addr string) proxy {
	return proxy{name: "nginx", addr: addr, processes: []*procs.Process{f.processes["nginx"]}}
}

func (f *fleet) relay() proxy {
	return proxy{name: "relay", addr: relayIngress, processes: []*procs.Process{f.processes["r1"]}}
}

func (f *fleet) sessions() proxy {
	return proxy{name: "relay", addr: relayTCP, processes: []*procs.Process{f.processes["r1"]}}
}

func (f *fleet) site() proxy {
	return proxy{name: "relay", addr: relaySite, processes: []*procs.Process{f.processes["r1"]}}
}

func (f *fleet) hop() proxy {
	return proxy{name: "gate + relay", addr: gateIngress, processes: []*procs.Process{f.processes["g1"], f.processes["r1"]}}
}

func (f *fleet) secured() proxy {
	return proxy{name: "relay", addr: securedIngress, processes: []*procs.Process{f.processes["s1"]}}
}
