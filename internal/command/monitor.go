package command

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/wire"
)

// MonitorCommand is `monitor`: it prints the log of a running process, live.
func MonitorCommand(program string) *cobra.Command {
	c := &cobra.Command{Use: "monitor", Short: "show the log of the running " + program + " as it is written, at any level", Args: cobra.NoArgs,
		Long: "The process's own log and its level stay as they are. A reader that is too slow loses\n" +
			"lines, and a line reports how many. Ctrl-C ends it, which is no failure; the end of the\n" +
			"process is one.",
		Example: fmt.Sprintf("  %[1]s monitor --level debug\n  %[1]s monitor --level debug -o json | jq -r 'select(.member) | .message'", program)}
	call := callOf(program, c.Flags(), formText, formJSON)
	level := c.Flags().String("level", "info", "least level: "+strings.Join(process.LogLevels(), ", "))
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := call.form.check(); err != nil {
			return err
		}
		if !slices.Contains(process.LogLevels(), *level) {
			return fmt.Errorf("--level %q: allowed are %s", *level, strings.Join(process.LogLevels(), ", "))
		}
		return untilInterrupted(cmd, func(ctx context.Context) error {
			return call.follow(ctx, "monitor?level="+*level, call.lineWriter(cmd.OutOrStdout()))
		})
	}
	return c
}

// untilInterrupted runs do. Ctrl-C ends it, which is no failure.
func untilInterrupted(cmd *cobra.Command, do func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := do(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// formText is the form of log lines for people.
const formText = "text"

// lineWriter returns a function that writes lines of JSON in the selected form.
func (c *adminCall) lineWriter(out io.Writer) func(line []byte) error {
	if c.output == formJSON {
		return func(line []byte) error {
			if !json.Valid(line) {
				return fmt.Errorf("the %s sent a line that is no JSON: %.80q", c.process, line)
			}
			_, err := out.Write(append(process.PrintableJSON(line, process.JSONEscape), '\n'))
			return err
		}
	}
	people := process.NewConsole(out, coloured(out))
	return func(line []byte) error {
		_, err := people.Write(line)
		return err
	}
}

// follow requests a stream of lines and passes each line to take, until ctx or the stream
// ends.
func (c *adminCall) follow(ctx context.Context, path string, take func(line []byte) error) error {
	return c.followFrom(ctx, path, follower{check: func(string) error { return nil }, take: take})
}

// follower reads a stream: check gets the ID of the relay that answers, if it names itself,
// and take each line. pause, if not nil, runs before the wait for more and at the end of the
// stream, and repeats an error. method is that of the request; empty means GET.
type follower struct {
	method string
	check  func(relay string) error
	take   func(line []byte) error
	pause  func() error
}

// pausing calls pause before each read.
type pausing struct {
	io.Reader
	pause func() error
}

func (p pausing) Read(b []byte) (int, error) {
	if err := p.pause(); err != nil {
		return 0, err
	}
	return p.Reader.Read(b)
}

// followFrom is follow with a check of the process that answers.
func (c *adminCall) followFrom(ctx context.Context, path string, to follower) error {
	resp, err := c.open(ctx, cmp.Or(to.method, http.MethodGet), path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := to.check(resp.Header.Get(wire.RelayHeader)); err != nil {
		return err
	}
	var body io.Reader = resp.Body
	if to.pause != nil {
		body = pausing{body, to.pause}
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if err := to.take(lines.Bytes()); err != nil {
			return err
		}
	}
	if to.pause != nil {
		if err := to.pause(); err != nil {
			return err // of this side
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the %s at %s ended the stream: %w", c.process, c.addr(), err)
	}
	return fmt.Errorf("the %s at %s ended the stream", c.process, c.addr())
}

// open sends a request whose answer may be endless.
func (c *adminCall) open(ctx context.Context, method, path string) (*http.Response, error) {
	req, client, err := c.request(ctx, method, path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the %s at %s: %w: is it running, and is --admin-addr right?", c.process, c.addr(), err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // a partial text is enough for the error
		return nil, c.refused(resp, text)
	}
	return resp, nil
}
