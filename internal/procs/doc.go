// Package procs starts the real binaries for tests: processes, the ports that they
// listen on, their certificates and gossip keys, and the commands beside them.
//
// Promise: a process belongs to the test that started it. However the test ends, the
// process has ended and was waited for before the next test reuses anything of it.
//
//	Build ──► relay, worker, … ──► Start ──► Process ──► Signal, Kill, Exit
//	                            └► Run   ──► Ran         a command, to its end
//	NewSecurity ──► authority, gossip key, certificates
//
// Rules: every process has a group of its own. A process that ended by itself, a
// data race and a panic in it fail the test; its output is shown then. Waiting is
// polling for a state with a deadline. The environment that a process inherits has
// no settings of Ringway.
package procs
