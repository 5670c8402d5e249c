package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Notifier tells the service manager that started the process how it is doing,
// with the datagrams that systemd's sd_notify(3) describes. Without a manager that
// wants to know, every method does nothing. Its methods may be called from any
// goroutine.
type Notifier struct {
	socket    string
	logger    *slog.Logger
	announced atomic.Bool // READY=1 was sent
}

// NotifySocket is the environment variable with which a service manager asks for
// notifications.
const NotifySocket = "NOTIFY_SOCKET"

// NewNotifier returns one for the socket that the environment names.
func NewNotifier(logger *slog.Logger) *Notifier {
	return &Notifier{socket: os.Getenv(NotifySocket), logger: logger}
}

// lookEvery is how often Run asks whether the process is ready until it is, and
// lookAgain how often then, for the status line.
const (
	lookEvery = 100 * time.Millisecond
	lookAgain = time.Second
)

// Run says READY=1 once reasons, which lists why the process should get no traffic,
// is empty, keeps the status line up to date, and says STOPPING=1 when ctx ends. It
// returns then.
func (n *Notifier) Run(ctx context.Context, reasons func() []string) {
	if n.socket == "" {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	said := ""
	for {
		status := "ready"
		if why := reasons(); len(why) > 0 {
			status = "not ready: " + strings.Join(why, "; ")
		} else if n.announced.CompareAndSwap(false, true) {
			n.send("READY=1")
			tick.Reset(lookAgain)
		}
		if status != said {
			said = status
			n.send("STATUS=" + oneLine(status))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			n.send("STOPPING=1\nSTATUS=stopping: requests in flight finish")
			return
		}
	}
}

// Reloading wraps reload, so that the manager knows when it begins and ends. Before
// the process was ready the manager hears of neither: the end of a reload is
// announced as readiness is. It is nil for nil.
func (n *Notifier) Reloading(reload func()) func() {
	if n.socket == "" || reload == nil {
		return reload
	}
	return func() {
		if n.announced.Load() {
			n.send("RELOADING=1")
			defer n.send("READY=1")
		}
		reload()
	}
}

// send never blocks for long: the manager reads its socket all the time. What fails
// is logged; a process does not end because nobody listens to it.
func (n *Notifier) send(state string) {
	if err := n.write(state); err != nil {
		n.logger.Warn("the service manager was not told", "state", state, "err", err)
	}
}

func (n *Notifier) write(state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("%s: %w", NotifySocket, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}

// oneLine keeps a status from being read as more assignments.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }
