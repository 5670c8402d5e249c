package pool

import (
	"errors"
	"fmt"
	"time"
)

// Peer is one process that connections may lead to.
type Peer struct {
	// ID is its stable name, not empty. It is what is ranked and remembered.
	ID string
	// Address is for whoever opens the connection. A peer that comes back under
	// another one is a new peer.
	Address string
	// Instance tells the processes apart that ran under the ID one after the other,
	// where the caller knows: with another one it is a new peer, and what the last
	// one did is forgotten. Empty is an instance like any other.
	Instance string
	// Datacenter and Region are where it is; empty ones match nothing.
	Datacenter, Region string
}

// Tier is how near a peer is.
type Tier uint8

// The tiers, nearest first.
const (
	SameDC Tier = iota
	SameRegion
	Global
)

var tierNames = [...]string{"same_dc", "same_region", "global"}

func (t Tier) String() string { return tierNames[t] }

// tier is not remembered, so a peer that moves needs no thought.
func (p *Peer) tier(datacenter, region string) Tier {
	switch {
	case datacenter != "" && p.Datacenter == datacenter:
		return SameDC
	case region != "" && p.Region == region:
		return SameRegion
	}
	return Global
}

// peer is what a table knows of a peer.
type peer struct {
	Peer
	health health
	member *member // its place in the pool, or the one it is being connected for
	links  int     // its connections, opening and draining ones included

	requests, failures uint64 // since it was met

	bars        int       // k: evictions and failed openings in a row
	barredUntil time.Time // zero unless it is barred
	reason      string    // why it was barred last
}

// same says whether q is the same process as p.
func (p *Peer) same(q Peer) bool {
	return p.ID == q.ID && p.Address == q.Address && p.Instance == q.Instance
}

func (p *peer) barred() bool { return !p.barredUntil.IsZero() }

func checkPeers(peers []Peer) error {
	var errs []error
	seen := make(map[string]bool, len(peers))
	for _, p := range peers {
		switch {
		case p.ID == "":
			errs = append(errs, fmt.Errorf("pool: the peer at %q has no id: give every peer a stable one", p.Address))
		case seen[p.ID]:
			errs = append(errs, fmt.Errorf("pool: peer %q is given twice: list each once", p.ID))
		}
		seen[p.ID] = true
	}
	return errors.Join(errs...)
}
