package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/settings"
)

// Daemon describes one binary.
type Daemon struct {
	// Name is the binary's name, Short one line about it, Long a few.
	Name, Short, Long string
	// Settings are all that it can be told.
	Settings *settings.Set
	// Log says how to log; it is read after the settings are loaded.
	Log func() (level, format string)
	// Banner are the rows of the start banner, read after the settings are loaded.
	Banner func() []slog.Attr
	// Start builds the daemon from the loaded settings.
	Start func(*slog.Logger, *prometheus.Registry) (Runner, error)
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

// ErrNothingMatched is wrapped by the error of a command that was asked for
// something which is not there. The exit code is 2 then.
var ErrNothingMatched = errors.New("nothing matched")

// Command is the root command. Without a verb it does what run does.
func (d *Daemon) Command() *cobra.Command {
	root := &cobra.Command{
		Use: d.Name, Short: d.Short, Long: d.Long,
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
		RunE:              d.run,
	}
	root.SetFlagErrorFunc(d.explainFlag)
	d.Settings.BindFlags(root.PersistentFlags())
	root.AddCommand(
		&cobra.Command{Use: "run", Short: "run the " + d.Name + " (the default)", Args: cobra.NoArgs, RunE: d.run},
		d.versionCommand(),
		d.configCommand(),
	)
	return root
}

// explainFlag adds what the operator probably meant.
func (d *Daemon) explainFlag(_ *cobra.Command, err error) error {
	return fmt.Errorf("%w\nsee %s --help", err, d.Name)
}

// Load reads the settings of flags, environment and file.
func (d *Daemon) Load() error {
	return d.Settings.Load(settings.Sources{Environ: os.Environ()})
}

func (d *Daemon) run(cmd *cobra.Command, _ []string) error {
	if err := d.Load(); err != nil {
		return err
	}
	level, format := d.Log()
	stderr := cmd.ErrOrStderr()
	logger, err := daemon.NewLogger(stderr, level, format)
	if err != nil {
		return err
	}
	banner := daemon.Banner{Title: d.Name + " " + daemon.Version(), Rows: d.Banner()}
	if err := banner.Show(stderr, logger, format); err != nil {
		return err
	}
	for _, warning := range d.Settings.Warnings() {
		logger.Warn(warning)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())
	runner, err := d.Start(logger, registry)
	if err != nil {
		return err
	}
	signals := daemon.SignalConfig{Logger: logger, Exit: os.Exit}
	if r, ok := runner.(Reloader); ok {
		signals.Reload = r.Reload
	}
	ctx, stop := daemon.Signals(cmd.Context(), signals)
	defer stop()
	if err := runner.Run(ctx); err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	logger.Info("stopped")
	return nil
}

func buildInfo() prometheus.Collector {
	b := daemon.ReadBuild()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ringway_build_info", Help: "1, with the version of the running build in its labels.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "go_version": b.Go},
	})
	g.Set(1)
	return g
}

func (d *Daemon) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "print the version", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), d.Name, daemon.ReadBuild())
		return err
	}}
}

func (d *Daemon) configCommand() *cobra.Command {
	config := &cobra.Command{Use: "config", Short: "look at the settings", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	origin := false
	show := &cobra.Command{Use: "show", Short: "print every setting in effect", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if err := d.Load(); err != nil {
			return err
		}
		return d.show(cmd.OutOrStdout(), origin)
	}}
	show.Flags().BoolVar(&origin, "origin", false, "say where each value comes from")
	config.AddCommand(show, &cobra.Command{Use: "validate", Short: "check the settings and exit", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if err := d.Load(); err != nil {
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "the settings are valid")
		return err
	}})
	return config
}

func (d *Daemon) show(w io.Writer, origin bool) error {
	for _, v := range d.Settings.Values() {
		text := fmt.Sprintf("%s: %s", v.Name, v.Value)
		if origin {
			text += fmt.Sprintf("  # %s", v.Origin)
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

// Run executes root with the process's arguments and returns the exit code.
func Run(root *cobra.Command) int {
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	var problems settings.Problems
	if errors.As(err, &problems) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", root.Name(), problems)
	} else {
		fmt.Fprintf(os.Stderr, "%s: %v\n", root.Name(), err)
	}
	if errors.Is(err, ErrNothingMatched) {
		return 2
	}
	return 1
}
