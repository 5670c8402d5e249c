package command

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/settings"
)

// Daemon describes one binary.
type Daemon struct {
	// Name is the name of the binary, Short a description in one line, Long one in a few
	// lines.
	Name, Short, Long string
	// Example is an example of its use, for the help.
	Example string
	// Settings are all settings of the daemon.
	Settings *settings.Set
	// AdminPort is the default port of the admin API.
	AdminPort string
	// Log returns level and format of the log; it is called after the settings are loaded.
	Log func() (level, format string)
	// Banner returns the rows of the start banner; it is called after the settings are
	// loaded.
	Banner func() []slog.Attr
	// Check builds the daemon from the loaded settings as Start would, and closes the
	// daemon again. It does not listen at the configured addresses. Nil: only the settings
	// are checked.
	Check func() error
	// Start builds the daemon from the loaded settings.
	Start func(*slog.Logger, *prometheus.Registry) (Runner, error)

	// ServicesFile are the keys of a file of services; nil: the daemon reads none.
	ServicesFile *settings.Set

	helpAll bool          // --help-all
	level   slog.LevelVar // of the log; a reload may change the level
	monitor *process.Monitor
}

// Runner is a daemon that is ready to run.
type Runner interface {
	Run(ctx context.Context) error
}

// Reloader is a Runner that can read its settings again while it runs. SIGHUP then calls
// Reload, which logs the result.
type Reloader interface {
	Reload()
}

// Readier is a Runner that reports whether it should get traffic, which the service manager
// is notified of. Reasons lists why it should not; an empty list means ready. Reasons may
// be called from any goroutine, also before Run and after it.
type Readier interface {
	Reasons() []process.Reason
}

// ErrNothingMatched is wrapped by the error of a command whose arguments match nothing. The
// exit code is then 2.
var ErrNothingMatched = errors.New("nothing matched")

// Command is the root command. Without a subcommand it does the same as run.
//
// The settings are flags of the root, of run and of config, except config schema. The other
// commands do not accept them, so that no setting is ignored without an error.
func (d *Daemon) Command() *cobra.Command {
	root := &cobra.Command{
		Use: d.Name, Short: d.Short, Long: d.Long, Example: d.Example,
		SilenceUsage: true, SilenceErrors: true, Args: unknownVerb, SuggestionsMinimumDistance: 2,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
		RunE:              d.run,
	}
	root.Version = process.ReadBuild().String()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.InitDefaultVersionFlag()
	root.SetFlagErrorFunc(d.explainFlag)
	root.SetUsageFunc(d.usage)
	run := &cobra.Command{Use: "run", Short: "run the " + d.Name + " (the default)", Example: d.Example, Args: d.onlyFlags, RunE: d.run}
	config := d.configCommand()
	flags := pflag.NewFlagSet(d.Name, pflag.ContinueOnError)
	d.Settings.BindFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) { f.Annotations = map[string][]string{settingAnnotation: {"true"}} })
	for _, c := range append(config.Commands(), root, run, config) {
		if c.Name() != "schema" { // which depends on no setting
			c.Flags().AddFlagSet(flags)
		}
	}
	for _, c := range []*cobra.Command{root, run} {
		c.Flags().BoolVar(&d.helpAll, helpAll, false, "help with all settings")
	}
	addGroups(root)
	grouped(root, groupRun, run)
	grouped(root, groupSetUp, config, versionCommand(d.Name), manCommand(d.Name))
	return root
}

// unknownVerb returns an error for arguments of the root, which are misspelled commands.
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

// onlyFlags returns an error for arguments of run, which are settings without their dashes.
func (d *Daemon) onlyFlags(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unexpected argument %q for %q, which takes flags only", args[0], c.CommandPath())
	name, _, _ := strings.Cut(args[0], "=")
	if meant := settings.Nearest(name, d.Settings.Names()); meant != "" {
		text += ": did you mean --" + meant + "?"
	}
	return fmt.Errorf("%s\nsee %s --help", text, c.CommandPath())
}

// explainFlag adds the flag that the operator probably meant to the error.
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

// Load reads the settings from flags, environment and file.
func (d *Daemon) Load() error {
	return d.Settings.Load(settings.Sources{Environ: os.Environ()})
}

// Monitor lets operators read the log. Start uses it.
func (d *Daemon) Monitor() *process.Monitor { return d.monitor }

// Running returns the settings in effect. Start uses it: the settings were just loaded.
func (d *Daemon) Running() *process.Running {
	return process.NewRunning(process.RunningConfig{Set: d.Settings, Load: d.Load, Level: &d.level})
}

