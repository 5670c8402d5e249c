// Package large runs a fleet at the size for which workers attach: 40 relays and 20,000 workers, of
// which a hundredth a minute is replaced.
//
// # Promise
//
// After each change every worker has a session with as many relays as it should within 5 s, every
// relay sees all workers that run, and no request fails.
//
//	relay (40 processes) <== 3 sessions each == workers (20,000 in processes of 2,000)
//	                     == connections ======> their services, mutual TLS
//
// # Rules
//
//   - A worker is what a Go program is that attaches: the session client, a catalogue, a certificate and
//     a server of its own. Only the processes are shared, because 20,000 do not fit one machine.
//   - `make test-large` runs it, a quarter of an hour; elsewhere it is skipped.
//   - The figures are printed; docs/how-to/large-fleets.md quotes them.
package large
