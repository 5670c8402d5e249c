package socket

import "net"

// Sight is what a look at a socket finds.
type Sight uint8

// The sights.
const (
	Quiet   Sight = iota // nothing
	Arrived              // bytes
	Gone                 // the end of the connection
)

// Below returns the connection of the socket below TLS and what is put around it.
func Below(nc net.Conn) net.Conn {
	for {
		around, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = around.NetConn()
	}
}
