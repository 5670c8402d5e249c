package capacity

import "time"

// Measured values, and settings of package membership and memberlist.
const (
	// Settings of memberlist in package membership (node.go).
	probeInterval    = time.Second
	suspicionMult    = 4
	gossipInterval   = 200 * time.Millisecond
	gossipNodes      = 6
	certainty        = 12
	pushPullInterval = time.Minute
	// pushPullScale is the number of members above which memberlist extends the push/pull
	// interval.
	pushPullScale = 32

	// probeBytes is the number of bytes per second that an idle member sends and receives
	// in addition to push/pull: 90 to 120 with 50 to 500 real members on a virtual network.
	probeBytes = 120
	// memberBytes is the size of an entry of the member list with 140 bytes of metadata.
	// The push/pull formula gives 158.2 kB/min at 200 members; the measured value is 158.2.
	memberBytes = 205
	// packetBytes is the space in a gossip packet in addition to membership messages.
	packetBytes = 1350
	// recordOverhead is the overhead of a record in a packet, in bytes.
	recordOverhead = 3

	// exchangesAMinute is the number of anti-entropy exchanges, started and answered. An
	// idle comparison takes 18 bytes, the connection setup before it 93 bytes without TLS
	// and 4.4 kB with mutual TLS.
	exchangesAMinute = 4
	idleRepair       = 72
	greeting         = 93
	handshake        = 4400

	// perRecord is the memory of a record of three services in the store and the view, in
	// bytes: 999 to 1002 at 10,000 workers.
	perRecord = 1002
	// perMember is the memory of a member in memberlist and the snapshot, in bytes. Measured
	// are 67 kB at 50 members and 605 kB at 2000; the growth is linear.
	perMember = 276
	// baseMemory is the memory of an idle process, in bytes.
	baseMemory = 30 << 20
	// perConnection is the estimated memory of a connection, in bytes: a goroutine, its
	// stack and two buffers.
	perConnection = 24 << 10

	// slack and recordBytes are the defaults of the settings slack and record.
	slack       = 2
	recordBytes = 200

	// fixedDescriptors is the number of descriptors for listeners, gossip sockets and
	// streams, logs and the Go runtime.
	fixedDescriptors = 40
	// peersOfService is how many relays a forwarding relay connects to for a service:
	// the primaries and backups of package internal/pool.
	peersOfService = 3 + 2
)
