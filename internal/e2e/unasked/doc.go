// Package unasked has services that send bytes behind their answers, and clients that count the
// answers that are not theirs.
//
// Promise: an answer counts as foreign exactly if it does not name the request of the client
// that has read it.
//
//	client ──► proxy under test ──► Service ──► answer, pause, bytes that belong to no request
//
// Rules: one Service has one kind of answer and one pause. A client sends two requests on one
// connection: the first is answered with what is followed by such bytes, the second is not. The
// tests of the data path, of all ways through a fleet, and the comparison with other proxies
// use the package.
package unasked
