// Command echo is the service of the compose fleet, for demos and tests: it answers
// every request with its name, over HTTP/1.1.
//
//	curl -H 'Ringway-Service: echo' http://127.0.0.1:7410/   →   echo-4
//
// After SIGTERM it finishes the requests in flight.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// stopTimeout limits the wait for requests in flight after SIGTERM.
const stopTimeout = 10 * time.Second

func main() {
	addr := flag.String("addr", ":9000", "address to listen at")
	name := flag.String("name", hostName(), "what is answered")
	delay := flag.Duration("delay", 0, "mean service time; half to one and a half times as much is drawn for each request")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := serve(ctx, *addr, echo{*name, *delay}); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "echo"
	}
	return name
}

// echo answers with its name, after a random delay.
type echo struct {
	name  string
	delay time.Duration
}

func (e echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if e.delay > 0 {
		timer := time.NewTimer(e.delay/2 + rand.N(e.delay))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, e.name+"\n") // fails only if the client is gone
}

// serve answers until ctx ends.
func serve(ctx context.Context, addr string, handler http.Handler) error {
	server := &http.Server{Addr: addr, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	select {
	case err := <-served:
		return fmt.Errorf("%w: is another process on this port?", err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil {
		_ = server.Close() // nothing more can be done about its error
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
