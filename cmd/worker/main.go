// Command worker runs beside a service instance and offers it to the relays.
// The rest is in internal/worker; this file turns flags into its configuration.
package main

import (
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/worker"
)

func main() {
	s := worker.DefaultSettings()
	set := settings.New("worker", "RINGWAY")
	s.Declare(set)
	d := &command.Daemon{
		Name: "worker", Short: "offers the services of this host to the relays",
		Long: "A worker runs beside the instances of one or more services and tells the relays\n" +
			"where they are. With a certificate, relays reach them through it, over mutual TLS;\n" +
			"otherwise traffic does not pass through it. Without a verb it runs.",
		Settings: set,
		Log:      func() (string, string) { return s.LogLevel, s.LogFormat },
		Banner: func() []slog.Attr {
			return append(s.Banner(), slog.String("services", strings.Join(s.Services, " ")), slog.String("services file", s.ServicesFile))
		},
	}
	d.Start = func(logger *slog.Logger, reg *prometheus.Registry) (command.Runner, error) {
		cfg, err := s.Config(logger, reg)
		if err != nil {
			return nil, err
		}
		cfg.ReadSettings = s.Reader(set, d.Load)
		return worker.New(cfg)
	}
	root := d.Command()
	root.AddCommand(command.DrainCommand(), command.UndrainCommand(), command.ReloadCommand())
	os.Exit(command.Run(root))
}
