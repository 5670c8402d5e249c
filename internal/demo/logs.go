package demo

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// mute passes log records on until it is switched on: at the end every member
// leaves at once, and each would complain of the others.
type mute struct {
	out io.Writer
	on  atomic.Bool
}

// Write passes one record on.
func (m *mute) Write(record []byte) (int, error) {
	if m.on.Load() {
		return len(record), nil
	}
	return m.out.Write(record)
}

// keptRecords is how many log records are shown after a live table.
const keptRecords = 20

// logRing keeps the newest log records while a table has the screen. Each Write
// is one record. It is safe for concurrent use.
type logRing struct {
	mu      sync.Mutex
	records []string
	dropped int
}

// Write keeps one record.
func (r *logRing) Write(record []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) == keptRecords {
		r.records = append(r.records[:0], r.records[1:]...)
		r.dropped++
	}
	r.records = append(r.records, string(record))
	return len(record), nil
}

// dump writes what was kept, and how much was not.
func (r *logRing) dump(w io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(w, "the members logged (%d earlier records are not shown):\n", r.dropped); err != nil {
		return err
	}
	for _, record := range r.records {
		if _, err := io.WriteString(w, record); err != nil {
			return err
		}
	}
	return nil
}
