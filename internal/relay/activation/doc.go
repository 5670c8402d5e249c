// Package activation takes the listening sockets that a service manager, such as systemd,
// passes to the process.
//
// Promise: a socket is taken once, only by the process that it is meant for, and only if it
// listens for TCP. No child process inherits it.
//
//	LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES ──► Sockets ──► listeners, with name and address
//
// Rules: only the start of a process calls Sockets, because the environment and the
// descriptors belong to the process. A socket that cannot be used is an error: its clients
// would wait for a process that never accepts them.
package activation
