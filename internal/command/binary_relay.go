package command

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/demo"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/settings"
)

// Relay is the command line of the relay binary.
func Relay() *cobra.Command {
	s := relay.DefaultSettings()
	set := settings.New("relay", "RINGWAY")
	s.Declare(set)
	d := &Daemon{
		Name: "relay", Short: "carries requests to the workers of a service",
		Long: "A relay finds workers and other relays by gossip, connects to its slice of the\n" +
			"workers of each service, and carries every request to the better of two of them.\n" +
			"Without a verb it runs.",
		Example:  "  relay run --cluster shop --environment prod --join 10.0.0.1:7400\n  relay --config relay.yaml",
		Settings: set, AdminPort: daemon.RelayAdminPort,
		Log: func() (string, string) { return s.LogLevel, s.LogFormat },
		Banner: func() []slog.Attr {
			return append(s.Banner(), slog.String("ingress", s.IngressAddr), slog.String("peer", s.PeerAddr))
		},
	}
	d.Check = func() error {
		cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			return err
		}
		return relay.Check(cfg)
	}
	d.Start = func(logger *slog.Logger, reg *prometheus.Registry) (Runner, error) {
		cfg, err := s.Config(logger, reg)
		if err != nil {
			return nil, err
		}
		cfg.Running, cfg.Monitor = d.Running(), d.Monitor()
		return relay.New(cfg)
	}
	root := d.Command()
	grouped(root, groupRun, demo.Command())
	grouped(root, groupLook, MembersCommand("relay"), ServicesCommand(), PlanCommand(), ExplainCommand(), RouteCommand(), CheckCommand(), MonitorCommand("relay"), DebugCommand("relay"), healthVerb("relay", daemon.RelayAdminPort))
	grouped(root, groupAct, KeysCommand(), RelayDrainCommand(), RelayUndrainCommand(), RelayReloadCommand())
	grouped(root, groupSetUp, TLSCommand("relay"))
	return root
}

// healthVerb is HealthCommand with an example, and with a default in its help that does
// not depend on the environment.
func healthVerb(process, port string) *cobra.Command {
	c := HealthCommand(process, port)
	c.Example = "  " + process + " health\n  " + process + " health --ready"
	c.Flags().Lookup("admin-addr").DefValue = "127.0.0.1:" + port
	c.Flags().Lookup("admin-tls").DefValue = "false"
	return c
}
