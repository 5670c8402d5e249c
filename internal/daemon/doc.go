// Package daemon holds the parts that the relay and the worker binary share: logging,
// signals, the version, the start banner and the common settings.
//
// # Promise
//
// Both daemons log, stop and print their banner in the same way. Nothing here depends on
// what a relay or a worker does with a request.
//
// # Picture
//
//	            first SIGTERM or SIGINT                second one
//	running ──────────────────────────────► stopping ─────────────► exit 1, immediately
//	   │        context cancelled, the signal   │
//	   │        is its cause                    └─► done ─► exit 0
//	   ├─ SIGHUP: reload, where the daemon can
//	   ├─ ready, reloading, stopping: notifications to the service manager
//	   └─ log: JSON lines to a pipe, coloured text to a terminal
//
// # Rules
//
//   - Only [Signals] starts goroutines; the stop function it returns waits for them.
//   - Only main calls os.Exit: [Signals] is given the exit function.
//   - A logger may be used by any number of goroutines; lines are never mixed.
package daemon
