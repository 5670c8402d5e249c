// Package command is the command lines of the two binaries: [Relay] and [Worker] run
// the daemons and have the verbs of an operator, which ask a running process over its
// admin API or need none.
//
// Promise: all that is wrong with the settings is reported at once, before
// anything is bound or announced; flags beat environment beats file beats
// default. Every verb that reads shows a table for people, or JSON or YAML that
// programs can rely on, and can watch. The exit code is 0 for done, 1 for an error and
// 2 for nothing matched.
//
//	cmd/relay ─┐              ┌─ Daemon ──── settings, logger, banner, signals
//	           ├─► cobra tree ┤
//	cmd/worker ┘      │       └─ adminCall ─ fetch ─► form (table, JSON, YAML) ─► once, or watch
//	                  └─► help, man pages, docs/reference/cli.md
//
// Rules: only main calls os.Exit; commands return errors, and Run prints them once.
// The settings of a daemon are flags of run and config alone. A verb asks the process
// itself, never a proxy, and sends no token and no key to another host in clear text.
// What other members say of themselves is quoted on a terminal when it is not
// printable. Help and reference depend on the code, never on the environment. Colours go
// to terminals only.
package command
