package downstream

import "time"

// RestAfter replaces the time after which connections rest, before the server serves.
func (s *Server) RestAfter(d time.Duration) { s.restAfter = d }

// Resting returns how many connections rest.
func (s *Server) Resting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.phase.Load() == phaseResting {
			n++
		}
	}
	return n
}
