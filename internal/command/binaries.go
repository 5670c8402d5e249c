package command

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/demo"
	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/worker"
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
		Settings: set, AdminPort: node.RelayAdminPort,
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
	grouped(root, groupInspect, MembersCommand("relay"), ServicesCommand(), PlanCommand(), ExplainCommand(), RouteCommand(), CheckCommand(), MonitorCommand("relay"), DebugCommand("relay"), healthVerb("relay", node.RelayAdminPort))
	grouped(root, groupAct, KeysCommand(), RelayDrainCommand(), RelayUndrainCommand(), RelayReloadCommand())
	grouped(root, groupSetUp, TLSCommand("relay"))
	return root
}

// healthVerb is HealthCommand with an example, and with a default in its help that does not
// depend on the environment.
func healthVerb(process, port string) *cobra.Command {
	c := HealthCommand(process, port)
	c.Example = "  " + process + " health\n  " + process + " health --ready"
	c.Flags().Lookup("admin-addr").DefValue = "127.0.0.1:" + port
	c.Flags().Lookup("admin-tls").DefValue = "false"
	return c
}

// Worker is the command line of the worker binary.
func Worker() *cobra.Command {
	s := worker.DefaultSettings()
	set := settings.New("worker", "RINGWAY")
	s.Declare(set)
	d := &Daemon{
		Name: "worker", Short: "offers the services of this host to the relays",
		Long: "A worker runs next to the instances of one or more services and announces to relays\n" +
			"where they are. With a certificate, relays reach them through it, over mutual TLS;\n" +
			"otherwise traffic does not pass through it. Without a verb it runs.",
		Example:  "  worker run --cluster shop --environment prod --join 10.0.0.1:7400 --service billing=127.0.0.1:9000\n  worker --config worker.yaml",
		Settings: set, AdminPort: node.WorkerAdminPort,
		Log: func() (string, string) { return s.LogLevel, s.LogFormat },
		Banner: func() []slog.Attr {
			return append(s.Banner(), slog.String("services", strings.Join(s.Services, " ")), slog.String("services file", s.ServicesFile))
		},
	}
	d.Check = func() error {
		cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			return err
		}
		return worker.Check(cfg)
	}
	d.Start = func(logger *slog.Logger, reg *prometheus.Registry) (Runner, error) {
		cfg, err := s.Config(logger, reg)
		if err != nil {
			return nil, err
		}
		cfg.Running, cfg.Monitor = d.Running(), d.Monitor()
		cfg.ReadSettings = s.Reader(cfg.Running)
		return worker.New(cfg)
	}
	root := d.Command()
	grouped(root, groupInspect, MembersCommand("worker"), WorkerServicesCommand(), MonitorCommand("worker"), DebugCommand("worker"), healthVerb("worker", node.WorkerAdminPort))
	grouped(root, groupAct, DrainCommand(), UndrainCommand(), ReloadCommand())
	grouped(root, groupSetUp, TLSCommand("worker"))
	return root
}

// versionCommand is `version`: it prints the build of this binary.
func versionCommand(name string) *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "print the version of this binary", Args: cobra.NoArgs,
		Example: fmt.Sprintf("  %[1]s version\n  %[1]s version -o json | jq -r .version", name)}
	var f form
	f.bind(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		build := node.ReadBuild()
		return f.showValue(cmd, build, func(w io.Writer) error {
			if !f.wide() {
				_, err := fmt.Fprintln(w, name, build)
				return err
			}
			_, err := fmt.Fprintf(w, "name      %s\nversion   %s\nrevision  %s\ntime      %s\nmodified  %s\ngo        %s\nplatform  %s\n",
				name, build.Version, build.Revision, build.Time, yesNo(build.Modified), build.Go, build.Platform)
			return err
		})
	}
	return c
}
