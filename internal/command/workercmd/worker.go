// Package workercmd is the command line of the worker binary: the commands of package
// command, and the worker that they start. It links no relay, so that the agent next to a
// service stays small.
package workercmd

import (
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/worker"
)

// Command is the command line of the worker binary.
func Command() *cobra.Command {
	s := worker.DefaultSettings()
	set := settings.New("worker", "RINGWAY")
	s.Declare(set)
	d := &command.Daemon{
		Name: "worker", Short: "offers the services of this host to the relays",
		Long: "A worker runs next to the instances of one or more services and announces to relays\n" +
			"where they are. With a certificate, relays reach them through it, over mutual TLS;\n" +
			"otherwise traffic does not pass through it. Without a verb it runs.",
		Example:  "  worker run --cluster shop --environment prod --join 10.0.0.1:7400 --service billing=127.0.0.1:9000\n  worker --config worker.yaml",
		Settings: set, AdminPort: process.WorkerAdminPort, ServicesFile: worker.ServicesFile(),
		Log: func() (string, string) { return s.LogLevel, s.LogFormat },
		Banner: func() []slog.Attr {
			var services []string
			for _, text := range s.Services {
				services = append(services, worker.RedactService(text))
			}
			return append(s.Banner(), slog.String("services", strings.Join(services, " ")), slog.String("services file", s.ServicesFile))
		},
	}
	d.Check = func() error {
		cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			return err
		}
		return worker.Check(cfg)
	}
	d.Start = func(logger *slog.Logger, reg *prometheus.Registry) (command.Runner, error) {
		cfg, err := s.Config(logger, reg)
		if err != nil {
			return nil, err
		}
		cfg.Running, cfg.Monitor = d.Running(), d.Monitor()
		cfg.ReadSettings = s.Reader(cfg.Running)
		return worker.New(cfg)
	}
	return command.WorkerTree(d)
}
