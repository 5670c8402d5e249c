// Package settings reads the configuration of the binaries: every setting is a
// flag, an environment variable and a key of one YAML file.
//
// # Promise
//
// A setting is declared once, bound to the variable that it fills; the value
// which that variable holds at the declaration is the default. Flags beat the
// environment, the environment beats the file, the file beats the default.
// [Set.Load] reports every invalid setting at once, sorted by name, each with
// the flag, the value, where the value came from and what is allowed. It either
// fills all variables or leaves all of them as they were.
//
// # Picture
//
//	--min-peers-per-worker 4            flag          ─┐
//	RINGWAY_MIN_PEERS_PER_WORKER=4      environment   ─┤ the first that is given
//	min-peers-per-worker: 4             file (YAML)   ─┤ ──► parse ──► rules ──► variable
//	cfg.MinPeersPerWorker = 3           default       ─┘                 │
//	                                                     Check (across settings)
//
// The three names follow from one: the flag name is kebab-case and is the file
// key too; the environment variable is the prefix, an underscore and the flag
// name in upper case with underscores.
//
// # Rules
//
//   - Only the value in effect is judged: a flag can override a broken file value.
//     A file that does not parse, or that has unknown or doubled keys, is always
//     refused.
//   - An empty environment variable and a null file value (`key:`) count as not
//     given. An empty flag (`--key=`) and an empty string in the file do count.
//   - Lists: the flag may be repeated; flags, environment variables and file
//     scalars are also split at commas. Items of a YAML list are taken whole.
//   - An unknown environment variable with the prefix is a warning and not an
//     error: other programs may own it. An unknown file key is an error.
//   - Values of secret settings never appear in errors, in Values or in help.
//   - A Set is for one goroutine. Load may be called again (a reload): it starts
//     from the defaults and writes to the variables, so hand copies of the
//     configuration to other goroutines, never pointers into it.
package settings
