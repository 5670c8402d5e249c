// Package relaycmd is the command line of the relay binary: the commands of package command,
// and the relay and the demo that they start.
package relaycmd

import (
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/demo"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/relay/activation"
	"github.com/ringway/ringway/internal/settings"
)

// Command is the command line of the relay binary.
func Command() *cobra.Command {
	s := relay.DefaultSettings()
	set := settings.New("relay", "RINGWAY")
	s.Declare(set)
	d := &command.Daemon{
		Name: "relay", Short: "carries requests to the workers of a service",
		Long: "A relay finds workers and other relays by gossip, connects to its slice of the\n" +
			"workers of each service, and carries every request to the better of two of them.\n" +
			"Without a verb it runs.",
		Example:  "  relay run --cluster shop --environment prod --join 10.0.0.1:7400\n  relay --config relay.yaml",
		Settings: set, AdminPort: process.RelayAdminPort,
		Log: func() (string, string) { return s.LogLevel, s.LogFormat },
		Banner: func() []slog.Attr {
			return append(s.Banner(), slog.String("ingress", strings.Join(s.IngressAddrs, " ")), slog.String("peer", s.PeerAddr))
		},
	}
	d.Check = func() error {
		cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			return err
		}
		return relay.Check(cfg)
	}
	d.Start = func(logger *slog.Logger, reg *prometheus.Registry) (command.Runner, error) {
		cfg, err := s.Config(logger, reg)
		if err != nil {
			return nil, err
		}
		if cfg.Passed, err = activation.Sockets(); err != nil {
			return nil, err
		}
		cfg.Running, cfg.Monitor = d.Running(), d.Monitor()
		return relay.New(cfg)
	}
	return command.RelayTree(d, demo.Command())
}
