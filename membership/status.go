package membership

import "sync"

// Status is the join state of a node.
type Status struct {
	// Joined is true after another member was reached, or if there is no other member to
	// look for. Version is then that of the snapshot that shows it; an older one may lack
	// the members that were reached.
	Joined  bool
	Version uint64
	// Err is the last failure to join while Joined is false. It is, or wraps, a
	// *RefusalError if a seed refused this node.
	Err error
	// Full is true while Config.MaxMembers refuses members: the snapshots are then an arbitrary
	// part of the cluster.
	Full bool
	// DuplicateAddr is the gossip address of another live process with the id of this node, as far
	// as known without contacting a member; empty if there is none. DuplicatesSeen is how often
	// such a process was seen.
	DuplicateAddr  string
	DuplicatesSeen uint64
	// Attaching is how many relays an attached worker should have a session with and has not yet, 0 or
	// more. Relays that could not be reached at the last attempt do not count.
	Attaching int
}

// statusBoard holds the Status and wakes callers that wait for Joined.
type statusBoard struct {
	mu     sync.Mutex
	status Status
	joined chan struct{}
}

func (b *statusBoard) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

func (b *statusBoard) set(s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status = s
	if s.Joined {
		select {
		case <-b.channel():
		default:
			close(b.joined)
		}
	}
}

func (b *statusBoard) channel() chan struct{} {
	if b.joined == nil {
		b.joined = make(chan struct{})
	}
	return b.joined
}

// Status reports whether the cluster was found, and if not, why, whether all of it is seen,
// and whether another process has the id of this node.
func (n *Node) Status() Status {
	s := n.status.get()
	s.Full = n.delegate.refusing.Load()
	s.DuplicateAddr, s.DuplicatesSeen = n.duplicateAddr(), n.metrics.duplicates.Load()
	return s
}
