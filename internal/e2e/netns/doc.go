// Package netns tests a fleet of real processes, with certificates, whose network
// loses packets: a black hole, a partition, a relay that is cut off.
//
// Promise: no GET fails or takes longer than one attempt plus a normal answer, whichever
// packets are lost, no POST is executed twice, no client gets the answer to another, no worker executes
// more at a time than it has slots, relays agree on one shared key, and the fleet recovers without a
// restart when the network does. Package history judges requests, slots and keys. Nothing outside is
// touched: the tests run in their own network namespace. When they end, even abnormally, the kernel
// removes the namespace with everything in it.
//
//	 namespace of the tests             a namespace for each host
//	┌─────────────────────────┐        ┌─────────────────────────────┐
//	│ clients ── bridge ──────┼─ veth ─┤ relay                       │
//	│              │ nft      │        └─────────────────────────────┘
//	│              │ forward  │        ┌─────────────────────────────┐
//	│              └──────────┼─ veth ─┤ worker ── backend, loopback │
//	└─────────────────────────┘        └─────────────────────────────┘
//
// Rules: packets are lost between hosts only. Clients are at the bridge and reach both
// sides of a partition; the admin API is on unix sockets. `make test-netns` runs the tests;
// elsewhere they are skipped, because they need root or user namespaces. Waiting is polling
// for a state with a deadline.
package netns
