package handshake

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/logtest"
)

// lacking is a listener of a host that lacks memory until an instant, and then has one connection.
type lacking struct {
	net.Listener
	until time.Time
	conn  net.Conn
	tries int
}

func (l *lacking) Accept() (net.Conn, error) {
	l.tries++
	if time.Now().Before(l.until) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.ENOMEM)}
	}
	return l.conn, nil
}

func (l *lacking) Close() error   { return nil }
func (l *lacking) Addr() net.Addr { return &net.TCPAddr{} }

func TestAShortageIsWaitedForAndWarnedOfRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer func() { _, _ = ours.Close(), theirs.Close() }()
		inner := &lacking{until: time.Now().Add(time.Minute), conn: ours}
		var log logtest.Log
		began := time.Now()
		conn, err := Lasting(inner, slog.New(slog.NewTextHandler(&log, nil))).Accept()
		if conn != ours || err != nil {
			t.Fatalf("%v, %v", conn, err)
		}
		if took := time.Since(began); took > time.Minute+longestWait || inner.tries > 75 {
			t.Errorf("it came after %v and %d tries", took, inner.tries)
		}
		if n := log.Lines("level=WARN"); n < 5 || n > 7 || !strings.Contains(log.String(), "cannot allocate memory") {
			t.Errorf("%d warnings in a minute:\n%s", n, log.String())
		}
	})
}

// ended is a listener within a process that has ended.
type ended struct{ net.Listener }

var errOver = errors.New("closed")

func (ended) Accept() (net.Conn, error) { return nil, errOver }

func TestAListenerThatReportsItsEndInItsOwnWordsHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if _, err := Lasting(ended{}, slog.New(slog.DiscardHandler)).Accept(); !errors.Is(err, errOver) || time.Since(began) > 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestAListenerThatIsClosedWaitsForNoShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := Lasting(&lacking{until: began.Add(time.Hour)}, slog.New(slog.DiscardHandler))
		ended := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			ended <- err
		}()
		time.Sleep(10*time.Second + 1)
		at := time.Now()
		_ = l.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) || time.Since(at) > 0 {
			t.Errorf("%v, %v after it was closed", err, time.Since(at))
		}
	})
}