func (d *Daemon) run(cmd *cobra.Command, _ []string) error {
	if d.helpAll {
		return cmd.Help()
	}
	if err := d.Load(); err != nil {
		return err
	}
	level, format := d.Log()
	registry := prometheus.NewRegistry()
	process.IgnoreBrokenPipes()
	stderr := process.NewOutput(process.OutputConfig{Out: cmd.ErrOrStderr(), Registerer: registry})
	defer stderr.Close()
	least, err := process.ParseLevel(level)
	if err != nil {
		return err
	}
	d.level.Set(least)
	logger, err := process.NewLeveledLogger(stderr, format, &d.level)
	if err != nil {
		return err
	}
	stderr.ReportTo(logger)
	// Some libraries know only the standard logger, which must not wait for a reader either.
	defer log.SetOutput(log.Writer())
	log.SetOutput(stderr)
	d.monitor = process.NewMonitor()
	logger = d.monitor.Tap(logger)
	banner := process.Banner{Title: d.Name + " " + process.Version(), Rows: append(d.Banner(), slog.String("memory", process.LimitMemory(os.DirFS("/"))))}
	if err := banner.Show(stderr, logger, format); err != nil {
		return err
	}
	for _, warning := range d.Settings.Warnings() {
		logger.Warn(warning)
	}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), process.BuildInfo())
	if err := process.NewGossipSink(registry).Install(); err != nil {
		return err
	}
	runner, err := d.Start(logger, registry)
	if err != nil {
		return err
	}
	signals := process.SignalConfig{Logger: logger, Exit: func(code int) {
		stderr.Close()
		os.Exit(code)
	}}
	notifier := process.NewNotifier(logger)
	if r, ok := runner.(Reloader); ok {
		signals.Reload = notifier.Reloading(r.Reload)
	}
	ctx, stop := process.Signals(cmd.Context(), signals)
	defer stop()
	var telling sync.WaitGroup
	if r, ok := runner.(Readier); ok {
		telling.Go(func() { notifier.Run(ctx, r.Reasons) })
	}
	err = runner.Run(ctx)
	stop() // otherwise the notifier would not end after a runner that failed
	telling.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	logger.Info("stopped")
	return nil
}

// takeName gives root the name under which packages install the binary, ringway-relay or
// ringway-worker: help, man pages and completions have it then. Any other name changes
// nothing.
func takeName(root *cobra.Command, program string) {
	short := root.Name()
	if program != "ringway-"+short {
		return
	}
	root.Use = program
	starts := regexp.MustCompile(`(?m)(^ *|&& |\| )` + short + `\b`)
	for c := range Tree(root) {
		c.Example = starts.ReplaceAllString(c.Example, "${1}"+program)
	}
}

// Run executes root with the process's arguments and returns the exit code.
func Run(root *cobra.Command) int {
	takeName(root, filepath.Base(os.Args[0]))
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	stderr := process.NewOutput(process.OutputConfig{Out: os.Stderr}) // a pipe that is not read must not prevent the end
	fmt.Fprint(stderr, failure(root, err))
	stderr.Close()
	if errors.Is(err, ErrNothingMatched) {
		return 2
	}
	return 1
}

// failure is what a command that fails writes.
func failure(root *cobra.Command, err error) string {
	said := err.Error()
	if problems, ok := errors.AsType[settings.Problems](err); ok {
		said = problems.Error()
	}
	return fmt.Sprintf("%s: %s\n", root.Name(), process.PrintableLines(said))
}

// RelayTree is the command line of the relay binary; run are the commands that start
// something else than the daemon. It is no method: with templates, as of the status page, the
// linker keeps the methods of every type, and the worker would have all commands of the relay.
func RelayTree(d *Daemon, run ...*cobra.Command) *cobra.Command {
	root := d.Command()
	grouped(root, groupRun, run...)
	grouped(root, groupInspect, MembersCommand("relay"), ServicesCommand(), TopCommand(), PlanCommand(), ExplainCommand(), RouteCommand(), ExplainRequestCommand(), CheckCommand(), MonitorCommand("relay"), TapCommand(), DebugCommand("relay"), healthVerb("relay", process.RelayAdminPort))
	grouped(root, groupAct, KeysCommand(), RelayDrainCommand(), RelayUndrainCommand(), BlockCommand(), RebalanceCommand(), RelayReloadCommand())
	grouped(root, groupSetUp, TLSCommand("relay"))
	return root
}

// WorkerTree is the command line of the worker binary.
func WorkerTree(d *Daemon) *cobra.Command {
	root := d.Command()
	grouped(root, groupInspect, MembersCommand("worker"), WorkerServicesCommand(), MonitorCommand("worker"), DebugCommand("worker"), healthVerb("worker", process.WorkerAdminPort))
	grouped(root, groupAct, DrainCommand(), UndrainCommand(), ReloadCommand())
	grouped(root, groupSetUp, TLSCommand("worker"))
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
		build := process.ReadBuild()
		return f.showValue(cmd.OutOrStdout(), build, func(p *page) {
			if !p.wide {
				p.line("%s %s", name, build)
				return
			}
			p.row("name", "%s", name)
			p.row("version", "%s", build.Version)
			p.row("revision", "%s", build.Revision)
			p.row("time", "%s", build.Time)
			p.row("modified", "%s", yesNo(build.Modified))
			p.row("go", "%s", build.Go)
			p.row("platform", "%s", build.Platform)
		})
	}
	return c
}
