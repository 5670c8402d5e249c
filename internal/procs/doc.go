// Package procs starts the real binaries for tests and for the simulations that measure
// processes. It manages processes, their ports, their certificates and gossip keys, asks
// their APIs, and runs other commands.
//
// Promise: a process of Start belongs to the test that started it. However the test ends, the
// process has ended before the next test reuses any of its resources.
//
//	Build ──► relay, worker, … ──► Start  ──► Process ──► Signal, Kill, Exit
//	                            ├► Launch ──► Process     without a test: its caller ends it
//	                            └► Run    ──► Ran         a command, to its end
//	NewSecurity ──► authority, gossip key, certificates
//	NewFleet    ──► Relay, Worker ──► Start: the members of one cluster, with all of these
//	Listen, Accept, Serve, Dial, Connected, Refusing, Await: for a test in one process, too
//
// Rules: every process has its own process group. A process that ended by itself, a data
// race and a panic in it fail the test, which then shows the output of the process. Waiting
// is polling for a state with a deadline. The environment of a process has no settings of
// Ringway.
package procs
