package command

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/ringway/ringway/internal/daemon"
)

// adminTimeout covers what waits for other members: a drain, a key that all must
// have.
const adminTimeout = 30 * time.Second

// adminCall asks one process over its admin API. It needs that address and no other
// setting of the process.
type adminCall struct {
	process       string // relay or worker
	outputs       []string
	admin, output string
}

func relayCall(flags *pflag.FlagSet, outputs ...string) *adminCall {
	return newAdminCall("relay", daemon.RelayAdminPort, flags, outputs)
}

func workerCall(flags *pflag.FlagSet, outputs ...string) *adminCall {
	return newAdminCall("worker", daemon.WorkerAdminPort, flags, outputs)
}

func newAdminCall(process, port string, flags *pflag.FlagSet, outputs []string) *adminCall {
	c := &adminCall{process: process, outputs: outputs}
	flags.StringVar(&c.admin, "admin-addr", cmp.Or(os.Getenv("RINGWAY_ADMIN_ADDR"), "127.0.0.1:"+port),
		"address of the "+process+"'s admin API, or RINGWAY_ADMIN_ADDR")
	flags.StringVarP(&c.output, "output", "o", outputs[0], strings.Join(outputs, " or "))
	return c
}

// ask sends a request for a path below /api/v1, without a body a GET, and returns
// the answer, whatever its status.
func (c *adminCall) ask(cmd *cobra.Command, method, path string, body []byte) (*http.Response, []byte, error) {
	if !slices.Contains(c.outputs, c.output) {
		return nil, nil, fmt.Errorf("--output %q: allowed are %s", c.output, strings.Join(c.outputs, ", "))
	}
	client := http.Client{Timeout: adminTimeout}
	req, err := http.NewRequestWithContext(cmd.Context(), method, "http://"+c.admin+"/api/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the %s at %s: %w: is it running, and is --admin-addr right?", c.process, c.admin, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, nil, fmt.Errorf("read the answer of the %s at %s: %w", c.process, c.admin, err)
	}
	return resp, text, nil
}

// call asks, decodes the answer into answer and shows it: by table, or as it is.
func (c *adminCall) call(cmd *cobra.Command, method, path string, body []byte, answer any, table func(io.Writer) error) error {
	resp, text, err := c.ask(cmd, method, path, body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var failed struct{ Error string }
		switch {
		case json.Unmarshal(text, &failed) != nil || failed.Error == "":
			return c.misdirected(resp)
		case resp.StatusCode == http.StatusNotFound:
			return fmt.Errorf("%w: %s", ErrNothingMatched, failed.Error)
		}
		return errors.New(failed.Error)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return c.misdirected(resp)
	}
	return c.show(cmd, text, table)
}

// misdirected is the error of an answer that no admin API gives.
func (c *adminCall) misdirected(resp *http.Response) error {
	return fmt.Errorf("the process at %s answered %s: is this the admin address of a %s?", c.admin, resp.Status, c.process)
}

func (c *adminCall) show(cmd *cobra.Command, text []byte, table func(io.Writer) error) error {
	out := cmd.OutOrStdout()
	switch c.output {
	case "json":
		_, err := out.Write(text)
		return err
	case "yaml":
		return writeYAML(out, text)
	}
	return table(out)
}

// writeYAML writes JSON as YAML, keys in the order that they have.
func writeYAML(w io.Writer, text []byte) error {
	var doc yaml.Node // JSON is YAML, in flow style
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("read the relay's answer: %w", err)
	}
	plainStyle(&doc)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return err
	}
	return enc.Close()
}

func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plainStyle(child)
	}
}
