// Package large runs a fleet at the size for which workers attach: thousands of workers, of which a
// hundredth a minute is replaced.
//
// # Promise
//
// After each change every worker has a session with as many relays as it should within 5 s, every
// relay sees all workers that run, and no request fails.
//
//	relay (a process each) <== 3 sessions each == workers (20,000 in processes of 2,000)
//	                       == connections ======> their services, mutual TLS
//
// # Rules
//
//   - A worker is what a Go program is that attaches: the session client, a catalogue, a certificate and
//     a server of its own. Only the processes are shared, because thousands do not fit one machine.
//   - `make test-large` runs it, ten minutes; elsewhere it is skipped.
//   - The figures are printed; docs/how-to/large-fleets.md quotes them.
package large
