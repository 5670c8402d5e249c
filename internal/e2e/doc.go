// Package e2e holds the tests of Ringway as its users meet it: the real
// binaries, as processes, on loopback, with real clients.
//
// Promise: what these tests show, an operator gets. Nothing of a process is
// reached but its flags, its ports, its log and its exit code, and when the
// tests end, however they end, no process of theirs is left.
//
//	tests ──► relay ──► backend ◄─ (offered by) ─ worker      each box a process
//	  │         ├─ /readyz /metrics /api/v1/…
//	  │         └─ log, exit code
//	  └─ the backend's journal: what was really executed, and how often
//
// Rules: processes, ports and certificates are package procs'. The binaries are
// built once, with the race detector when the tests have it; a data race in any
// process fails the test that started it. Waiting is polling for a state with a
// deadline, never a pause.
package e2e
