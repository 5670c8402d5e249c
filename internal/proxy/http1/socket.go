package http1

import "net"

// Socket returns the connection of the socket below TLS and what is put around it, so that
// the socket can be checked without a read.
func Socket(nc net.Conn) net.Conn {
	for {
		around, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = around.NetConn()
	}
}
