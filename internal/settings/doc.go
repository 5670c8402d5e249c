// Package settings reads the configuration of the binaries: every setting is a
// flag, an environment variable and a key of one YAML file.
//
// # Promise
//
// A setting is declared once, bound to the variable that it fills; the value of that
// variable at the declaration is the default. Flags override the environment, the
// environment overrides the file, the file overrides the default. [Set.Load] reports all
// invalid settings together, sorted by name, each with the flag, the value, its origin and
// the allowed values. It either fills all variables or leaves all of them unchanged.
//
// # Picture
//
//	--min-peers-per-worker 4            flag          ─┐
//	RINGWAY_MIN_PEERS_PER_WORKER=4      environment   ─┤ the first that is given
//	min-peers-per-worker: 4             file (YAML)   ─┤ ──► parse ──► rules ──► variable
//	cfg.MinPeersPerWorker = 3           default       ─┘                 │
//	                                                     Check (across settings)
//
// The three names follow from one: the flag name is kebab-case and also the key in the
// file; the environment variable is the prefix, an underscore and the flag name in upper
// case with underscores.
//
// # Rules
//
//   - Only the value in effect is checked: a flag can override an invalid value in the
//     file. A file that does not parse, or that has unknown or duplicate keys, is always
//     refused.
//   - An empty environment variable and a null value in the file (`key:`) count as not
//     given. An empty flag (`--key=`) and an empty string in the file do count.
//   - Lists: the flag may be repeated; flags, environment variables and scalars in the file
//     are also split at commas. Items of a YAML list are not split. What the items of a
//     [List] mean is computed once, when they are set.
//   - An unknown environment variable with the prefix is a warning and not an error,
//     because it may belong to another program. An unknown key in the file is an error.
//   - Values of secret settings never appear in errors, in Values or in help.
//   - A Set is for one goroutine. Load may be called again (a reload): it starts from the
//     defaults and writes to the variables, so pass copies of the configuration to other
//     goroutines, never pointers into it.
package settings
