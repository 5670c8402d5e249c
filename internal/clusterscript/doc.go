// Package clusterscript plays histories of clusters: text files of statements, which real
// members on memnet play under a virtual clock. Packages that promise something about a
// cluster add statements and expectations of their own to those of [Cluster.Forms].
//
// A history has one statement a line; '#' begins a comment. Three statements specify how
// it is played, before it is played:
//
//	seeds SEED…              of loss, jitter and all that is drawn; default: 1
//	sizes NUMBER…            each is put in for N in the other lines, also in wN
//	raced NUMBER…|none       the sizes under the race detector; default: the first
//
// Members of the cluster are called r1, r2, … (relays), g1, … (gates) and w1, …
// (workers) in the order in which they join; x1, x2, … are strangers, members of another
// cluster. A [Form] names its arguments in capitals and encloses in brackets what may be
// left out; the rest is a regular expression.
//
//	NAMES      a list of: w3   w3..w7   all, relays, workers (the live ones of the home cluster)
//	           2 of workers   1/5 of workers (drawn)   dead (those that do not run)
//	           others (the live ones that the statement has not named)
//	SIDES      NAMES | NAMES …
//	JOINERS    3 relays, 1 gate, 20 workers
//	DURATION   300ms, 10s, 15m, 1h30m
//	COUNT      1 to 9999
//	PERCENT    0% to 100%
//	TEXT       in double quotes
//
// An expectation "within DURATION" is asked until it holds or the time is up; without a
// duration it must hold now.
//
// # Why it reads the files itself
//
// datadriven wants an output below each command, and a statement has none: every line of
// a history would become three. testscript plays while it reads, once, in a directory of
// its own. A history is read as a whole, so that all wrong lines are reported before any
// is played. Then it is played with each of its seeds and sizes, each time in a new
// synctest bubble. [Read] and [History.Steps] are the smallest parser that does that.
package clusterscript
