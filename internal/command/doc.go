// Package command builds the command lines of the two binaries: a root command
// that runs the daemon, its settings as flags, and what both binaries have in
// common: version, config, completion; and the commands of an operator: tls, keys,
// plan and explain of a relay, drain, undrain and reload of a worker.
//
// Promise: all that is wrong with the settings is reported at once, before
// anything is bound or announced; flags beat environment beats file beats
// default.
//
//	cmd/relay ─┐                      ┌─ settings: declare, bind, load
//	           ├─► command.Daemon ────┤
//	cmd/worker ┘                      └─ daemon: logger, banner, signals
//
// Rules: only main calls os.Exit; commands return errors, and Run prints them
// once.
package command
