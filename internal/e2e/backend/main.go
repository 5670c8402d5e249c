package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// stopTimeout bounds the wait for requests in flight at the end.
const stopTimeout = 10 * time.Second

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "IP:port to listen at")
	name := flag.String("name", "backend", "what is answered")
	journalPath := flag.String("journal", "", "file to which the ids of requests are appended")
	flag.Parse()
	if err := run(*addr, *name, *journalPath); err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1)
	}
}

func run(addr, name, journalPath string) error {
	j, err := openJournal(journalPath)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Addr: addr, Handler: newHandler(name, j), Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}

	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	select {
	case err := <-served:
		return errors.Join(err, j.close())
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil {
		_ = server.Close()
	}
	<-served
	return j.close()
}
