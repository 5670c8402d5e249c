package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/ringway/ringway/internal/e2e/unasked"
	"github.com/ringway/ringway/internal/procs"
)

// foreignRounds is how many connections of each service are poisoned: about a thousand of each
// kind of answer, with services for each pause, with and without TCP_NODELAY.
const foreignRounds = 84

const foreignHAProxy = `global
    maxconn 4000
defaults
    mode http
    timeout connect 1s
    timeout client 60s
    timeout server 60s
    http-reuse always
    no log
frontend in
    bind {{.Addr}}
    use_backend %[req.hdr(ringway-service)]
{{- range $name, $s := .Services}}
backend {{$name}}
    server s {{$s.Addr}}
{{- end}}
`

const foreignNginx = `user root;
worker_processes 2;
daemon off;
pid {{.Dir}}/nginx.pid;
error_log {{.Dir}}/nginx.log crit;
events { worker_connections 4000; }
http {
    access_log off;
    client_body_temp_path {{.Dir}};
    proxy_temp_path {{.Dir}};
    fastcgi_temp_path {{.Dir}};
    uwsgi_temp_path {{.Dir}};
    scgi_temp_path {{.Dir}};
{{- range $name, $s := .Services}}
    upstream {{$name}} { server {{$s.Addr}}; keepalive 64; }
{{- end}}
    server {
        listen {{.Addr}};
        location / {
            proxy_pass http://$http_ringway_service;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }
    }
}
`

// poisoned is a proxy with services of its own, so that each of them has a first time.
type poisoned struct {
	name, addr string
	services   map[string]*unasked.Service
}

// newPoisoned starts the services for a proxy, one for each kind of answer, each pause, with and
// without TCP_NODELAY.
func newPoisoned(prefix, name string) (*poisoned, error) {
	p := &poisoned{name: name, services: map[string]*unasked.Service{}}
	for _, kind := range unasked.Kinds() {
		for _, pause := range unasked.Pauses() {
			for _, nagle := range []bool{false, true} {
				s := &unasked.Service{Kind: kind, Pause: pause, Nagle: nagle}
				if err := s.Start("127.0.0.1:0"); err != nil {
					return nil, err
				}
				p.services[prefix+strconv.Itoa(len(p.services))] = s
			}
		}
	}
	return p, nil
}

// compareForeign prints how many clients of each proxy have read an answer that is not theirs.
// It fails if a client of a relay did so behind an answer that has no body.
func compareForeign(ctx context.Context) error {
	f, err := newFleet()
	if f != nil {
		defer f.stop()
	}
	if err != nil {
		return err
	}
	all, err := f.startPoisoned()
	if err != nil {
		return err
	}
	for _, p := range all {
		if err := p.await(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("answers to others, of %d poisoned connections of each kind (bytes come after %v, with and without TCP_NODELAY); clients send their next request immediately\n",
		foreignRounds*2*len(unasked.Pauses()), unasked.Pauses())
	tw := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "proxy\t")
	for _, kind := range unasked.Kinds() {
		fmt.Fprint(tw, kind.Name, "\t")
	}
	fmt.Fprint(tw, "most of one service\tfailed\tnot counted\t\n")
	wrong := 0
	for i, p := range all {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		counts, most := p.count()
		fmt.Fprint(tw, p.name, "\t")
		var total unasked.Count
		for _, kind := range unasked.Kinds() {
			n := counts[kind.Name]
			total.Add(n)
			fmt.Fprint(tw, n.Foreign, "\t")
			if i >= 2 && kind.Bodyless {
				wrong += n.Foreign
			}
		}
		fmt.Fprintf(tw, "%d\t%d\t%d\t\n", most, total.Failed, total.Held)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d clients of relays have read what came behind an answer without a body", wrong)
	}
	return nil
}

// await waits until the proxy reaches all of its services.
func (p *poisoned) await(ctx context.Context) (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		for name := range p.services {
			if err = (unasked.Client{Addr: p.addr, Name: name}).Ready(); err != nil {
				break
			}
		}
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s does not reach all services: %w", p.name, errors.Join(err, ctx.Err()))
}

// count sends requests to all services of a proxy, to some at a time. It also returns the most
// foreign answers of one service.
func (p *poisoned) count() (counts map[string]unasked.Count, most int) {
	counts = map[string]unasked.Count{}
	var mu sync.Mutex // guards counts and most
	var running sync.WaitGroup
	places := make(chan struct{}, 12)
	for name, s := range p.services {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			n := s.Try(unasked.Client{Addr: p.addr, Name: name, Hurried: true}, foreignRounds)
			mu.Lock()
			defer mu.Unlock()
			sum := counts[s.Kind.Name]
			sum.Add(n)
			counts[s.Kind.Name], most = sum, max(most, n.Foreign)
		})
	}
	running.Wait()
	return counts, most
}

// startPoisoned starts HAProxy, nginx, and a relay and a gate in each cluster.
func (f *fleet) startPoisoned() (all []*poisoned, err error) {
	for i, name := range []string{"haproxy", "nginx", "direct", "hop", "sidecar", "hop and sidecar"} {
		p, err := newPoisoned(fmt.Sprintf("late%d-", i), name)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	for i, config := range []string{foreignHAProxy, foreignNginx} {
		if all[i].addr, err = procs.Free("127.0.0.1"); err != nil {
			return nil, err
		}
		if err := f.write(all[i].name, config, map[string]any{"Dir": f.dir, "Addr": all[i].addr, "Services": all[i].services}); err != nil {
			return nil, err
		}
	}
	err = errors.Join(
		f.start(procs.Config{Name: "haproxy", Binary: "/usr/bin/env", Args: []string{"haproxy", "-db", "-f", f.path("haproxy")}}),
		f.start(procs.Config{Name: "nginx", Binary: "/usr/bin/env", Args: []string{"nginx", "-c", f.path("nginx")}}),
	)
	// Before the member that has this role, which would get the certificate of a relay.
	err = errors.Join(err, f.mtls.Security.Issue(procs.Claims{Role: "gate", Node: "g1"}))
	for i, c := range []*procs.Fleet{f.clear, f.mtls} {
		direct, hop := all[2+2*i], all[3+2*i]
		r, g := c.Relay("s1"), c.Relay("g1")
		direct.addr, hop.addr = r.Ingress, g.Ingress
		err = errors.Join(err, c.Start(r, procs.Config{}), c.Start(g, procs.Config{Args: []string{"--role", "gate"}}))
		for n, p := range []*poisoned{direct, hop} {
			var args []string
			for name, s := range p.services {
				args = append(args, "--service", name+"="+s.Addr())
			}
			err = errors.Join(err, c.Start(c.Worker(fmt.Sprintf("w%d", n+1)), procs.Config{Args: args}))
		}
	}
	return all, err
}
