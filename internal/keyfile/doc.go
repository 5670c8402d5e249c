// Package keyfile reads the files of certificates, keys, tokens and secrets.
//
// # Promise
//
// A file that is damaged, in the wrong form or open to other users is an error whose text names the
// remedy. No certificate of a bundle and no problem of a file is dropped silently, and a wrong path
// does not exhaust the memory.
//
//	path ──► CheckAccess: who else may read or write it
//	  └────► Read: bounded, without a byte-order mark ──► Certificates, Pair
//
// Rules: functions without state. The package knows no roles and no names of members; those are in
// membership/identity.
package keyfile
