package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ringway/ringway/internal/loadgen"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "IP:port to listen at")
	name := flag.String("name", "backend", "what is answered")
	journalPath := flag.String("journal", "", "file to which the ids of requests are appended")
	slots := flag.Int("slots", 1, "how many requests of /work are served at a time")
	flag.Parse()
	if err := run(*addr, newHandler(*name, *slots), *journalPath); err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1)
	}
}

func run(addr string, h *handler, journalPath string) error {
	j, err := openJournal(journalPath)
	if err != nil {
		return err
	}
	h.journal = j
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return errors.Join(loadgen.Run(ctx, addr, h), j.close())
}

// journal appends one line for each request. Each line is one write to a file opened for
// appending, so lines are never torn and survive kill -9.
type journal struct{ file *os.File }

func openJournal(path string) (journal, error) {
	if path == "" {
		return journal{}, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return journal{}, fmt.Errorf("open the journal: %w", err)
	}
	return journal{file}, nil
}

func (j journal) note(method, id string) error {
	if j.file == nil {
		return nil
	}
	if _, err := fmt.Fprintf(j.file, "%s %s\n", method, id); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

func (j journal) close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}
