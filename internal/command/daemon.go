package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/gossipmetrics"
	"github.com/ringway/ringway/internal/settings"
)

// Daemon describes one binary.
type Daemon struct {
	// Name is the binary's name, Short one line about it, Long a few.
	Name, Short, Long string
	// Example shows how it is called.
	Example string
	// Settings are all that it can be told.
	Settings *settings.Set
	// AdminPort is the port of its admin API unless it is told another.
	AdminPort string
	// Log says how to log; it is read after the settings are loaded.
	Log func() (level, format string)
	// Banner are the rows of the start banner, read after the settings are loaded.
	Banner func() []slog.Attr
	// Check builds the daemon from the loaded settings as Start would, and takes it
	// down again: nothing of it listens where it would. Nil: the settings are all.
	Check func() error
	// Start builds the daemon from the loaded settings.
	Start func(*slog.Logger, *prometheus.Registry) (Runner, error)

	level   slog.LevelVar // of the log; a reload may change it
	monitor *daemon.Monitor
}

// Runner is a daemon that is ready to run.
type Runner interface {
	Run(ctx context.Context) error
}

// Reloader is a Runner that can read its settings again while it runs, which is
// what SIGHUP then asks for. Reload logs what came of it.
type Reloader interface {
	Reload()
}

// Readier is a Runner that knows whether it should get traffic, which a service
// manager is then told. Reasons lists why it should not; none means ready. It may be
// called from any goroutine, also before Run and after it.
type Readier interface {
	Reasons() []string
}

// ErrNothingMatched is wrapped by the error of a command that was asked for
// something which is not there. The exit code is 2 then.
var ErrNothingMatched = errors.New("nothing matched")

// Command is the root command. Without a verb it does what run does.
//
// The settings are flags of the root, of run and of config; the other verbs do not
// take them, so that none is ignored in silence.
func (d *Daemon) Command() *cobra.Command {
	root := &cobra.Command{
		Use: d.Name, Short: d.Short, Long: d.Long, Example: d.Example,
		SilenceUsage: true, SilenceErrors: true, Args: unknownVerb, SuggestionsMinimumDistance: 2,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
		RunE:              d.run,
	}
	root.SetFlagErrorFunc(d.explainFlag)
	root.SetUsageFunc(d.usage)
	run := &cobra.Command{Use: "run", Short: "run the " + d.Name + " (the default)", Example: d.Example, Args: cobra.NoArgs, RunE: d.run}
	config := d.configCommand()
	flags := pflag.NewFlagSet(d.Name, pflag.ContinueOnError)
	d.Settings.BindFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) { f.Annotations = map[string][]string{settingAnnotation: {"true"}} })
	for _, fs := range []*pflag.FlagSet{root.Flags(), run.Flags(), config.PersistentFlags()} {
		fs.AddFlagSet(flags)
	}
	addGroups(root)
	grouped(root, groupRun, run)
	grouped(root, groupSetUp, config, versionCommand(d.Name), manCommand(d.Name))
	return root
}

// unknownVerb refuses arguments of the root: they are mistyped verbs.
func unknownVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	if meant := c.SuggestionsFor(args[0]); len(meant) > 0 {
		text += ": did you mean " + strings.Join(meant, " or ") + "?"
	}
	return fmt.Errorf("%s\nsee %s --help", text, c.CommandPath())
}

// explainFlag adds what the operator probably meant.
func (d *Daemon) explainFlag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		name := unknown.GetSpecifiedName()
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		if _, ours := d.Settings.Origin(name); ours {
			err = fmt.Errorf("--%s: this command does not know it: it is a setting of %s run", name, d.Name)
		} else if meant := settings.Nearest(name, known); meant != "" {
			err = fmt.Errorf("%w: did you mean --%s?", err, meant)
		}
	}
	return fmt.Errorf("%w\nsee %s --help", err, c.CommandPath())
}

// Load reads the settings of flags, environment and file.
func (d *Daemon) Load() error {
	return d.Settings.Load(settings.Sources{Environ: os.Environ()})
}

// Monitor lets operators read the log, for Start.
func (d *Daemon) Monitor() *daemon.Monitor { return d.monitor }

// Running are the settings in effect, for Start: the settings were just loaded.
func (d *Daemon) Running() *daemon.Running {
	return daemon.NewRunning(daemon.RunningConfig{Set: d.Settings, Load: d.Load, Level: &d.level})
}

func (d *Daemon) run(cmd *cobra.Command, _ []string) error {
	if err := d.Load(); err != nil {
		return err
	}
	level, format := d.Log()
	stderr := cmd.ErrOrStderr()
	least, err := daemon.ParseLevel(level)
	if err != nil {
		return err
	}
	d.level.Set(least)
	logger, err := daemon.NewLeveledLogger(stderr, format, &d.level)
	if err != nil {
		return err
	}
	d.monitor = daemon.NewMonitor()
	logger = d.monitor.Tap(logger)
	banner := daemon.Banner{Title: d.Name + " " + daemon.Version(), Rows: d.Banner()}
	if err := banner.Show(stderr, logger, format); err != nil {
		return err
	}
	for _, warning := range d.Settings.Warnings() {
		logger.Warn(warning)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), daemon.BuildInfo())
	if err := gossipmetrics.New(registry).Install(); err != nil {
		return err
	}
	runner, err := d.Start(logger, registry)
	if err != nil {
		return err
	}
	signals := daemon.SignalConfig{Logger: logger, Exit: os.Exit}
	notifier := daemon.NewNotifier(logger)
	if r, ok := runner.(Reloader); ok {
		signals.Reload = notifier.Reloading(r.Reload)
	}
	ctx, stop := daemon.Signals(cmd.Context(), signals)
	defer stop()
	var telling sync.WaitGroup
	if r, ok := runner.(Readier); ok {
		telling.Go(func() { notifier.Run(ctx, r.Reasons) })
	}
	err = runner.Run(ctx)
	stop() // or the notifier would not end with a runner that failed
	telling.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	logger.Info("stopped")
	return nil
}

// Run executes root with the process's arguments and returns the exit code.
func Run(root *cobra.Command) int {
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	said := err.Error()
	if problems, ok := errors.AsType[settings.Problems](err); ok {
		said = problems.Error()
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", root.Name(), daemon.PrintableLines(said))
	if errors.Is(err, ErrNothingMatched) {
		return 2
	}
	return 1
}
