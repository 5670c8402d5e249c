package downstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
)

// firstLine reads a line before the first request, as a header of a load balancer would come.
func firstLine(nc net.Conn) (string, error) {
	var text strings.Builder
	for b := make([]byte, 1); ; {
		if _, err := nc.Read(b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return text.String(), nil
		}
		text.Write(b)
	}
}

// renamed is a connection with another remote address.
type renamed struct {
	net.Conn
	remote net.Addr
}

func (r renamed) RemoteAddr() net.Addr { return r.remote }
func (r renamed) NetConn() net.Conn    { return r.Conn }

type nameKey struct{}

func TestTheRequestsOfAConnectionKnowWhatItsPrologueFound(t *testing.T) {
	served := downstream.Config{
		Prologue: func(nc net.Conn) (net.Conn, error) {
			name, err := firstLine(nc)
			if err != nil {
				return nil, err
			}
			return renamed{nc, &net.UnixAddr{Name: name}}, nil
		},
		ConnContext: func(nc net.Conn) context.Context {
			return context.WithValue(context.Background(), nameKey{}, nc.RemoteAddr().String())
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/done" {
				_ = r.Context().Done() // the next request gets another context
			}
			name, _ := r.Context().Value(nameKey{}).(string)
			_, _ = io.WriteString(w, r.RemoteAddr+" "+name)
		}),
	}
	addr, _ := start(t, served)
	for _, name := range []string{"one", "two"} {
		nc := procs.Dial(t, addr)
		_ = nc.SetDeadline(time.Now().Add(patience))
		in := bufio.NewReader(nc)
		_, _ = io.WriteString(nc, name+"\n") // the answers show it
		for _, path := range []string{"/", "/done", "/"} {
			if _, err := io.WriteString(nc, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, _ := io.ReadAll(resp.Body); string(body) != name+" "+name {
				t.Errorf("%s: %q", path, body)
			}
		}
	}
}

func TestAPrologueThatWaitsDelaysNoOtherConnectionAndIsBoundedInTime(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	addr, _ := start(t, downstream.Config{
		HeadTimeout: 2 * time.Second,
		Prologue: func(nc net.Conn) (net.Conn, error) {
			first, err := firstLine(nc)
			if err != nil {
				ended <- err
				return nil, err
			}
			if first != "fine" {
				return nil, errors.New("not fine")
			}
			return nc, nil
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }),
	})
	procs.Dial(t, addr) // a slow one, which sends nothing
	for text, want := range map[string]bool{"fine\n": true, "bad\n": false} {
		nc := procs.Dial(t, addr)
		_ = nc.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(nc, text+"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if answered := err == nil && resp.StatusCode == 200; answered != want {
			t.Errorf("%q: answered %v (%v)", text, answered, err)
		}
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the prologue that waits got %v, want the close of its connection", err)
	}
}
