package capacity

import "time"

// What was measured, and what package membership and memberlist are set to.
const (
	// Of package membership (node.go), which sets memberlist.
	probeInterval    = time.Second
	suspicionMult    = 4
	gossipInterval   = 200 * time.Millisecond
	gossipNodes      = 6
	certainty        = 12
	pushPullInterval = time.Minute
	// pushPullScale is memberlist's: beyond so many members the interval grows.
	pushPullScale = 32

	// probeBytes is what an idle member sends and receives a second beside push/pull:
	// 90 to 120 with 50 to 500 real members on a virtual network.
	probeBytes = 120
	// memberBytes is an entry of the list of members with 140 bytes of metadata. The
	// formula of push/pull gave 158.2 kB/min at 200 members, measured were 158.2.
	memberBytes = 205
	// packetBytes is what a gossip packet has room for beside membership.
	packetBytes = 1350
	// recordOverhead is what a record costs in a packet beside itself.
	recordOverhead = 3

	// exchangesAMinute of anti-entropy, begun and answered; an idle comparison is 18
	// bytes, what comes before it 93 bytes in clear and 4.4 kB with mutual TLS.
	exchangesAMinute = 4
	idleRepair       = 72
	greeting         = 93
	handshake        = 4400

	// perRecord is what a record of three services takes in the store and the view: 999
	// to 1002 bytes at 10,000 workers.
	perRecord = 1002
	// perMember is what memberlist and the snapshot keep of a member: 67 kB at 50 members,
	// 605 kB at 2000, a straight line.
	perMember = 276
	// baseMemory is an idle process.
	baseMemory = 30 << 20
	// perConnection is an estimate: a goroutine, its stack and two buffers.
	perConnection = 24 << 10

	// fixedDescriptors are listeners, gossip sockets and their streams, logs and the
	// runtime's own.
	fixedDescriptors = 40
	// peersOfService is how many relays a forwarding relay connects to for a service:
	// the primaries and backups of package selection/pool.
	peersOfService = 3 + 2
)
