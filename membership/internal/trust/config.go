package trust

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/membership/identity"
)

// Config is what a guard knows of its node, and how it reaches the rest of it.
type Config struct {
	// Identity is the node's certificate, and decides which certificates of others are valid.
	Identity *identity.Source
	// Label is cluster/environment.
	Label string
	// Self is the instance name of the node, Epoch its boot time, and Addr the address at which
	// others know it: packets to it are signed for this address.
	Self  string
	Epoch uint64
	Addr  string
	// Keys returns the gossip keys, and PrimaryKey the one that seals. Nil: packets are not sealed.
	Keys       func() [][]byte
	PrimaryKey func() []byte
	// MaxMembers is the most instances that wait to be proven, and half of the certificates and
	// nodes that are kept. MaxNewMembers is the most names per minute that one member may announce.
	MaxMembers, MaxNewMembers int
	// Send sends a packet to another member, and Deliver passes one to memberlist. Both addresses
	// are IP:port.
	Send    func(packet []byte, to string)
	Deliver func(packet []byte, from string)
	// AddrOf returns the gossip address of a live member; empty if there is none.
	AddrOf func(id string) string
	// Answered is called with each member that has shown at its address that it lives. It must
	// return immediately.
	Answered func(id string, epoch uint64, addr string)
	// Dropped counts what memberlist does not receive, Unproven the announcements of instances that
	// are not proven: both by reason.
	Dropped, Unproven *prometheus.CounterVec
	// Clock returns the time by the clock of this host.
	Clock  func() time.Time
	Logger *slog.Logger
}
