// Package process holds the parts of a process that relay and worker share: logging, signals,
// the version, the start banner, the common settings, memberlist's metrics, and the admin
// API that both serve. A relay or a worker adds its own paths to the same mux.
//
// # Promise
//
// Both processes log, stop and print their banner in the same way. Nothing here depends on
// what a relay or a worker does with a request. Reading the admin API never changes
// anything; a change needs a POST. The answers are JSON; /healthz reports that the process
// runs, /readyz whether the process should get traffic, with every reason why not.
//
// # Picture
//
//	            first SIGTERM or SIGINT                second one
//	running ──────────────────────────────► stopping ─────────────► exit 1, immediately
//	   │        context cancelled, the signal   │
//	   │        is its cause                    └─► done ─► exit 0
//	   ├─ SIGHUP: reload, where the process can
//	   ├─ ready, reloading, stopping: notifications to the service manager
//	   ├─ log ──► Output, a bounded queue ──► JSON lines to a pipe, coloured text to a terminal
//	   ├─ memberlist ──► go-metrics (one for the whole process) ──► GossipSink ──► Prometheus
//	   └─ admin: Access ──► GET /healthz, /readyz, /metrics,
//	                            /api/v1/members, /api/v1/checksum, /api/v1/config, …
//
// # Rules
//
//   - Only [Signals] and [NewOutput] start goroutines. The stop function that Signals returns
//     waits for those of Signals, [Output.Close] for that of the Output.
//   - Nothing here calls os.Exit: [Signals] is given the exit function.
//   - A logger may be used by any number of goroutines; lines are never mixed. A daemon writes
//     to standard output and standard error only through an [Output], because a pipe that is
//     not read must block no goroutine. A panic is the exception.
//   - Handlers only read immutable snapshots, so they need no lock and cannot delay the data
//     plane.
//   - On loopback a caller is accepted if the Host header is an address or a name of the
//     process and if no proxy or relay forwarded the request; on other addresses [Access]
//     requires a token or a certificate. Probes are open to all. A page of another site in a
//     browser can only open a page, and change nothing. A unix socket is never open to another
//     user, not even while the socket is created. Profiles are served only if configured.
//   - No name and no label value of a metric comes from the network or from memberlist. A
//     measurement of memberlist that [GossipSink] does not know is dropped. memberlist writes
//     to a global variable of go-metrics, which [GossipSink.Install] sets: only a process with
//     a single member calls it, once, before the member starts.
package process
