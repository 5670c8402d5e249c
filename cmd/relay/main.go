// Command relay accepts requests and carries them to the workers of a service.
//
//	clients ──► ingress ──► relay ──► workers      (affine to the service)
//	                          └─────► other relay  (otherwise)
//
// The rest is in internal/relay; this file turns flags into its configuration.
package main

import (
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/demo"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/settings"
)

func main() {
	s := relay.DefaultSettings()
	set := settings.New("relay", "RINGWAY")
	s.Declare(set)
	d := &command.Daemon{
		Name: "relay", Short: "carries requests to the workers of a service",
		Long: "A relay finds workers and other relays by gossip, connects to its slice of the\n" +
			"workers of each service, and carries every request to the better of two of them.\n" +
			"Without a verb it runs.",
		Settings: set,
		Log:      func() (string, string) { return s.LogLevel, s.LogFormat },
		Banner: func() []slog.Attr {
			return append(s.Banner(), slog.String("ingress", s.IngressAddr), slog.String("peer", s.PeerAddr))
		},
		Start: func(logger *slog.Logger, reg *prometheus.Registry) (command.Runner, error) {
			cfg, err := s.Config(logger, reg)
			if err != nil {
				return nil, err
			}
			return relay.New(cfg)
		},
	}
	root := d.Command()
	root.AddCommand(demo.Command(), command.TLSCommand(), command.KeysCommand(), command.PlanCommand(), command.ExplainCommand())
	os.Exit(command.Run(root))
}
