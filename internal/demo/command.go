package demo

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/settings"
)

// Command is `relay demo`. It returns an error if a request failed or none was sent.
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
	_ = cmd.Flags().MarkHidden("config") // fails only if the flag does not exist
	cmd.SetUsageTemplate(usageTemplate)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := refuseDaemonFlags(cmd); err != nil {
			return err
		}
		if err := set.Load(settings.Sources{}); err != nil {
			return err
		}
		process.IgnoreBrokenPipes()
		stdout, stderr := process.NewOutput(process.OutputConfig{Out: cmd.OutOrStdout()}), process.NewOutput(process.OutputConfig{Out: cmd.ErrOrStderr()})
		defer stdout.Close()
		defer stderr.Close()
		cfg := Config{Settings: s, Stdout: stdout, Stderr: stderr}
		if file, ok := cmd.OutOrStdout().(*os.File); ok && s.Output == outputTable && term.IsTerminal(int(file.Fd())) {
			cfg.Terminal = file
			if !cmd.Flags().Changed("kill-every") && s.Workers >= leastSurvive {
				cfg.KillEvery = liveKillEvery
			}
		}
		ctx, stop := process.Signals(cmd.Context(), process.SignalConfig{Logger: slog.New(slog.DiscardHandler), Exit: os.Exit})
		defer stop()
		return Run(ctx, cfg)
	}
	return cmd
}

// refuseDaemonFlags refuses the flags of the daemon: the demo sets them for its fleet, and
// a flag that is ignored without an error would mislead.
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

// usageTemplate omits the flags of the daemon, which have no effect on a demo.
const usageTemplate = `Usage:
  {{.UseLine}}

Examples:
{{.Example}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
`

// The forms of the output.
const (
	outputTable = "table"
	outputJSON  = "json"
)

// Settings are the settings of a demo.
type Settings struct {
	// Relays and Workers are their numbers.
	Relays, Workers int
	// Rate is the requests per second that the clients send.
	Rate float64
	// KillEvery is the interval at which a worker is killed and replaced; 0 disables this.
	KillEvery time.Duration
	// Seed determines service times, arrivals and the killed workers.
	Seed int
	// For is how long requests are sent; 0 is until the context ends.
	For time.Duration
	// Output is table or json.
	Output string
}

// DefaultSettings returns the settings of `relay demo` outside a terminal.
func DefaultSettings() Settings {
	return Settings{Relays: 6, Workers: 24, Rate: 300, Seed: 1, Output: outputTable}
}

// liveKillEvery is the default of KillEvery on a terminal, where kills show how the fleet
// reacts.
const liveKillEvery = 5 * time.Second

// The limits of a fleet in one process, on one machine, on loopback.
const (
	mostRelays   = 32
	mostWorkers  = 200
	mostRate     = 20_000
	leastKill    = time.Second // a replacement needs about that long to become visible
	leastSurvive = 2
)

// declare adds every setting to set.
func (s *Settings) declare(set *settings.Set) {
	const fleet, load, end = "Fleet", "Load", "Output"
	settings.Int(set, &s.Relays, settings.Spec{Name: "relays", Group: fleet, Usage: "relays to start"}, settings.Between(1, mostRelays))
	settings.Int(set, &s.Workers, settings.Spec{Name: "workers", Group: fleet, Usage: "workers to start"}, settings.Between(1, mostWorkers))
	settings.Float(set, &s.Rate, settings.Spec{Name: "rate", Group: load, Usage: "requests per second"},
		settings.Rule[float64]{Allowed: fmt.Sprintf("more than 0, at most %d", mostRate), Holds: func(r float64) bool { return r > 0 && r <= mostRate }})
	settings.Duration(set, &s.KillEvery, settings.Spec{Name: "kill-every", Group: load, DefaultText: "5s for the live table, otherwise 0",
		Usage: "time between the sudden deaths of a worker, each replaced a moment later; 0 for none"},
		settings.Rule[time.Duration]{Allowed: leastKill.String() + " or more, or 0", Holds: func(d time.Duration) bool { return d == 0 || d >= leastKill }})
	settings.Int(set, &s.Seed, settings.Spec{Name: "seed", Group: load, Usage: "what service times, arrivals and deaths are drawn from"})
	settings.Duration(set, &s.For, settings.Spec{Name: "for", Group: end, DefaultText: "until Ctrl-C",
		Usage: "time to send requests for"}, settings.AtLeast(time.Duration(0)))
	settings.Enum(set, &s.Output, settings.Spec{Name: "output", Letter: "o", Group: end, Usage: "form of the output; json is the final report alone"}, outputTable, outputJSON)
	set.Check(func() []settings.Problem {
		if s.KillEvery > 0 && s.Workers < leastSurvive {
			return []settings.Problem{{Setting: "kill-every", Related: []string{"workers"},
				Reason: "the only worker would die, and requests with it", Allowed: "0, or --workers 2 or more"}}
		}
		return nil
	})
}
