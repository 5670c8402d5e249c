package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Kinds of entries.
const (
	// Request is a request as its client saw it: ID, Client, Service, Endpoint, At, Until, Status, Once.
	Request = "request"
	// Executed is one execution by an endpoint: ID, Endpoint, At; Until if it occupied a slot.
	Executed = "executed"
	// Down and Up are changes of Endpoint, At.
	Down, Up = "down", "up"
	// Slots is the limit of an Endpoint: Count requests at a time.
	Slots = "slots"
	// Share is how many connections a worker (Endpoint) has at At: Count, while the plan changes from
	// Old to New of them.
	Share = "share"
	// Key is the fingerprint of the shared key that a relay (Client) uses from At on; empty: none.
	Key = "key"
)

// Entry is one line of a history. Its kind determines which fields are set.
type Entry struct {
	Kind     string    `json:"kind"`
	At       time.Time `json:"at,omitzero"`
	Until    time.Time `json:"until,omitzero"`
	ID       string    `json:"id,omitempty"`
	Client   string    `json:"client,omitempty"`
	Service  string    `json:"service,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	Status   int       `json:"status,omitempty"`
	// Echo is the id in the answer: another one than ID is the answer to another request.
	Echo string `json:"echo,omitempty"`
	// Once: the request must not be executed twice.
	Once  bool   `json:"once,omitempty"`
	Key   string `json:"key,omitempty"`
	Count int    `json:"count,omitempty"`
	Old   int    `json:"old,omitempty"`
	New   int    `json:"new,omitempty"`
}

// History collects entries from several goroutines.
type History struct {
	mu      sync.Mutex
	entries []Entry
}

// Add appends entries.
func (h *History) Add(entries ...Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, entries...)
}

// Write writes the history as JSON lines.
func (h *History) Write(w io.Writer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := json.NewEncoder(w)
	for _, e := range h.entries {
		if err := out.Encode(e); err != nil {
			return fmt.Errorf("write the history: %w", err)
		}
	}
	return nil
}

// Read reads the lines that Write wrote.
func Read(r io.Reader) (*History, error) {
	h := &History{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d of the history: %w", len(h.entries)+1, err)
		}
		h.entries = append(h.entries, e)
	}
	return h, lines.Err()
}
