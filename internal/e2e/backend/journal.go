package main

import (
	"fmt"
	"os"
)

// journal appends one line for each request. A line is one write to a file
// opened for appending: it is whole, and it survives kill -9.
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
