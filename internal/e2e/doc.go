// Package e2e tests Ringway as its users run it: the real binaries, as processes, on
// loopback, with real clients.
//
// Promise: an operator gets the behaviour that these tests show. The tests use a process
// only through its flags, its ports, its log and its exit code. When the tests end, even
// abnormally, none of their processes is left.
//
//	tests ──► relay ──► backend ◄─ (offered by) ─ worker      each box is a process
//	  │         ├─ /readyz /metrics /api/v1/…
//	  │         └─ log, exit code
//	  └─ the backend's journal: which requests were executed, and how often
//
// Rules: package procs manages processes, ports and certificates. The binaries are built
// once, with the race detector if the tests have it; a data race in any process fails the
// test that started the process. Waiting is polling for a state with a deadline, never a
// pause.
package e2e
