// Package discovery looks up the names of seeds, for nodes and callers that need other servers
// or rules than those of the machine.
//
// Promise: a [Resolver] keeps each answer for its TTL, asks once for a name at a time, serves
// the last good answer while servers fail, and drops addresses that its rules do not allow.
//
//	ResolverConfig ─► Resolver ─┬─► membership.Config.Resolver
//	                            └─► client.Config.Resolver
//
// Rules: a process may share one Resolver; all of its methods may be called from any goroutine.
// It starts none.
package discovery
