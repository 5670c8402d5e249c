package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/screen"
)

const (
	watchEvery = 2 * time.Second
	// leastInterval keeps a watch from overloading the process.
	leastInterval = 50 * time.Millisecond
)

// watch has the flags of a command that can repeat its output.
type watch struct {
	on       bool
	interval time.Duration
	bound    bool
}

// watchable adds --watch.
func (w *watch) watchable(flags *pflag.FlagSet) {
	w.bound = true
	flags.BoolVarP(&w.on, "watch", "w", false, "repeat until Ctrl-C: a terminal is redrawn; elsewhere the whole answer is written again when it has changed")
	flags.DurationVar(&w.interval, "interval", watchEvery, "with --watch: interval")
}

func (w *watch) check(cmd *cobra.Command) error {
	switch {
	case !w.bound:
	case w.interval < leastInterval:
		return fmt.Errorf("--interval %q: allowed are %s and more", w.interval, leastInterval)
	case !w.on && cmd.Flags().Changed("interval"):
		return fmt.Errorf("--interval %q: it belongs to --watch", w.interval)
	}
	return nil
}

// watching prints the result of fetch whenever it changes, and on a terminal at every
// interval. Ctrl-C ends it without an error. An error of the first fetch is returned. A
// later error is printed and fetch is repeated, because operators watch a process that
// restarts.
func (c *adminCall) watching(cmd *cobra.Command, fetch func(context.Context) ([]byte, error), show func(*page)) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
	display := screen.Screen{Out: out, Top: true}
	file, redraw := terminal(out)
	if redraw {
		display.Size = screen.SizeOf(file)
	}
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	var last []byte
	said := ""
	for first := true; ; first = false {
		text, err := fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case text == nil && first:
			return err
		case text == nil:
			if redraw {
				err = c.draw(&display, process.PrintableLines(err.Error())+"\n")
			} else if said != err.Error() {
				said = err.Error()
				_, err = fmt.Fprintln(errs, process.PrintableLines(said)+"; still watching")
			} else {
				err = nil
			}
			last = nil
		case redraw:
			var b bytes.Buffer
			if err = c.write(&b, text, coloured(out), show); err == nil {
				err = c.draw(&display, b.String())
			}
		case !bytes.Equal(text, last):
			if err = c.separate(out, first); err == nil {
				err = c.show(out, text, show)
			}
			last, said = text, ""
		default:
			err = nil
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// separate separates documents if their form does not do so.
func (c *adminCall) separate(out io.Writer, first bool) error {
	text := map[string]string{formTable: "\n", formWide: "\n", formYAML: "---\n"}[c.output]
	if first || text == "" {
		return nil
	}
	_, err := io.WriteString(out, text)
	return err
}

// draw replaces what the terminal shows.
func (c *adminCall) draw(display *screen.Screen, text string) error {
	text = fmt.Sprintf("%s at %s, every %s, now %s; Ctrl-C ends\n\n%s", c.process, c.addr(), c.interval, time.Now().Format(time.TimeOnly), text)
	return display.Draw(strings.Split(strings.TrimRight(text, "\n"), "\n"))
}
