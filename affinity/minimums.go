package affinity

import "fmt"

// Bounds on [Minimums]. Below three relays a worker that loses one to a restart hangs
// by a single connection.
const (
	LeastPeersPerWorker = 3
	LeastPeersPerRelay  = 1
)

// Minimums are the redundancy that a plan must keep, as numbers of connections.
type Minimums struct {
	PeersPerWorker int // relays that each worker is connected to, at least (m): 3 or more
	PeersPerRelay  int // workers that each relay is connected to, at least (p): 1 or more
}

// DefaultMinimums keep every worker and every relay going after two losses.
var DefaultMinimums = Minimums{PeersPerWorker: 3, PeersPerRelay: 3}

// Validate returns an error that names the value and what is allowed.
func (m Minimums) Validate() error {
	if m.PeersPerWorker < LeastPeersPerWorker {
		return fmt.Errorf("affinity: min peers per worker %d: allowed are %d or more, so that a worker survives the loss of a relay while another restarts",
			m.PeersPerWorker, LeastPeersPerWorker)
	}
	if m.PeersPerRelay < LeastPeersPerRelay {
		return fmt.Errorf("affinity: min peers per relay %d: allowed are %d or more",
			m.PeersPerRelay, LeastPeersPerRelay)
	}
	return nil
}
