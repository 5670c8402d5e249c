// Package daemon holds what the relay and the worker binary share: logging,
// signals, the version, the start banner and the settings that both take.
//
// # Promise
//
// Both daemons log alike, stop alike and introduce themselves alike. Nothing
// here knows what a relay or a worker does with a request.
//
// # Picture
//
//	            first SIGTERM or SIGINT                second one
//	running ──────────────────────────────► stopping ─────────────► exit 1, at once
//	   │        context cancelled, the signal   │
//	   │        is its cause                    └─► done ─► exit 0
//	   ├─ SIGHUP: reload, where the daemon can
//	   ├─ ready, reloading, stopping: told to the service manager that asks
//	   └─ log: JSON lines to a pipe, coloured text to a terminal
//
// # Rules
//
//   - Only [Signals] starts goroutines; the stop function it returns waits for them.
//   - Only main calls os.Exit: [Signals] is given the exit function.
//   - A logger may be used by any number of goroutines; lines are never mixed.
package daemon
