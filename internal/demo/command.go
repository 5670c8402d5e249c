package demo

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/settings"
)

// Command is `relay demo`. It fails when a request failed, or none was sent.
func Command() *cobra.Command {
	s := DefaultSettings()
	set := settings.New("relay demo", "RINGWAY_DEMO")
	s.declare(set)
	cmd := &cobra.Command{
		Use: "demo", Short: "run a whole fleet in one process, with load and a live table", Args: cobra.NoArgs,
		Long: "Starts relays, workers and clients on loopback and shows where the requests go.\n" +
			"Ctrl-C ends it, and nothing is left.",
		Example: "  relay demo\n  relay demo --workers 40 --rate 1000\n  relay demo --for 20s --kill-every 3s -o json",
	}
	set.BindFlags(cmd.Flags())
	_ = cmd.Flags().MarkHidden("config") // fails only for a flag that does not exist
	cmd.SetUsageTemplate(usageTemplate)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := refuseDaemonFlags(cmd); err != nil {
			return err
		}
		if err := set.Load(settings.Sources{}); err != nil {
			return err
		}
		cfg := Config{Settings: s, Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr()}
		if file, ok := cfg.Stdout.(*os.File); ok && s.Output == outputTable && term.IsTerminal(int(file.Fd())) {
			cfg.Terminal = file
			if !cmd.Flags().Changed("kill-every") && s.Workers >= leastSurvive {
				cfg.KillEvery = liveKillEvery
			}
		}
		ctx, stop := daemon.Signals(cmd.Context(), daemon.SignalConfig{Logger: slog.New(slog.DiscardHandler), Exit: os.Exit})
		defer stop()
		return Run(ctx, cfg)
	}
	return cmd
}

// refuseDaemonFlags refuses the flags of the daemon: the fleet of a demo sets
// them itself, and ignoring one in silence would mislead.
func refuseDaemonFlags(cmd *cobra.Command) error {
	var problems settings.Problems
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed {
			return
		}
		problems = append(problems, settings.Problem{Setting: f.Name, Value: f.Value.String(),
			Origin: settings.Origin{Source: settings.Flag, Name: "--" + f.Name},
			Reason: "the demo configures its members itself", Allowed: "the flags of relay demo --help"})
	})
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// usageTemplate leaves out the flags of the daemon, which mean nothing here.
const usageTemplate = `Usage:
  {{.UseLine}}

Examples:
{{.Example}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
`
