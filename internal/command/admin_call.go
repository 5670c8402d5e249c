package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/daemon"
)

// adminTimeout covers what waits for other members: a drain, a key that all must
// have.
const adminTimeout = 30 * time.Second

// adminVariable is the environment variable of --admin-addr, the daemon's own.
const adminVariable = "RINGWAY_ADMIN_ADDR"

// adminCall asks one process over its admin API. It needs that address and no other
// setting of the process.
type adminCall struct {
	form
	watch
	adminAccess
	process string      // relay or worker
	admin   *pflag.Flag // --admin-addr; nil where at says where to ask
	at      string
	secret  string // what the body holds that others must not read; empty: nothing
}

// relayCall and workerCall add the flags of a call: where to ask, and the forms of the
// answer, all of them when none is named.
func relayCall(flags *pflag.FlagSet, outputs ...string) *adminCall {
	return newAdminCall("relay", daemon.RelayAdminPort, flags, outputs)
}

func workerCall(flags *pflag.FlagSet, outputs ...string) *adminCall {
	return newAdminCall("worker", daemon.WorkerAdminPort, flags, outputs)
}

// callOf is the call of a verb that both processes have.
func callOf(process string, flags *pflag.FlagSet) *adminCall {
	if process == "worker" {
		return workerCall(flags)
	}
	return relayCall(flags)
}

func newAdminCall(process, port string, flags *pflag.FlagSet, outputs []string) *adminCall {
	c := &adminCall{process: process}
	flags.String("admin-addr", "127.0.0.1:"+port, "address of the "+process+"'s admin API, HOST:PORT or unix:PATH, or "+adminVariable)
	c.admin = flags.Lookup("admin-addr")
	c.declare(flags)
	c.bind(flags, outputs...)
	return c
}

// addr is where to ask: the flag, the environment, the default. The default of the
// flag does not depend on the environment, or help and reference would.
func (c *adminCall) addr() string {
	if c.admin == nil {
		return c.at
	}
	if env := os.Getenv(adminVariable); env != "" && !c.admin.Changed {
		return env
	}
	return c.admin.Value.String()
}

// request is one for a path below /api/v1, or for one that begins with a slash, and the
// client to send it with.
func (c *adminCall) request(ctx context.Context, method, path string, body []byte) (*http.Request, *http.Client, error) {
	addr := c.addr()
	scheme, client, err := c.client(addr, c.process)
	if err != nil {
		return nil, nil, err
	}
	if !strings.HasPrefix(path, "/") {
		path = "/api/v1/" + path
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+"://"+urlHost(addr)+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("--admin-addr %q: %w: want HOST:PORT or unix:PATH", addr, err)
	}
	if err := c.authorize(req); err != nil {
		return nil, nil, err
	}
	secret := c.secret
	if secret == "" && req.Header.Get("Authorization") != "" {
		secret = "token"
	}
	if scheme == "http" {
		if err := c.checkClearText(addr, secret); err != nil {
			return nil, nil, err
		}
	}
	return req, client, nil
}

// ask sends a request and returns the answer, whatever its status.
func (c *adminCall) ask(ctx context.Context, method, path string, body []byte) (*http.Response, []byte, error) {
	req, client, err := c.request(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}
	client.Timeout = adminTimeout
	addr := c.addr()
	resp, err := client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the address is said already
		}
		return nil, nil, fmt.Errorf("ask the %s at %s: %w: is it running, and is --admin-addr right?", c.process, addr, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, nil, fmt.Errorf("read the answer of the %s at %s: %w", c.process, addr, err)
	}
	return resp, text, nil
}

// call asks, decodes the answer into answer and shows it: by table, or as it is. With
// --watch it goes on until it is told to end.
func (c *adminCall) call(cmd *cobra.Command, method, path string, body []byte, answer any, table func(io.Writer) error) error {
	return c.read(cmd, func(ctx context.Context) ([]byte, error) { return c.fetch(ctx, method, path, body, answer) }, table)
}

// read shows what fetch gives: a document, an error, or both where there is something
// to show and the exit code must say more.
func (c *adminCall) read(cmd *cobra.Command, fetch func(context.Context) ([]byte, error), table func(io.Writer) error) error {
	if err := errors.Join(c.form.check(), c.watch.check(cmd)); err != nil {
		return err
	}
	if c.watch.on {
		return c.watching(cmd, fetch, table)
	}
	text, err := fetch(cmd.Context())
	if text == nil {
		return err
	}
	return errors.Join(c.show(cmd, text, table), err)
}

// fetch asks once and decodes what was answered. The text is nil with an error.
func (c *adminCall) fetch(ctx context.Context, method, path string, body []byte, answer any) ([]byte, error) {
	resp, text, err := c.ask(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		var failed struct{ Error string }
		switch {
		case json.Unmarshal(text, &failed) != nil || failed.Error == "":
			return nil, c.misdirected(resp, text)
		case resp.StatusCode == http.StatusNotFound:
			return nil, fmt.Errorf("%w: %s", ErrNothingMatched, failed.Error)
		}
		return nil, errors.New(failed.Error)
	}
	reflect.ValueOf(answer).Elem().SetZero() // a watch decodes into it again
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, c.misdirected(resp, text)
	}
	return text, nil
}

// misdirected is the error of an answer that no admin API gives.
func (c *adminCall) misdirected(resp *http.Response, text []byte) error {
	if resp.StatusCode == http.StatusBadRequest && bytes.Contains(text, []byte("HTTPS server")) {
		return fmt.Errorf("the process at %s wants TLS: give --admin-tls-cert, --admin-tls-key and --admin-tls-ca", c.addr())
	}
	return fmt.Errorf("the process at %s answered %s: is this the admin address of a %s?", c.addr(), resp.Status, c.process)
}
