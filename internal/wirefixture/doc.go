// Package wirefixture compares what this build reads and writes with the bytes that releases
// write, for the tests of packages with a format between members.
//
// Promise: a test that passes shows that this build reads the bytes of every release as that
// release meant them, and writes the same bytes as the newest release where its bytes are not
// random. No run of a test replaces bytes that exist.
//
//	testdata/wire/0.1.0.json: bytes that release 0.1.0 writes, and the value that it reads
//	                  │
//	       Check ─────┴──► Decode, Encode, Later, Refused of each [Format]
//
// The formats of gossip are shown by a few members ([Relay] and others) whose keys and times are
// fixed.
//
// Rules: the file of a release never changes, and stays as long as members of that release are
// supported. A field that was added after the release is zero in the value of its bytes. A
// release that changes no format needs no file.
package wirefixture
