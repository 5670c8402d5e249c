// Command ringway-xds serves the plan of a cluster to Envoys.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/adapters/xds"
	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	registry := prometheus.NewRegistry()
	process.IgnoreBrokenPipes()
	stderr := process.NewOutput(process.OutputConfig{Out: os.Stderr, Registerer: registry})
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	stderr.ReportTo(logger)
	err := run(ctx, logger, registry)
	if err != nil {
		logger.Error("the control plane ended", "err", err)
	}
	stderr.Close()
	if err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, logger *slog.Logger, registry *prometheus.Registry) error {
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), process.BuildInfo())
	if err := process.NewGossipSink(registry).Install(); err != nil {
		return err
	}
	member, cfg, files := membership.Config{Role: identity.RoleObserver, Logger: logger, Registerer: registry}, xds.Config{}, identity.Files{}
	access := process.AdminConfig{}
	set := flag.NewFlagSet("ringway-xds", flag.ContinueOnError)
	set.StringVar(&member.Cluster, "cluster", "", "cluster to join")
	set.StringVar(&member.Environment, "environment", "", "environment to join")
	set.StringVar(&member.ID, "id", "xds", "stable id of this process")
	set.StringVar(&member.BindAddr, "gossip-addr", "127.0.0.1:7400", "IP:port of gossip, TCP and UDP")
	set.StringVar(&member.AdvertiseAddr, "advertise-addr", "", "IP:port of gossip that others use, if it differs")
	set.StringVar(&cfg.Addr, "addr", "127.0.0.1:18000", "IP:port of gRPC for Envoys")
	adminAddr := set.String("admin-addr", "127.0.0.1:7433", "IP:port or unix:PATH of the admin API: /metrics, /healthz, /readyz, /api/v1/members")
	set.StringVar(&access.TokenFile, "admin-token-file", "", "file of tokens, one of which the admin API then requires")
	set.BoolVar(&cfg.Insecure, "insecure", false, "allow other hosts to connect without certificates, and to use the admin API without a token")
	set.StringVar(&files.Certificate, "tls-cert", "", "certificate of an observer, PEM")
	set.StringVar(&files.Key, "tls-key", "", "its key, PEM")
	set.StringVar(&files.Authorities, "tls-ca", "", "authorities, PEM")
	set.StringVar(&files.Denied, "tls-deny-file", "", "certificates that no longer count, one a line: serial HEX or node ID; the same on all members")
	allowed := set.String("endpoint-allowed-cidr", "", "with certificates: networks in which workers may offer services besides their own host, separated by commas; the same on all members")
	set.IntVar(&cfg.MaxServicesPerRecord, "max-services-per-record", advertise.DefaultMaxServicesPerRecord, "services that one worker may offer, 1 to 1024; none of a worker that offers more is sent; the same on all members")
	set.BoolVar(&cfg.RequireServiceNames, "require-service-names", false, "send no worker whose certificate names no services; the same as on all relays")
	template := set.String("identity-template", "", "where SPIFFE IDs of members have their names, such as spiffe://shop.test/{environment}/{cluster}/{role}/{node}")
	keys := set.String("gossip-keys", "", "file of gossip keys")
	seeds := set.String("join", "", "addresses of members, separated by commas")
	clients := set.String("clients", "", "fixed list of node ids with their places, as ID[@ZONE[/REGION]], separated by commas; default: those with a stream, where their localities are")
	if err := set.Parse(os.Args[1:]); err != nil {
		return err
	}
	member.Seeds = list(*seeds)
	cfg.Clients = fixed(*clients)
	var err error
	if cfg.AllowedAddrs, err = networks(*allowed); err != nil {
		return err
	}
	if files.Certificate != "" {
		if member.Identity, err = identity.NewSource(files, identity.SourceConfig{Logger: logger, Registerer: registry, Template: *template}); err != nil {
			return err
		}
	} else if files.Denied != "" {
		return fmt.Errorf("-tls-deny-file %q: without certificates there are none to deny: give -tls-cert, -tls-key and -tls-ca, too, or leave it out", files.Denied)
	} else if *template != "" {
		return fmt.Errorf("-identity-template %q: without certificates there are no names to read: give -tls-cert, -tls-key and -tls-ca, too, or leave it out", *template)
	}
	if *keys != "" {
		if member.Keyring, err = membership.OpenKeyring(*keys); err != nil {
			return err
		}
	}
	socket, err := listen(*adminAddr, cfg.Insecure || access.TokenFile != "")
	if err != nil {
		return err
	}
	defer socket.Close()
	if cfg.Node, err = membership.New(member); err != nil {
		return err
	}
	admin := &http.Server{ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	reasons := func() []process.Reason {
		if status := cfg.Node.Status(); !status.Joined {
			return []process.Reason{process.WaitsToJoin(status.Err)}
		}
		return nil
	}
	process.RegisterReady(registry, reasons)
	mux := process.NewMux(process.Config{Snapshot: cfg.Node.Snapshot, Unproven: cfg.Node.Unproven, Reasons: reasons, Gatherer: registry})
	if err := access.Serve(admin, mux, process.AccessConfig{Logger: logger, Registerer: registry}); err != nil {
		return errors.Join(err, cfg.Node.Close())
	}
	plane, err := xds.New(cfg)
	if err != nil {
		return errors.Join(err, cfg.Node.Close())
	}
	logger.Info("serving Envoys", "addr", plane.Addr(), "admin", socket.Addr(), "gossip", cfg.Node.Addr())
	group, failed := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := admin.Serve(handshake.Lasting(socket, logger)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve admin: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		return errors.Join(plane.Run(failed), admin.Close()) // probes and scrapes are answered until the end
	})
	return group.Wait()
}

// listen binds the address of the admin API, which other hosts must not reach unprotected.
func listen(addr string, protected bool) (net.Listener, error) {
	a, err := process.ListenAddr(addr)
	if unix := strings.HasPrefix(addr, settings.SocketPrefix); !unix && !protected && (err != nil || !a.Addr().IsLoopback()) {
		return nil, fmt.Errorf("-admin-addr %q: want a loopback address or unix:PATH, or give -admin-token-file or -insecure: other hosts can reach any other address", addr)
	}
	socket, err := process.Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("-admin-addr %s: %w", addr, err)
	}
	return socket, nil
}

func list(text string) (out []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func networks(text string) (all []netip.Prefix, err error) {
	for _, one := range list(text) {
		network, err := netip.ParsePrefix(one)
		if err != nil {
			return nil, fmt.Errorf("-endpoint-allowed-cidr %q: not a network: give networks such as 10.0.0.0/8, separated by commas", one)
		}
		all = append(all, network.Masked())
	}
	return all, nil
}

// fixed returns the clients of a list, each with its place: ID[@ZONE[/REGION]].
func fixed(clients string) (all []affinity.Relay) {
	for _, one := range list(clients) {
		id, place, _ := strings.Cut(one, "@")
		zone, region, _ := strings.Cut(place, "/")
		all = append(all, affinity.Relay{ID: id, Place: affinity.Place{Datacenter: zone, Region: region}})
	}
	return all
}
