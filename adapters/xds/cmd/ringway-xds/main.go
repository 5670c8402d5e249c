// Command ringway-xds serves the plan of a cluster to Envoys.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/ringway/ringway/adapters/xds"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1:], logger); err != nil {
		logger.Error("the control plane ended", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, logger *slog.Logger) error {
	member, cfg, files := membership.Config{Role: identity.RoleObserver, Logger: logger}, xds.Config{}, identity.Files{}
	set := flag.NewFlagSet("ringway-xds", flag.ContinueOnError)
	set.StringVar(&member.Cluster, "cluster", "", "cluster to join")
	set.StringVar(&member.Environment, "environment", "", "environment to join")
	set.StringVar(&member.ID, "id", "xds", "stable id of this process")
	set.StringVar(&member.BindAddr, "gossip-addr", "127.0.0.1:7400", "IP:port of gossip, TCP and UDP")
	set.StringVar(&member.AdvertiseAddr, "advertise-addr", "", "IP:port of gossip that others use, if it differs")
	set.StringVar(&cfg.Addr, "addr", "127.0.0.1:18000", "IP:port of gRPC for Envoys")
	set.BoolVar(&cfg.Insecure, "insecure", false, "allow other hosts to connect without certificates")
	set.StringVar(&files.Certificate, "tls-cert", "", "certificate of an observer, PEM")
	set.StringVar(&files.Key, "tls-key", "", "its key, PEM")
	set.StringVar(&files.Authorities, "tls-ca", "", "authorities, PEM")
	keys := set.String("gossip-keys", "", "file of gossip keys")
	seeds := set.String("join", "", "addresses of members, separated by commas")
	clients := set.String("clients", "", "fixed list of node ids, separated by commas; default: those with a stream")
	if err := set.Parse(args); err != nil {
		return err
	}
	member.Seeds = list(*seeds)
	for _, id := range list(*clients) {
		cfg.Clients = append(cfg.Clients, affinity.Relay{ID: id})
	}
	var err error
	if files.Certificate != "" {
		if member.Identity, err = identity.NewSource(files, identity.SourceConfig{Logger: logger}); err != nil {
			return err
		}
	}
	if *keys != "" {
		if member.Keyring, err = membership.OpenKeyring(*keys); err != nil {
			return err
		}
	}
	if cfg.Node, err = membership.New(member); err != nil {
		return err
	}
	plane, err := xds.New(cfg)
	if err != nil {
		_ = cfg.Node.Close()
		return err
	}
	return plane.Run(ctx)
}

func list(text string) (out []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
