// Package command has the command lines of the two binaries, [RelayTree] and
// [WorkerTree]: they run a daemon and have the commands for operators, which use the
// admin API of a running process or need no process. Packages relaycmd and workercmd add
// the relay and the worker.
//
// Promise: all problems of the settings are reported together, before anything is bound or
// announced; flags override the environment, which overrides the file, which overrides the
// defaults. Every command that reads shows a table for people, or JSON or YAML with a
// stable schema for programs, and has --watch. The exit code is 0 for success, 1 for an
// error and 2 for nothing matched.
//
//	cmd/relay ── relaycmd ──┐              ┌─ Daemon ──── settings, logger, banner, signals
//	                        ├─► cobra tree ┤
//	cmd/worker ─ workercmd ─┘      │       └─ adminCall ─ fetch ─► form (table, JSON, YAML) ─► once, or watch
//	                               └─► help, man pages, docs/reference/cli.md
//
// Rules: no import of a relay or worker: the commands know the types of package api. Only
// main calls os.Exit, and a daemon at a second signal; commands return errors, and Run prints
// them once. The settings of a daemon are flags of run and config only. A command connects to the
// process directly, never through a proxy, and sends no token and no key to another host in clear
// text. Texts from other members are quoted on a terminal if they are not printable. Help
// and reference depend on the code, never on the environment. Colours are used on terminals
// only.
package command
